"""``perfkit record`` and callbacks of training frameworks record unmodified loops."""

from __future__ import annotations

import gc
import runpy
import sys
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.recording.step_calls import StepCalls
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework
from tests.support.recording_scripts import run


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
        recording = native.ScriptRecording(tmp_path / name, limit, {"step_on": step_on})
        for _ in range(5):
            iterate()
        assert recording.finish() == 1
        assert steps_of(load(tmp_path / name)) == ([1, 2] if limit else [1, 2, 3, 4])
        del recording
        gc.collect()


def test_a_script_without_an_optimizer_is_recorded_without_steps(native: Framework, tmp_path: Path) -> None:
    recording = native.ScriptRecording(tmp_path, 5, {})
    native.ones(2, 2) @ native.ones(2, 2)
    assert recording.finish() == 1
    assert recording.finish() == 1
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
    assert steps_of(trace) == list(range(18, 50))
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


def test_a_callback_of_a_script_that_ends_early_keeps_its_recording(native: Framework, tmp_path: Path) -> None:
    script = CRASH.format(framework=native.name, recording=native.CallbackRecording.__name__)
    quiet = "import warnings\nwarnings.simplefilter('default')\n"  # Paddle emits warnings
    code, told = run(script, tmp_path, prelude=quiet if native.name == "paddle" else "", modules=[native.name])
    assert code == 7, told
    assert "Error" not in told
    assert steps_of(load(tmp_path)) == [0, 1, 2]
