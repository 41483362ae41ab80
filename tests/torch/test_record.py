"""Tests of ``perfkit record`` with unmodified torch scripts."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.errors import CaptureError, UsageError  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.trace.model.trace import Trace  # noqa: E402
from perfkit_torch.record import ScriptRecording, start_section  # noqa: E402


def updates(count: int, optimizers: int = 1) -> None:
    net = torch.nn.Linear(4, 2)
    chosen = [torch.optim.SGD(net.parameters()) for _ in range(optimizers)]
    for _ in range(count):
        net(torch.ones(3, 4)).sum().backward()
        for optimizer in chosen:
            optimizer.step()


def step_durations(trace: Trace) -> dict[int, int]:
    rows = trace.rows("kind", "step")
    return dict(zip(trace.ints("step")[rows].tolist(), trace.ints("dur_ns")[rows].tolist(), strict=True))


def test_a_step_lies_between_two_updates(tmp_path: Path) -> None:
    """Five updates of the first optimizer give four complete iterations. Updates of the second optimizer do not end
    steps."""
    recording = ScriptRecording(tmp_path, None, {})
    updates(5, optimizers=2)
    assert recording.finish() == 1
    trace = load(tmp_path)
    assert list(step_durations(trace)) == [1, 2, 3, 4]
    assert "partial-step" in [finding.code for finding in trace.quality]


def test_a_module_whose_steps_are_calls_in_another_module(tmp_path: Path) -> None:
    """``record -m`` runs a module as Python does, and wraps the function when its module is imported."""
    (tmp_path / "package").mkdir()
    work = "import torch\nclass Trainer:\n    @staticmethod\n    def step(): torch.ones(3).sum()\n"
    (tmp_path / "package" / "work.py").write_text(work)
    main = (
        "import sys\nfrom package import work\nfor _ in range(4): work.Trainer.step()\nprint(__package__, sys.argv[1:])"
    )
    (tmp_path / "package" / "main.py").write_text(main)
    done = _recorded(tmp_path, "--step-on", "package.work:Trainer.step", "-m", "package.main", "-x")
    assert (done.returncode, done.stdout) == (0, "package ['-x']\n"), done.stderr
    assert list(step_durations(load(tmp_path / "run"))) == [1, 2, 3]


def test_recording_ends_after_its_steps_and_the_script_goes_on(tmp_path: Path) -> None:
    recording = ScriptRecording(tmp_path, 2, {})
    updates(8)
    assert recording.finish() == 1
    trace = load(tmp_path)
    assert list(step_durations(trace)) == [1, 2]
    updates_seen = trace.rows("name", "Optimizer.step#SGD.step").sum()
    assert 3 <= updates_seen <= 4  # three complete updates, and the start of the update at which the recording stopped


@pytest.mark.parametrize("steps", [None, 2])
def test_no_label_outlives_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int | None) -> None:
    """torch writes the end of a label into the memory of the recording in which it began. A label that ended in a later
    recording, or was deleted during one, damaged the memory of the training: it wrote 8 bytes into freed memory."""
    opened: list[object] = []

    class Label(torch.profiler.record_function):  # type: ignore[misc]
        def __enter__(self) -> object:
            opened.append(self)
            return super().__enter__()

        def __exit__(self, *error: object) -> None:
            opened.remove(self)
            super().__exit__(*error)

    monkeypatch.setattr(torch.profiler, "record_function", Label)
    recording = ScriptRecording(tmp_path, steps, {})
    updates(5)
    assert bool(opened) is (steps is None)
    assert recording.finish() == 1
    assert not opened


def test_a_warning_of_older_torch_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch up to 2.12 warns at each start of a profiler. With ``-W error``, the warning would end the training."""
    original = torch.profiler.profile.prepare_trace

    def warning(profiler: torch.profiler.profile) -> None:
        warnings.warn("Warning: Profiler clears events at the end of each cycle.", stacklevel=2)
        original(profiler)

    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording = ScriptRecording(tmp_path, None, {})
        updates(2)
        assert recording.finish() == 1
        assert len(start_section({})()) > 0
        with pytest.raises(UserWarning):
            torch.profiler.profile().start()


def _recorded(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfkit", "record", "-o", "run", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


SCRIPT = """
import sys, torch
assert __name__ == "__main__"
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(net.parameters())
for _ in range(int(sys.argv[1])):
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_from_the_command_line(tmp_path: Path, code: int) -> None:
    """The script receives its arguments, its exit code is returned, and the recording is kept in each case."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = _recorded(tmp_path, "--steps", "3", "train.py", "6", str(code))
    assert done.returncode == code, done.stderr
    assert list(step_durations(load(tmp_path / "run"))) == [1, 2, 3]


def test_requested_options_are_recorded(tmp_path: Path) -> None:
    """A linear layer has 4 inputs, 2 outputs and 3 samples. Its shapes, its 2·3·4·2 FLOPs, the bytes of its output and
    the stack are recorded."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "perfkit", "record", "-o", "run", "--shapes", "--memory", "--stacks"]
    command += ["--flops", "train.py", "3", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "run")
    events = trace.to_pandas()
    linear = events[events["name"] == "aten::addmm"]
    assert (linear["flops"] == 2 * 3 * 4 * 2).all()
    assert linear["shapes"].str.startswith("[[2],[3,4],[4,2]").all()
    assert len(linear) == 3
    assert (events[events["kind"] == "memory"]["bytes"] == 3 * 2 * 4).any()
    assert events[events["kind"] == "python"]["name"].astype("string").str.contains("train.py", regex=False).any()


def test_other_options_are_not_recorded(tmp_path: Path) -> None:
    recording = ScriptRecording(tmp_path, None, {"shapes": False, "memory": False})
    updates(2)
    recording.finish()
    events = load(tmp_path).to_pandas()
    assert events[["shapes", "flops", "stack"]].isna().all(axis=None)
    assert not events["kind"].isin(["memory", "python"]).any()


def test_a_profiler_of_the_script_is_not_disturbed(tmp_path: Path) -> None:
    """The recording ends before the script's profiler starts, and its events are kept."""
    recording = ScriptRecording(tmp_path, None, {})
    updates(3)
    with torch.profiler.profile() as own:
        updates(4)
    names = [event.name for event in own.events()]
    assert names.count("Optimizer.step#SGD.step") == 4
    assert not [name for name in names if name.startswith("ProfilerStep")]
    with pytest.raises(CaptureError, match="recording ended when the script started its own profiler"):
        recording.finish()
    assert load(tmp_path).rows("name", "Optimizer.step#SGD.step").sum() == 3


def test_a_profiler_of_the_script_may_start_after_the_recording(tmp_path: Path) -> None:
    recording = ScriptRecording(tmp_path, 1, {})
    updates(3)
    with torch.profiler.profile():
        updates(1)
    assert recording.finish() == 1


def test_unsupported_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torch cannot record moods; leave --moods out; torch can record shapes, mem"):
        ScriptRecording(tmp_path, None, {"shapes": True, "moods": True})
    recording = ScriptRecording(tmp_path, None, {})  # no profiler is running
    assert recording.finish() == 1
