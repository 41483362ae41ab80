"""Rule 20: step time in which no operator runs, its place in the code, and the saving."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.place import Places
from perfkit_core.advice.rules.host_gap import find as host_gaps
from perfkit_core.readers.load import load
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps, why_not
from tests.support.events import host, trace

NAMES = {"torch": ("aten::mm", "aten::add"), "paddle": ("matmul dygraph", "add dygraph")}
MS = 1000


def with_gap(dur: int, framework: str = "torch", step: int = 10 * MS) -> Rows:
    """Return two operators that fill a step except for a gap of ``dur`` µs between them."""
    first, second = NAMES[framework]
    return [op(first, 0, 4 * MS), op(second, 4 * MS + dur, step - 4 * MS - dur)]


def on_device(rows: Rows) -> Rows:
    """Return the rows and a short kernel, so that the training uses a device."""
    return [*rows, call("cudaLaunchKernel", 1, 1, 1), kernel("fill", 3, 1, 1)]


@BOTH
def test_a_gap_in_every_step(framework: str) -> None:
    recording = steps(with_gap(2 * MS, framework), 10 * MS, framework=framework)
    (one,) = found(host_gaps, recording)
    assert one.evidence["gap_ns"] == one.evidence["longest_ns"] == one.ceiling_ns == 2_000_000
    assert one.evidence["gap_ratio"] == pytest.approx(0.2)
    assert str(one.evidence["longest"]) == f"after {NAMES[framework][0]} and before {NAMES[framework][1]}"
    assert one.method == "none"  # without a device, the work takes as long on another thread


@BOTH
def test_named_work_may_run_while_the_device_works(framework: str) -> None:
    frame = op("train.py(7): augment", 4 * MS, 2 * MS, kind="python")
    recording = steps([*on_device(with_gap(2 * MS, framework)), frame], 10 * MS, framework=framework)
    (one,) = found(host_gaps, recording)
    assert predicted(recording, one) == (8_000_000, 9_000_000, 10_000_000)
    (unnamed,) = found(host_gaps, steps(on_device(with_gap(2 * MS, framework)), 10 * MS, framework=framework))
    assert unnamed.method == "none"


@BOTH
def test_a_gap_of_a_twentieth_does_not_count(framework: str) -> None:
    assert found(host_gaps, steps(with_gap(500, framework), 10 * MS, framework=framework)) == []
    assert len(found(host_gaps, steps(with_gap(501, framework), 10 * MS, framework=framework))) == 1


@BOTH
def test_many_short_gaps_count_together(framework: str) -> None:
    """Gaps of 40 µs take 40 % of 10 ms. If the code between the operators is known, the transform leaves 0 %, 40 % or
    90 % of the gap time."""
    add = NAMES[framework][1]
    rows = [op(add, 100 * i, 60) for i in range(100)]
    assert found(host_gaps, steps(rows, 10 * MS, framework=framework)) == []  # only with a device
    (one,) = found(host_gaps, steps(on_device(rows), 10 * MS, framework=framework))
    assert (one.evidence["gap_ns"], one.evidence["gaps_per_step"]) == (4_000_000, 100)
    said = "No operator runs for 4.00 ms of the 10.0 ms step, in 100 short gaps between operators (median: 40.0 µs)."
    assert str(one.what) == said
    assert (one.method, one.conflicts) == ("none", ("launch-bound",))
    frame = op("train.py(7): forward", 0, 10 * MS, kind="python")
    recording = steps([frame, *on_device(rows)], 10 * MS, framework=framework)
    (one,) = found(host_gaps, recording)
    assert str(one.what) == said + " Most of this time is in train.py: forward."
    assert predicted(recording, one) == (6_000_000, 7_600_000, 9_600_000)


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


def test_the_overhead_of_calling_an_operator_is_no_gap() -> None:
    less, more = (on_device([op("aten::add", 40 * i, dur) for i in range(250)]) for dur in (21, 20))
    assert found(host_gaps, steps(less, 10 * MS)) == []  # gaps of 19 µs
    assert len(found(host_gaps, steps(more, 10 * MS))) == 1


def test_a_few_short_gaps_do_not_count() -> None:
    """Nine gaps of 200 µs in 10 ms do not count, unless the threshold is nine. Ten gaps count."""
    nine = on_device([op("aten::add", 1111 * i, 911) for i in range(9)])
    assert found(host_gaps, steps(nine, 10 * MS)) == []
    assert len(found(host_gaps, steps(nine, 10 * MS), host_gaps=9)) == 1
    ten = on_device([op("aten::add", 1000 * i, 800) for i in range(10)])
    assert len(found(host_gaps, steps(ten, 10 * MS))) == 1


def test_a_few_short_gaps_count_if_one_alone_exceeds_the_threshold() -> None:
    """Four gaps of 460 µs count in a step of 2 ms. In a step of 20 ms, each gap is only 2.3 %, so they do not count."""
    rows = on_device([op("aten::add", 500 * i, 40) for i in range(4)])
    (one,) = found(host_gaps, steps(rows, 2 * MS))
    assert one.evidence["gap_ns"] == 4 * 460_000
    assert one.words["gaps"] == "short"
    more = [*rows, op("aten::add", 2 * MS, 18 * MS)]
    assert found(host_gaps, steps(more, 20 * MS)) == []


def test_short_gaps_of_a_twentieth_do_not_count() -> None:
    """Ten gaps of 50 µs in 10 ms do not count. Ten gaps of 51 µs count."""
    less, more = (on_device([op("aten::add", 1000 * i, dur) for i in range(10)]) for dur in (950, 949))
    assert found(host_gaps, steps(less, 10 * MS)) == []
    assert len(found(host_gaps, steps(more, 10 * MS))) == 1


def test_long_and_short_gaps_are_separate_candidates() -> None:
    """The step has a gap of 3 ms, and ten gaps of 100 µs in the other 7 ms."""
    rows = on_device([op("aten::add", 3 * MS + 700 * i, 600) for i in range(10)])
    rows = [row | {"start_ns": row["start_ns"] + 3 * MS * 1000} if "correlation" in row else row for row in rows]
    recording = steps(rows, 10 * MS)
    long, short = found(host_gaps, recording, host_gaps=9)
    # the last short gap joins the next long gap
    assert (long.evidence["gap_ns"], short.evidence["gap_ns"]) == (3_100_000, 900_000)
    assert long.words == {"gaps": "long", "cause": "unknown"}
    assert short.words == {"gaps": "short", "compiled": "no"}


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


def test_work_on_other_threads_and_loading_are_no_gap() -> None:
    beside = op("backward", 4 * MS, 2 * MS) | {"tid": 2}
    assert found(host_gaps, steps([*with_gap(2 * MS), beside], 10 * MS)) == []
    loading = op("next", 4 * MS, 2 * MS, kind="dataloader")
    assert found(host_gaps, steps([*with_gap(2 * MS), loading], 10 * MS)) == []


def test_the_place_contains_most_gap_time() -> None:
    """One function contains 1.8 of the 2 ms without operators. Its caller takes the complete step."""
    python = [("train.py(7): train", 0, 10 * MS), ("fw.py(1): start", 1, 1), ("train.py(9): wait", 4 * MS, 1800)]
    frames = [op(name, start, dur, kind="python") for name, start, dur in python]
    recording = steps([*with_gap(2 * MS), *frames], 10 * MS)
    (one,) = found(host_gaps, recording)
    assert Places(recording).of(one.rows) == "train.py (train)"
    assert Places(recording).of(one.rows, one.rows_ns) == "train.py:9 (def wait)"


def test_python_functions_of_the_gaps() -> None:
    frames = [op("train.py(7): log", 4 * MS, 2 * MS, kind="python"), op("gc.py(1): collect", 4500, 1200, kind="python")]
    ran = [op("train.py(30): <module>", 0, 10 * MS, kind="python"), op("fw.py(1): start", 1, 1, kind="python")]
    recording = steps([*with_gap(2 * MS), *ran, *frames], 10 * MS)
    (one,) = found(host_gaps, recording)
    assert one.evidence["python"] == ["gc.py(1): collect", "train.py(7): log"]  # self times of 1.2 and 0.8 ms
    (one,) = found(host_gaps, steps([*with_gap(2 * MS), *ran], 10 * MS))
    assert one.evidence["python"] == ["train.py: <module>"]  # line 30 started the profiler


def test_a_device_that_works_on_hides_the_gap() -> None:
    rows = [*with_gap(2 * MS), call("cudaLaunchKernel", 100, 10, 1), kernel("gemm", 200, 9 * MS, 1)]
    rows += [op("train.py(7): augment", 4 * MS, 2 * MS, kind="python")]
    rows += [call("cudaDeviceSynchronize", 6500, 2705, kind="sync")]
    recording = steps(rows, 10 * MS)
    (one,) = found(host_gaps, recording)
    assert predicted(recording, one)[1] == 10_000_000  # the kernel ends at 9.2 ms in both cases


def test_two_steps_are_needed() -> None:
    assert "one step" in why_not(host_gaps, steps(with_gap(2 * MS), 10 * MS, count=1))


def test_a_pause_that_torch_records(tmp_path: Path) -> None:
    import time

    import torch

    from perfkit_torch import trace_handler

    handler = trace_handler(tmp_path)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(4):
            torch.ones(64, 64) @ torch.ones(64, 64)
            time.sleep(0.05)
            torch.ones(8)
            profiler.step()
    handler.flush()
    recording = load(tmp_path)
    (one,) = found(host_gaps, recording)
    assert one.evidence["longest_ns"] >= 50_000_000
    assert one.method == "none"


def test_a_pause_that_paddle_records(tmp_path: Path) -> None:
    import time

    paddle = pytest.importorskip("paddle")
    from perfkit_paddle import trace_handler

    handler = trace_handler(tmp_path)
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], scheduler=(1, 4), on_trace_ready=handler
    )
    profiler.start()
    for _ in range(5):
        paddle.ones([64, 64]) @ paddle.ones([64, 64])
        time.sleep(0.05)
        paddle.ones([8])
        profiler.step()
    profiler.stop()
    handler.flush()
    recording = load(tmp_path)
    (one,) = found(host_gaps, recording)
    assert one.evidence["longest_ns"] >= 50_000_000
