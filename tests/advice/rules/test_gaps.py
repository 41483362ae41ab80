"""Rule 20: step time in which no operator runs, its place in the code, and the saving. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.place import Places
from perfkit_core.advice.rules.host_gap import find as host_gaps
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, found, kernel, op, steps
from tests.support.events import host, trace
from tests.support.frameworks import FRAMEWORKS
from tests.support.rule_cases import Cases, check_rule

NAMES = {"torch": ("aten::mm", "aten::add"), "paddle": ("matmul dygraph", "add dygraph")}
MS = 1000


def with_gap(dur: int, framework: str = "torch", step: int = 10 * MS) -> Rows:
    """Return two operators that fill a step except for a gap of ``dur`` µs between them."""
    first, second = NAMES[framework]
    return [op(first, 0, 4 * MS), op(second, 4 * MS + dur, step - 4 * MS - dur)]


def on_device(rows: Rows) -> Rows:
    """Return the rows and a short kernel, so that the training uses a device."""
    return [*rows, call("cudaLaunchKernel", 1, 1, 1), kernel("fill", 3, 1, 1)]


def frame(name: str, start: int, dur: int) -> dict[str, Any]:
    return op(name, start, dur, kind="python")


def test_long_gaps() -> None:
    """Without a device, and without a name of the work in the gap, no saving is predicted: the work takes as long on
    another thread. If a device works on until 9.2 ms, nothing is saved."""

    def cases(framework: str) -> Cases:
        def case(*more: dict[str, Any], gap: int = 2 * MS, device: bool = False, count: int = 3) -> Trace:
            rows = with_gap(gap, framework)
            rows = [*(on_device(rows) if device else rows), *more]
            return steps(rows, 10 * MS, framework=framework, count=count)

        working = [call("cudaLaunchKernel", 100, 10, 1), kernel("gemm", 200, 9 * MS, 1)]
        working += [call("cudaDeviceSynchronize", 6500, 2705, kind="sync")]
        return {
            "a gap of 2 of 10 ms": case(),
            "500 of 10,000 µs": case(gap=500),
            "501 of 10,000 µs": case(gap=501),
            "work of unknown name beside a device": case(device=True),
            "work with a name beside a device": case(frame("train.py(7): augment", 4 * MS, 2 * MS), device=True),
            "the device works on": case(*working, frame("train.py(7): augment", 4 * MS, 2 * MS)),
            "one step": case(count=1),
        }

    check_rule("host-gap", cases)


def test_what_runs_in_a_gap() -> None:
    rows = with_gap(2 * MS)
    ran = [frame("train.py(30): <module>", 0, 10 * MS), frame("fw.py(1): start", 1, 1)]
    frames = [frame("train.py(7): log", 4 * MS, 2 * MS), frame("gc.py(1): collect", 4500, 1200)]
    cases = {
        "the functions of the gap have self times of 1.2 and 0.8 ms": [*ran, *frames],
        "line 30 started the profiler": ran,
        "another thread works": [op("backward", 4 * MS, 2 * MS) | {"tid": 2}],
        "a loader works": [op("next", 4 * MS, 2 * MS, kind="dataloader")],
    }
    recordings = {title: steps([*rows, *more], 10 * MS) for title, more in cases.items()}
    check_rule("host-gap", recordings, "-causes")


def test_short_gaps() -> None:
    """Short gaps count together with a device. If the code between the operators is known, 0%, 40% or 90% of the gap
    time remain. Gaps up to 19 µs are the overhead of calling an operator."""

    def cases(framework: str) -> Cases:
        add = NAMES[framework][1]

        def case(count: int, every: int, dur: int, *more: dict[str, Any], step: int = 10 * MS) -> Trace:
            rows = on_device([op(add, every * i, dur) for i in range(count)])
            return steps([*rows, *more], step, framework=framework)

        nine = case(9, 1111, 911)
        apart = on_device([op(add, 3 * MS + 700 * i, 600) for i in range(10)])
        apart = [row | {"start_ns": row["start_ns"] + 3 * MS * 1000} if "correlation" in row else row for row in apart]
        without_device = [op(add, 100 * i, 60) for i in range(100)]
        return {
            "100 gaps of 40 µs": case(100, 100, 60),
            "100 gaps of 40 µs in a known function": case(100, 100, 60, frame("train.py(7): forward", 0, 10 * MS)),
            "100 gaps without a device": steps(without_device, 10 * MS, framework=framework),
            "250 gaps of 19 µs": case(250, 40, 21),
            "250 gaps of 20 µs": case(250, 40, 20),
            "nine gaps of 200 µs": nine,
            "nine gaps of 200 µs, with nine as the threshold": (nine, {"host_gaps": 9}),
            "ten gaps of 200 µs": case(10, 1000, 800),
            "four gaps that exceed the threshold alone": case(4, 500, 40, step=2 * MS),
            "four gaps of 2.3% each": case(4, 500, 40, op(add, 2 * MS, 18 * MS), step=20 * MS),
            "ten gaps of 50 µs": case(10, 1000, 950),
            "ten gaps of 51 µs": case(10, 1000, 949),
            "a gap of 3 ms, and gaps of 100 µs, the last of which joins the long gap": (
                steps(apart, 10 * MS, framework=framework),
                {"host_gaps": 9},
            ),
        }

    check_rule("host-gap", cases, "-short")


@BOTH
def test_compiled_code_gets_another_remedy(framework: str) -> None:
    name = {"torch": "## Call CompiledFxGraph f ##", "paddle": "run_program dygraph"}[framework]
    rows = on_device([op(name, 100 * i, 60) for i in range(100)])
    recording = steps(rows, 10 * MS, framework=framework).with_meta(framework=framework)
    (advice,) = advise(recording, rules=["host-gap"]).advice
    assert advice.remedy.code == ""
    assert str(advice.remedy.note).startswith("The code is already compiled")
    rows = on_device([op(NAMES[framework][1], 100 * i, 60) for i in range(100)])
    plain = steps(rows, 10 * MS, framework=framework)
    (advice,) = advise(plain.with_meta(framework=framework), rules=["host-gap"]).advice
    assert {"torch": "torch.compile", "paddle": "to_static"}[framework] in advice.remedy.code


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_gap_in_one_step_is_advice_on_that_step(count: int) -> None:
    """It is not typical, so no saving is predicted. With five steps, outlier-steps reports it."""
    rows = [host(f"step {i}", "step", i * 10_000_000, 10_000_000, step=i) for i in range(count)]
    rows += [*with_gap(2 * MS), *(op("aten::mm", i * 10 * MS, 10 * MS) for i in range(1, count))]
    recording = trace(rows)
    advices = advise(recording.with_meta(framework="torch"), rules=["host-gap"]).advice
    if count == 5:
        assert advices == ()
        return
    (one,) = advices
    assert str(one.candidate.what) == "Once, in step 0, no operator runs for 2.00 ms."
    assert (one.severity, one.steps, one.candidate.ceiling_ns) == ("note", (0, 0), None)
    assert one.remedy.code == ""
    assert str(one.remedy.note).startswith("If this step writes a checkpoint or a log")


@BOTH
def test_an_unknown_cause_has_no_code_as_remedy(framework: str) -> None:
    """Frames in the gaps name the cause."""
    frame = op("train.py(7): log", 4 * MS, 2 * MS, kind="python")
    for more, has_code in (([], False), ([frame], True)):
        recording = steps([*with_gap(2 * MS, framework), *more], 10 * MS, framework=framework)
        (one,) = advise(recording.with_meta(framework=framework), rules=["host-gap"]).advice
        assert bool(one.remedy.code) == has_code
        assert ("was not recorded" in str(one.remedy.note)) != has_code


def test_the_place_contains_most_gap_time() -> None:
    """One function contains 1.8 of the 2 ms without operators. Its caller takes the complete step."""
    python = [("train.py(7): train", 0, 10 * MS), ("fw.py(1): start", 1, 1), ("train.py(9): wait", 4 * MS, 1800)]
    frames = [op(name, start, dur, kind="python") for name, start, dur in python]
    recording = steps([*with_gap(2 * MS), *frames], 10 * MS)
    (one,) = found(host_gaps, recording)
    assert Places(recording).of(one.rows) == "train.py (train)"
    assert Places(recording).of(one.rows, one.rows_ns) == "train.py:9 (def wait)"


@BOTH
def test_a_pause_in_a_recorded_training(framework: str, tmp_path: Path) -> None:
    native = FRAMEWORKS[framework]()
    schedule = native.schedule(wait=0, warmup=1, active=3, repeat=1)
    with native.profiler(schedule, on_trace_ready=native.trace_handler(tmp_path)) as profiler:
        for _ in range(4):
            native.ones(64, 64) @ native.ones(64, 64)
            time.sleep(0.05)
            native.ones(8)
            profiler.step()
    (one,) = found(host_gaps, load(tmp_path))
    assert one.evidence["longest_ns"] >= 50_000_000
    assert one.method == "none"
