"""Whole reports on hand-made runs are the golden ones: of two runs, of several runs, and since an earlier pair; and the
first sentences of comparisons that need a special one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from perfkit_core.compare.against import against_report
from perfkit_core.compare.gate.conditions import parsed
from perfkit_core.compare.multi_run import Run, multi_run_report
from perfkit_core.compare.pair import CompareOptions
from perfkit_core.compare.report import comparison_report
from perfkit_core.output.renderers import markdown, text
from perfkit_core.output.renderers.html import page
from perfkit_core.trace.model.report_data import Report
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.golden import check_golden
from tests.support.rendered import rendered
from tests.support.side_facts import with_clock
from tests.support.small_trace import small_trace
from tests.support.stepped_trace import MS, stepped_trace

QUIET = CompareOptions(noise=0.01)
STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]
NAMES = {"mm": "matmul", "act": "relu", "cp": "copy", "gemm": "matmul"}


def on_device(load: int, gemm: int, activations: int, steps: int = 7) -> Trace:
    """Return steps that load data, multiply on the device, and activate. The first step is 500 µs longer."""
    rows, now = [], 0
    for number in range(steps):
        start, first = now, 500 * (number == 0)
        rows.append(host("load", "dataloader", now, load, phase="dataloader"))
        rows.append(host("mm", "operator", now + load, 40, phase="forward", module="fc", shapes="[[8, 4], [4, 2]]"))
        rows.append(host("launch", "runtime", now + load + 10, 10, correlation=100 * number))
        rows.append(device("sgemm", "kernel", now + load + 30, gemm, 100 * number))
        now += load + 40
        for count in range(1, activations + 1):
            rows.append(host("act", "operator", now, 30, phase="forward", module="act"))
            rows.append(host("launch", "runtime", now + 5, 5, correlation=100 * number + count))
            rows.append(device("relu_kernel", "kernel", now + gemm, 10, 100 * number + count))
            now += 30
        now += gemm + 20 + first + number % 3
        rows.append(host(f"step {number}", "step", start, now - start, step=number))
    micro = [{**row, "start_ns": row["start_ns"] * 1000, "dur_ns": row["dur_ns"] * 1000} for row in rows]
    return trace(micro, rank=0, names=NAMES.get)


def ranks(*steps_ns: int) -> Trace:
    """Return one step on each rank."""
    return concat_traces(
        [
            trace([host("step 0", "step", 0, dur, step=0), host("mm", "operator", 0, 5)], rank=rank, names=NAMES.get)
            for rank, dur in enumerate(steps_ns)
        ]
    )


def three() -> list[Run]:
    """Return three runs. The step of the second is longer, and its operator takes 2 ms instead of 1 ms."""
    longer = [ms * 1.5 for ms in STEADY]
    return [
        Run("a", (stepped_trace(STEADY, 1.0),)),
        Run("b", (stepped_trace(longer, 2.0),)),
        Run("c", (stepped_trace(STEADY, 1.0), stepped_trace(STEADY, 1.0))),
    ]


@cache
def two_runs() -> Report:
    conditions = (parsed("step_time > 3%"), parsed("operators.calls[act] > +0"))
    options = CompareOptions(noise=0.01, conditions=conditions, per="sample", amounts=(8, 16))
    return comparison_report(on_device(20, 50, 1), on_device(50, 60, 2), options, ("main", "change"))


def without_steps() -> Report:
    whole = trace([host("mm", "operator", 0, 5, module="fc"), host("act", "operator", 5, 5, module="fc")])
    return comparison_report(whole, on_device(20, 50, 1, steps=1))


@cache
def several_runs() -> Report:
    options = CompareOptions(noise=0.01, conditions=(parsed("step_time > 3%"),), per="sample", amounts=(20, 25, 20))
    return multi_run_report(three(), options)


@cache
def a_run_without_steps() -> Report:
    return multi_run_report([*three()[:2], Run("none", (small_trace().slice(0, 0),))], QUIET)


@cache
def since_an_earlier_pair() -> Report:
    """An operator takes 11 ms instead of 1 ms, and the step becomes 10 ms longer."""
    base = stepped_trace([ms * 3 for ms in STEADY])
    now, before = stepped_trace([ms * 1.5 for ms in STEADY], 11.0), stepped_trace(STEADY)
    return against_report(([base], [now]), ([base], [before]), QUIET, ("theirs", "ours"))


@pytest.mark.parametrize("report", [two_runs, without_steps, several_runs, a_run_without_steps, since_an_earlier_pair])
def test_reports_are_the_golden_ones(report) -> None:
    check_golden(f"compare/{report.__name__}.txt", text.render(report()))


def test_sums_of_a_report_for_programs() -> None:
    """The causes and the attribution sum to the difference of the step times."""
    data = two_runs().data
    difference = data["step_time"]["difference"]
    assert difference == data["step_time"]["other"] - data["step_time"]["base"] == 70_000
    assert sum(row["difference_ns"] for row in data["attribution"]) == difference
    new = since_an_earlier_pair().data["new"]
    assert sum(row["difference_ns"] for row in new["causes"]) == new["step_time"]["difference_ns"] == 10 * MS
    assert [run["gate"][0]["result"] for run in several_runs().data["runs"]] == ["passed", "failed", "passed"]


def test_parts_of_several_runs_are_those_between_two_runs() -> None:
    """An outlying step raises the mean to 40 ms, but the median is 20 ms. The parts sum to the median."""
    one, two = stepped_trace([20, 20.2, 99.8, 20], 1.0), stepped_trace([30, 30, 30, 30], 2.0)
    of_three, of_two = (
        next(section.table for section in report.sections if section.name == "step_parts")
        for report in (
            multi_run_report([Run("a", (one,)), Run("b", (two,)), Run("c", (two,))], QUIET),
            comparison_report(one, two, QUIET),
        )
    )
    parts = of_three.set_index("name")
    assert parts.sum().tolist() == [20_100_000, 30_000_000, 30_000_000]
    assert parts["a_ns"].to_dict() == {
        "compute": 1_000_000, "no_operator": 19_000_000, "(median minus mean of the middle steps)": 100_000,
    }  # fmt: skip
    assert of_two.set_index("category")["base_ns"].to_dict() == parts["a_ns"].to_dict()


def test_legends_of_charts_are_only_on_the_page() -> None:
    report = several_runs()
    legend = "Each point is a step, and the vertical line is the median of the run"
    assert legend in page.render(report)
    assert legend not in text.render(report) + markdown.render(report)


def timed(recorded_ms: int, usual_ms: int) -> Trace:
    """Return a run whose steps take ``usual_ms`` without the profiler."""
    off = tuple(TimedStep(number, False, usual_ms * MS) for number in range(4, 8))
    return with_clock(stepped_trace([recorded_ms] * 3), {"0": TimedSteps((*off, TimedStep(8, True, recorded_ms * MS)))})


def disturbed(waited_ms: int) -> Trace:
    """Return a run in which one thread waits for the only processor for ``waited_ms`` of 20 ms."""
    step = TimedStep(8, True, 20 * MS, waited_ns=waited_ms * MS, process_ns=(20 - waited_ms) * MS)
    return with_clock(stepped_trace([20] * 3), {"0": TimedSteps((step,), cpus=1)})


def pairs() -> Iterator[tuple[str, list[Trace], list[Trace]]]:
    """Return a title, and the captures of base and other."""
    yield "shorter without the profiler, too", [timed(20, 15)], [timed(19, 10)]
    yield "longer with the profiler, shorter without", [timed(20, 15)], [timed(21, 10)]
    yield "steps without the profiler in base only", [timed(20, 15)], [stepped_trace([21] * 3)]
    yield "other processes take 30% of one capture", [disturbed(0), disturbed(6)], [disturbed(1)]
    yield "other processes take 5%, which is not notable", [disturbed(0)], [disturbed(1)]
    rows = [host("step 0", "step", 0, 100, step=0), host("matmul", "operator", 0, 40)]
    added = [("softmax", 2), ("embedding", 1), ("conv", 4), ("dropout", 3)]
    more = [host(name, "operator", 40 + 5 * at, dur) for at, (name, dur) in enumerate(added)]
    yield "four operators more", [trace(rows, names=str)], [trace([*rows, *more], names=str)]
    one, copied = (stepped_trace([20, 20, 21], source=source) for source in ("runs/a", "copies/a"))
    yield "a copy", [one], [copied]
    yield "itself", [one], [one]
    yield "equal steps of another operator", [one], [stepped_trace([20, 20, 21], name="fw::add")]
    yield "another operator, 1 ms longer", [stepped_trace([20])], [stepped_trace([30], 2.0, name="fw::other")]
    rows = [host("step 0", "step", 0, 100, step=0), host("mm", "operator", 0, 10)]
    late, soon = ([trace([*rows, device("gemm", "kernel", at, 60)], names=NAMES.get)] for at in (200, 20))
    yield "a kernel without a launch, after the step in base", late, soon
    yield "three ranks", [ranks(10, 20, 60)], [ranks(10, 20, 60)]


def test_first_sentences_are_the_golden_ones() -> None:
    lines = []
    for title, base, other in pairs():
        report = comparison_report(base, other)
        lines += [f"# {title}", *rendered(report.headline), *rendered(report.warnings), ""]
    check_golden("compare/headlines.txt", "\n".join(lines))


def test_a_copy_among_several_runs_is_named() -> None:
    one, copied = (stepped_trace([20, 20, 21], source=source) for source in ("runs/a", "copies/a"))
    runs = [Run("a", (one,)), Run("b", (stepped_trace([20, 20, 21], name="fw::add"),)), Run("c", (copied,))]
    told = "c: Base and other hold the same recording: runs/a, copies/a."
    assert rendered(multi_run_report(runs, CompareOptions()).headline)[-1] == told


def test_times_of_several_ranks() -> None:
    """Steps are averages over the ranks; the statistics are of the steps of all ranks, and each step is one sample."""
    sections = {section.name: section for section in comparison_report(ranks(10, 20, 60), ranks(10, 20, 60)).sections}
    assert sections["steps"].table[["dur_ns", "median_ns"]].to_numpy().tolist() == [[30, 20]] * 2
    assert sections["step_time"].table["base_ns"].tolist() == [20, 30, 10, 60]
    notes = [sections[name].note for name in ("steps", "step_time", "statistics")]
    assert notes[0].startswith("Duration: step time, averaged over the ranks. Median: ")
    assert notes[1] == "The statistics include the steps of all ranks."
    assert notes[2].endswith(" A step on several ranks is one sample.")
