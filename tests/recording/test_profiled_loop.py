"""``perfkit.profile`` chooses the framework, and refuses wrong arguments. tests/torch and tests/paddle record."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perfkit
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import Recorder
from perfkit_core.recording import profiled_loop


class Steps:
    """A recording that notes what it is told."""

    def __init__(self, run_dir: Any, steps: Any, **options: Any) -> None:
        self.given, self.told, self.step = (run_dir, steps, options), [], 0

    def begin(self, step: int) -> None:
        self.told.append(f"begin {step}")

    def step_ended(self) -> None:
        self.step += 1
        self.told.append("step")

    def resume(self) -> None:
        self.told.append("resume")

    def pause(self) -> None:
        self.told.append("pause")

    def abort(self) -> None:
        self.told.append("abort")

    def finish(self) -> None:
        self.told.append("finish")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Steps]:
    """Two frameworks, fast and slow, which record with :class:`Steps`. Return the recordings."""
    recordings: list[Steps] = []

    def start(*given: Any, **options: Any) -> Steps:
        recordings.append(Steps(*given, **options))
        return recordings[-1]

    recorders = [Recorder(name, print, loop=start) for name in ("fast", "slow")] + [Recorder("none", print)]
    monkeypatch.setattr(profiled_loop, "get_plugins", lambda: SimpleNamespace(recorders=lambda: recorders))
    monkeypatch.setattr(profiled_loop.atexit, "register", lambda function: function)
    return recordings


def test_the_imported_framework_records(made: list[Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="imported no framework yet; import fast or slow before"):
        perfkit.profile([], tmp_path)
    monkeypatch.setitem(sys.modules, "slow", SimpleNamespace())
    perfkit.profile([], tmp_path, warmup=2)
    assert made[0].given == (tmp_path, (10, 19), {"on_demand": False, "warmup": 2})
    monkeypatch.setitem(sys.modules, "fast", SimpleNamespace())
    with pytest.raises(UsageError, match=r"fast and slow are imported.*; add framework='fast'"):
        perfkit.profile([], tmp_path / "other")
    perfkit.profile([], tmp_path / "demand", framework="slow", on_demand=True)
    assert made[1].given[1:] == (None, {"on_demand": True})
    with pytest.raises(UsageError, match="framework='none' is unknown; known: fast, slow"):
        perfkit.profile([], tmp_path / "none", framework="none")


def test_one_recording_for_a_folder(made: list[Steps], tmp_path: Path) -> None:
    for _ in range(2):
        for _ in perfkit.profile([1, 2], tmp_path, framework="fast"):
            pass
    (recording,) = made
    assert recording.told == ["begin 0", "step", "step", "pause", "resume", "step", "step", "pause"]
    with pytest.raises(UsageError, match="records into this folder, with other arguments; give another folder"):
        perfkit.profile([], tmp_path, window=(3, 4), framework="fast")


@pytest.mark.parametrize("interactive", [False, True])
def test_a_cell_of_a_notebook_that_runs_again_is_told(
    made: list[Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    interactive: bool,
) -> None:  # fmt: skip
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    for _ in range(3):
        list(perfkit.profile(range(3), tmp_path, window=(0, 1), framework="fast"))
    assert len(caplog.records) == interactive
    if interactive:
        assert "steps 0 to 1 were recorded before, and this loop goes on with step 3" in caplog.text


def test_the_end_of_the_process(made: list[Steps], tmp_path: Path) -> None:
    """Within the loop, the recording ends with a partial step."""
    loop = perfkit.profile([1, 2], tmp_path, framework="fast")
    iterator = iter(loop)
    next(iterator)
    loop._recording.end()
    assert made[0].told == ["begin 0", "abort"]
    iterator.close()  # type: ignore[attr-defined]
    loop._recording.end()
    assert made[0].told[-1] == "finish"


def test_any_iterable(made: list[Steps], tmp_path: Path) -> None:
    loop = perfkit.profile((number for number in "ab"), tmp_path, framework="fast")
    with pytest.raises(TypeError):
        len(loop)
    assert list(loop) == ["a", "b"]
