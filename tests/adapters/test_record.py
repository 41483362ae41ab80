"""``perfkit record`` and callbacks of training frameworks record unmodified loops."""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit_core.base.system import packages
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.readers.load import load
from perfkit_core.recording.step_calls import StepCalls
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework

Run = Callable[..., tuple[int, str]]


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def test_ranges_and_calls_may_end_steps(native: Framework, tmp_path: Path) -> None:
    """A loop without an optimizer."""
    calls = StepCalls("", "iterate")

    @calls.wrap
    def iterate() -> None:
        with native.label("iteration"):
            native.ones(3, 4).sum()

    for name, step_on, limit in (("range", "iteration", None), ("calls", calls, None), ("two", "iteration", 2)):
        recording = native.record_script(tmp_path / name, limit, {"step_on": step_on})
        for _ in range(5):
            iterate()
        assert recording.finish().files == 1
        assert steps_of(load(tmp_path / name)) == ([1, 2] if limit else [1, 2, 3, 4])
        del recording
        gc.collect()


def test_a_script_without_an_optimizer_is_recorded_without_steps(native: Framework, tmp_path: Path) -> None:
    recording = native.record_script(tmp_path, 5, {})
    native.ones(2, 2) @ native.ones(2, 2)
    assert recording.finish().files == 1
    assert recording.finish().files == 1
    trace = load(tmp_path)
    assert trace.rows("op_name", "matmul").any()
    assert steps_of(trace) == []
    assert "no-steps" in {finding.code for finding in trace.quality}


