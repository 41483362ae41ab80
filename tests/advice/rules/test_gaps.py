"""Rule 20: step time in which no operator runs, its place in the code, and the saving. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.place import Places
from perfkit_core.advice.rules import host_code
from perfkit_core.advice.rules.host_gap import find as host_gaps
from perfkit_core.base.language.messages import render
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.timed_steps import WORK_BETWEEN, WorkBetween
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, US, Rows, call, found, kernel, op, steps
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


@BOTH
def test_a_gap_has_no_code_as_remedy(framework: str) -> None:
    """It may be any work. Frames in the gaps name the cause."""
    frame = op("train.py(7): log", 4 * MS, 2 * MS, kind="python")
    for more, known in (([], False), ([frame], True)):
        recording = steps([*with_gap(2 * MS, framework), *more], 10 * MS, framework=framework)
        (one,) = advise(recording.with_meta(framework=framework), rules=["host-gap"]).advice
        assert not one.remedy.code
        assert ("was not recorded" in str(one.remedy.note)) != known


def test_the_title_names_the_function_that_fills_the_gaps() -> None:
    """It takes 1.6 of the 2 ms without operators, in a step of 10 ms. A function of 0.9 ms is not named."""
    for dur, title in ((1600, "train.py: log takes 16% of the step outside of operators"), (900, None)):
        work = op("/home/train.py(7): log", 4 * MS, dur, kind="python")
        (candidate,) = found(host_gaps, steps([*with_gap(2 * MS), work], 10 * MS))
        assert (candidate.title and str(candidate.title)) == title


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


@pytest.mark.parametrize(("launches", "advised"), [(7_000, ["prepare"]), (3_000, [])])
def test_a_range_that_launches_kernels_is_no_work_to_be_moved(launches: int, advised: list[str]) -> None:
    """The device idles from 1 ms until the launch. The range ends at 6 ms, after or before it."""
    rows = [
        call("launch", 0, 10, 1), kernel("k", 10, 990, 1), op("prepare", 20, 5_980, kind="annotation"),
        call("launch", launches, 10, 2), kernel("k", launches + 20, 900, 2),
    ]  # fmt: skip
    assert [item.evidence["function"] for item in found(host_code.find, steps(rows, 8_000))] == advised


def test_work_between_the_steps_is_a_share_of_the_whole_training() -> None:
    """A step takes 100 µs, and an evaluation 900 µs after every fourth step: 900 of 1300 µs, 225 µs for each step."""
    work = WorkBetween(900 / 1300, "evaluate", "train.py:20")

    def recording(*works: WorkBetween) -> Trace:
        notes = (Finding(WORK_BETWEEN, work.text(), note=True) for work in works)
        return steps([op("aten::add", 0, 50)]).with_findings(*notes)

    (advice,) = advise(recording(work), rules=["work-between-steps"]).advice
    p = advice.prediction
    assert (p.saving_ns, p.base_ns, p.ceiling_ns) == (None, 325 * US, 225 * US)
    assert (advice.place, advice.candidate.evidence["between_ratio"]) == ("train.py:20", work.share)
    assert "69.2% of the time lies between the training steps: most of it in evaluate" in render(advice.candidate.what)
    each = msgspec.structs.replace(work, each=True)
    (advice,) = advise(recording(each), rules=["work-between-steps"]).advice
    assert (advice.prediction.base_ns, advice.prediction.ceiling_ns) == (100 * US, round(100 * US * work.share))
    assert advise(recording(), rules=["work-between-steps"]).advice == ()