def test_the_training_of_the_demo(native: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records complete steps with all phases, and times the others. In Paddle, all operators have a canonical name.
    The fix applies to its text."""
    text = native.demo.script.read_text(encoding="utf-8")
    assert [text.count(fault) for fault in native.demo.fix] == [1] * len(native.demo.fix)
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "run")])
    runpy.run_path(str(script), run_name="__main__")
    trace = load(tmp_path / "run")
    assert steps_of(trace) == list(range(66, 130))
    assert {"forward", "backward", "optimizer"} <= set(trace.codes("phase").values)
    assert trace.timed_steps.unprofiled_ns
    if native.name == "paddle":
        operators = trace.to_pandas().query("kind == 'operator'")
        assert set(operators[operators["op_name"].isna()]["name"]) == set()
        assert "partial-step" not in {finding.code for finding in trace.quality}


CRASH = """
import sys, {framework} as native
from perfkit_{framework}.record import {recording}
recording = {recording}(sys.argv[1], steps=(0, 9))
recording.begin(0)
for step in range(3):
    native.ones([4]).sum()
    recording.step_ended()
raise SystemExit(7)
"""


def test_a_callback_of_a_script_that_ends_early_keeps_its_recording(
    native: Framework, run_script: Run, tmp_path: Path
) -> None:
    script = CRASH.format(framework=native.name, recording=native.CallbackRecording.__name__)
    code, told = run_script(script, tmp_path)
    assert code == 7, told
    assert "Error" not in told
    assert steps_of(load(tmp_path)) == [0, 1, 2]


def updates(native: Framework, count: int, optimizers: int = 1) -> None:
    """Update the same parameters with several optimizers. The first one is of a class of the user."""
    model, base = native.module.nn.Linear(4, 4), native.optimizers.SGD
    methods = {"step": lambda optimizer: base.step(optimizer)} if native.name == "paddle" else {}
    own = type("Own", (base,), methods)  # torch's hooks are called for each of two such methods
    chosen = [native.optimizer(own, model), *(native.optimizer("Adam", model) for _ in range(optimizers - 1))]
    for _ in range(count):
        for optimizer in chosen:
            loss = model(native.ones(3, 4)).sum()
            if native.name == "paddle" and optimizer is not chosen[0]:
                optimizer.minimize(loss)
                continue
            loss.backward()
            optimizer.step()
            native.clear_gradients(optimizer)


def test_a_step_lies_between_two_updates_of_the_first_optimizer(native: Framework, tmp_path: Path) -> None:
    """Five updates give four complete steps. Afterwards, no method is wrapped."""
    base = native.optimizers.Optimizer
    before = base.step, base.__init__
    recording = native.record_script(tmp_path, None, {"memory": True})
    updates(native, 5, optimizers=2)
    assert recording.finish().files == 1
    trace = load(tmp_path)
    assert steps_of(trace) == [1, 2, 3, 4]
    assert "partial-step" not in {finding.code for finding in trace.quality}
    assert trace.rows("kind", "memory").any()
    assert (base.step, base.__init__) == before


@pytest.mark.parametrize("steps", [None, 1])
def test_a_profiler_of_the_script_is_not_disturbed(native: Framework, tmp_path: Path, steps: int | None) -> None:
    """The recording ends before the script's profiler starts, and its events are kept. Afterwards perfkit blocks no
    profiler."""
    recording = native.record_script(tmp_path / "run", steps, {})
    updates(native, 3)
    with native.profiler(on_trace_ready=native.trace_handler(tmp_path / "own")), native.label("own work"):
        updates(native, 4)
    own = load(tmp_path / "own")
    assert own.rows("name", "own work").sum() == 1
    assert steps_of(own) == [0]
    if steps is None:
        with pytest.raises(CaptureError, match="recording ended when the script started its own profiler"):
            recording.finish()
    else:
        assert recording.finish().files == 1
    assert steps_of(load(tmp_path / "run")) == [1, 2][:steps]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("updated", [0, 2])
def test_a_forked_child_leaves_the_recording_to_its_parent(native: Framework, tmp_path: Path, updated: int) -> None:
    """It is recorded itself if it makes steps. A worker of a data loader makes none, and writes nothing."""
    recording = native.record_script(tmp_path / "run", None, {"job": "one"})
    updates(native, updated)
    codes = []
    for count in (0, 3):
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                native.ones(2, 2).sum()
                updates(native, count)
                result = recording.finish()
                code = 10 * result.files + result.steps
            os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert codes == [0, 12]
    with native.label("of the parent"):
        updates(native, 3)
    recording.finish(alone=False)
    assert [steps_of(load(file)) for file in sorted((tmp_path / "run").glob("*.parquet"))].count([1, 2]) >= 1
    assert not list((tmp_path / "run").glob("*.pending"))


def test_steps_may_end_in_other_threads(native: Framework, tmp_path: Path) -> None:
    """The training goes on in a new thread for each epoch."""
    model = native.module.nn.Linear(4, 4)
    recording = native.record_script(tmp_path, None, {})
    optimizer = native.optimizer("Adam", model)

    def epoch() -> None:
        for _ in range(2):
            model(native.ones(3, 4)).sum().backward()
            optimizer.step()

    for _ in range(3):
        thread = threading.Thread(target=epoch)
        thread.start()
        thread.join()
    result = recording.finish()
    trace = load(tmp_path)
    assert (result.steps, steps_of(trace)) == (5, [1, 2, 3, 4, 5])
    assert {*range(1, 6)} <= set(trace.ints("step")[trace.operators].tolist())


UNSUPPORTED = {
    "torch": ("moods", "torch cannot record moods; leave --moods out; torch can record shapes, memory, stacks, flops"),
    "paddle": ("stacks", "paddle cannot record stacks; leave --stacks out; paddle can record shapes, memory"),
}


def test_unsupported_options_are_refused(native: Framework, tmp_path: Path) -> None:
    """No profiler is left running."""
    option, message = UNSUPPORTED[native.name]
    with pytest.raises(UsageError) as caught:
        native.record_script(tmp_path, None, {"shapes": True, option: True})
    assert str(caught.value).startswith(message)
    assert native.name == "torch" or "perfkit.paddle.annotate(model)" in str(caught.value)
    assert native.record_script(tmp_path, None, {}).finish().files == 1


def test_other_options_are_not_recorded(native: Framework, tmp_path: Path) -> None:
    recording = native.record_script(tmp_path, None, {"shapes": False, "memory": False})
    updates(native, 2)
    recording.finish()
    events = load(tmp_path).to_pandas()
    assert events[["shapes", "flops", "stack"]].isna().all(axis=None)
    assert not events["kind"].isin(["memory", "python"]).any()


def perfkit_record(run_script: Run, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run ``perfkit record -o run`` in a folder. Return the exit code and stderr."""
    script = "import os, sys\nfrom perfkit_core.cli.main import main\nos.chdir(sys.argv[1])\n"
    script += "sys.stdout, sys.stderr = (open(number, 'w', closefd=False) for number in (1, 2))\n"  # of this process
    return run_script(script + f"sys.exit(main({['record', '-o', 'run', *arguments]}))", folder)


TRAINING = """
import sys, {framework} as native
assert __name__ == "__main__"
net = native.nn.Linear(4, 2)
optimizer = {optimizer}
for _ in range(int(sys.argv[1])):
    net(native.ones((3, 4))).sum().backward()
    optimizer.step()
sys.exit(int(sys.argv[2]))
"""
OPTIMIZERS = {
    "torch": "native.optim.Adam(net.parameters())",
    "paddle": "native.optimizer.Adam(0.1, parameters=net.parameters())",
}


def test_from_the_command_line(native: Framework, run_script: Run, tmp_path: Path) -> None:
    """The script receives its arguments, its exit code is returned, and the recording is kept. A linear layer has 4
    inputs, 2 outputs and 3 samples: the requested options record its shapes, its 2·3·4·2 FLOPs, the bytes of its output
    and the stack."""
    script = TRAINING.format(framework=native.name, optimizer=OPTIMIZERS[native.name])
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    options = ["--shapes", "--memory", *(["--stacks", "--flops"] if native.name == "torch" else [])]
    code, told = perfkit_record(run_script, tmp_path, "--steps", "3", *options, "train.py", "6", "7")
    assert code == 7, told
    trace = load(tmp_path / "run")
    assert steps_of(trace) == [1, 2, 3]
    assert (trace.ints("bytes")[trace.rows("kind", "memory")] == 3 * 2 * 4).any()
    if native.name == "paddle":
        assert trace.meta.options == {"record_shapes": True, "profile_memory": True, "with_flops": False}
        return
    events = trace.to_pandas()
    linear = events[events["name"] == "aten::addmm"]
    assert (linear["flops"] == 2 * 3 * 4 * 2).all()
    assert linear["shapes"].str.startswith("[[2],[3,4],[4,2]").all()
    assert len(linear) >= 3
    assert events[events["kind"] == "python"]["name"].astype("string").str.contains("train.py", regex=False).any()


SET_AT_THE_TOP = {
    "torch": (
        {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "native.get_num_threads()",
        "1",
    ),
    "paddle": (
        {"FLAGS_enable_pir_api": "0", "FLAGS_allocator_strategy": "naive_best_fit", "CUDA_VISIBLE_DEVICES": ""},
        "native.framework.use_pir_api(), *native.get_flags(['FLAGS_allocator_strategy']).values()",
        "False naive_best_fit",
    ),
}


def test_variables_that_a_script_sets_before_its_imports_hold(native: Framework, tmp_path: Path) -> None:
    """The framework, and numpy, read theirs when they are imported. A process of its own has imported neither."""
    variables, asked, answer = SET_AT_THE_TOP[native.name]
    text = f"import os, sys\nprint({{'numpy', '{native.name}'}} & {{*sys.modules}})\nos.environ.update({variables})\n"
    text += f"import {native.name} as native\nprint({asked})\n"
    (tmp_path / "train.py").write_text(f"{text}print({variables}.items() <= os.environ.items())\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    command = [sys.executable, "-m", "perfkit", "record", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"set()\n{answer}\nTrue\n"), done.stderr


def test_a_module_whose_steps_are_calls_in_another_module(native: Framework, run_script: Run, tmp_path: Path) -> None:
    """``record -m`` runs a module as Python does, and wraps the function when its module is imported."""
    (tmp_path / "package").mkdir()
    work = (
        f"import {native.name} as native\nclass Trainer:\n    @staticmethod\n    def step(): native.ones([3]).sum()\n"
    )
    (tmp_path / "package" / "work.py").write_text(work, encoding="utf-8")
    main = "import sys\nfrom package import work\nfor _ in range(4): work.Trainer.step()\n"
    main += "print('ran', __package__, sys.argv[1:], file=sys.stderr)"
    (tmp_path / "package" / "main.py").write_text(main, encoding="utf-8")
    step_on = ["--step-on", "package.work:Trainer.step"]
    code, told = perfkit_record(run_script, tmp_path, *step_on, "-m", "package.main", "-x")
    assert code == 0, told
    assert "ran package ['-x']\n" in told
    assert steps_of(load(tmp_path / "run")) == [1, 2, 3]


def test_backward_passes_end_steps_if_the_script_has_no_optimizer(
    native: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass ends the start of the script, and the next begins a step."""
    monkeypatch.setattr(packages, "instances", lambda cls: 0)  # the optimizers of other tests still exist
    model = native.module.nn.Linear(4, 4)
    recording = native.record_script(tmp_path, None, {})
    for _ in range(5):
        model(native.ones(3, 4)).sum().backward()
    result = recording.finish()
    assert (result.files, result.steps, result.cut) == (1, 3, None)
    assert steps_of(load(tmp_path)) == [2, 3, 4]


def test_the_start_of_the_script_is_no_part_of_the_steps(native: Framework, tmp_path: Path) -> None:
    recording = native.record_script(tmp_path, 2, {})
    with native.label("start"):
        native.ones(2, 2)
    updates(native, 4)
    result = recording.finish()
    assert (result.files, result.steps) == (1, 2)
    trace = load(tmp_path)
    assert not trace.rows("name", "start").any()
    assert result.timed is not None
    assert [step.number for step in result.timed.steps if step.recorded] == [2]  # the first contains the start


def test_other_processes_with_steps_replace_the_start_of_the_script(native: Framework, tmp_path: Path) -> None:
    recording = native.record_script(tmp_path, 2, {})
    native.ones(2, 2)
    assert recording.finish(alone=False).files == 0
    child = native.record_script(tmp_path, 2, {"child": True})
    assert child.finish().files == 0
    child = native.record_script(tmp_path, 2, {"child": True})
    updates(native, 3)
    assert child.finish().files == 1
    assert steps_of(load(tmp_path)) == [1, 2]
