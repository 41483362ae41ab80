"""Tests of the report on two recorded runs: its step times are those of the file, and it reports devices, outlying
steps and a verdict."""

from __future__ import annotations

import gzip
import json
import statistics
from fractions import Fraction
from pathlib import Path

import pytest

from perfkit_core.compare.multi_run import Run, multi_run_report
from perfkit_core.compare.pair import CompareOptions, pair
from perfkit_core.compare.report import comparison_report
from perfkit_core.readers.load import load
from perfkit_core.trace.model.report_data import Report
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.rendered import rendered
from tests.support.side_facts import with_clock
from tests.support.stepped_trace import MS, stepped_trace


def raw_steps(path: Path) -> list[int]:
    """Return the durations of the steps in ns, read directly from the file of torch."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file, parse_float=Fraction)["traceEvents"]
    steps = [e for e in events if str(e.get("name", "")).startswith("ProfilerStep") and e.get("ph") == "X"]
    host = [e for e in steps if "gpu" not in str(e.get("cat", ""))]
    return [int(Fraction(e["dur"]) * 1000) for e in sorted(host, key=lambda e: Fraction(e["ts"]))]


def section(report: Report, name: str) -> object:
    return next((one for one in report.sections if one.name == name), None)


def test_the_workers_pair(traces: Path) -> None:
    """The data is loaded by four workers. The medians are those of the file, and the two steps that wait for a worker
    are listed as outlying."""
    files = [traces / "torch" / "pairs" / f"resnet50-workers{n}.json.gz" for n in (0, 4)]
    sides = [raw_steps(path) for path in files]
    found = pair([load(files[0])], [load(files[1])], CompareOptions(noise=0.02))
    assert found.steps is not None
    assert [found.steps.base, found.steps.other] == [int(statistics.median(side)) for side in sides]
    assert found.steps.steps == (len(sides[0]), len(sides[1]))
    pairs = [(b > a) - (b < a) for a in sides[0] for b in sides[1]]
    assert found.steps.cliffs_delta == pytest.approx(sum(pairs) / len(pairs))
    assert found.steps.verdict == "faster"
    report = comparison_report([load(files[0])], [load(files[1])])
    assert any(sentence.startswith("Faster: the median recorded step takes 127 ms instead of 176 ms, 28.2%")
               for sentence in rendered(report.headline))  # fmt: skip
    late = section(report, "outliers").table
    assert sorted(late["dur_ns"], reverse=True) == sorted(sides[1], reverse=True)[:2]
    assert section(report, "devices") is None
    assert report.data["step_time"]["difference"] == found.steps.difference


def test_two_vendors(traces: Path) -> None:
    """Each run has one step, so the noise is unknown. The devices differ, and their peak rates are shown."""
    files = [traces / "torch" / f"{device}-vit.json.gz" for device in ("h100", "mi300x")]
    report = comparison_report(load(files[0]), load(files[1]))
    step_time = report.data["step_time"]
    assert [step_time["base"], step_time["other"]] == [raw_steps(path)[0] for path in files]
    assert (step_time["verdict"], step_time["interval"], step_time["noise"]) == ("too few steps to tell", None, None)
    assert section(report, "devices").table["matrix16_tflop_per_s"].tolist() == [989.4, 1307.4]
    assert section(report, "devices").table["memory_gb_per_s"].tolist() == [3350, 5300]
    assert (
        "Different devices: NVIDIA H100 80GB HBM3 and AMD Instinct MI300X VF. The table devices lists their peak rates."
        in rendered(report.warnings)
    )


def test_the_steps_without_the_profiler_are_compared_too() -> None:
    def run(recorded_ms: int, usual_ms: int) -> Trace:
        off = tuple(TimedStep(number, False, usual_ms * 1_000_000) for number in range(4, 8))
        on = TimedStep(8, True, recorded_ms * 1_000_000)
        return with_clock(stepped_trace([recorded_ms] * 3), {"0": TimedSteps((*off, on))})

    told = "Without the profiler, a step takes 10.0 ms instead of 15.0 ms."
    assert told in rendered(comparison_report(run(20, 15), run(19, 10)).headline)
    told = "In contrast, without the profiler and waits for a processor, a step takes 10.0 ms instead of 15.0 ms."
    assert rendered(comparison_report(run(20, 15), run(21, 10)).headline)[1] == told
    without = rendered(comparison_report(run(20, 15), stepped_trace([21] * 3)).headline)
    assert not any("profiler" in sentence for sentence in without)


def test_other_processes_are_named_after_the_verdict() -> None:
    """One thread waits for the only processor for 6 of 20 ms. Of several captures, the most disturbed one counts."""

    def run(waited_ms: int) -> Trace:
        step = TimedStep(8, True, 20 * MS, waited_ns=waited_ms * MS, process_ns=(20 - waited_ms) * MS)
        return with_clock(stepped_trace([20] * 3), {"0": TimedSteps((step,), cpus=1)})

    report = comparison_report([run(0), run(6)], [run(1)])  # 5% are not notable
    told = "Other processes took 30% (base) of the recorded step time, so the step times are uncertain."
    assert rendered(report.headline)[1] == told
    assert "processes" not in " ".join(rendered(comparison_report(run(0), run(1)).headline))


def test_operators_without_a_counterpart_are_named() -> None:
    """The three with most time are named, the longest first."""
    rows = [host("step 0", "step", 0, 100, step=0), host("matmul", "operator", 0, 40)]
    added = [("softmax", 2), ("embedding", 1), ("conv", 4), ("dropout", 3)]
    more = [host(name, "operator", 40 + 5 * at, dur) for at, (name, dur) in enumerate(added)]
    base, other = (trace(each, names=str) for each in (rows, [*rows, *more]))
    told = rendered(comparison_report(base, other).headline)
    (sentence,) = (one for one in told if "no match" in one)
    assert sentence == (
        "Of the other run, 20% of the host operator time and 10% of the wall-clock time have no match in the base "
        "(mainly conv, dropout, softmax)."
    )


def test_a_recording_on_both_sides_is_named_below_the_verdict() -> None:
    """The same recording is given twice, or as a copy. A different run with equal steps is not a copy."""
    one, copied = (stepped_trace([20, 20, 21], source=source) for source in ("runs/a", "copies/a"))
    told = "Base and other hold the same recording: runs/a, copies/a."
    assert rendered(comparison_report(one, copied).headline)[1] == told
    assert rendered(comparison_report(one, one).headline)[1] == "Base and other hold the same recording: runs/a."
    renamed = stepped_trace([20, 20, 21], name="fw::add")
    assert not any("same recording" in sentence for sentence in rendered(comparison_report(one, renamed).headline))
    runs = [Run(name, (trace,)) for name, trace in (("a", one), ("b", renamed), ("c", copied))]
    assert rendered(multi_run_report(runs, CompareOptions()).headline)[-1] == f"c: {told}"


def test_different_workloads_are_reported_below_the_verdict() -> None:
    """Base has 1 ms in one operator, and other has 2 ms in another operator."""
    report = comparison_report(stepped_trace([20]), stepped_trace([30], 2.0, name="fw::other"))
    verdict, unlike, causes = rendered(report.headline)[:3]
    assert verdict.startswith("Too few steps to tell: ")
    assert unlike == "The runs are barely comparable: 100% of one run's operator time has no counterpart."
    assert causes.startswith("The largest causes: ")


def test_device_work_of_other_steps_has_no_counterpart() -> None:
    """Both runs have the same operator, but 60 of the 100 ns of other are an unlaunched kernel."""
    rows = [host("step 0", "step", 0, 100, step=0), host("mm", "operator", 0, 10)]
    base, other = (
        trace([*rows, device("gemm", "kernel", start, 60)], names={"mm": "matmul"}.get) for start in (200, 20)
    )
    told = rendered(comparison_report(base, other).headline)
    assert any(one.startswith("Of the other run, ") and "60% of the wall-clock time" in one for one in told)
    assert "All operator time has a counterpart." not in told
    assert "All operator time has a counterpart." in rendered(comparison_report(base, base).headline)
    assert not any("barely comparable" in sentence for sentence in told)


def test_notes_mention_several_ranks() -> None:
    ranks = [
        trace([host("step 0", "step", 0, dur, step=0), host("mm", "operator", 0, 5)], rank=rank)
        for rank, dur in enumerate((10, 20, 60))
    ]
    report = comparison_report(concat_traces(ranks), concat_traces(ranks))
    steps, times, sure = (section(report, name) for name in ("steps", "step_time", "statistics"))
    assert steps.table[["dur_ns", "median_ns"]].to_numpy().tolist() == [[30, 20]] * 2
    assert steps.note == (
        "Duration: step time, averaged over the ranks. Median: median step time of the run, over all ranks."
    )
    assert times.table["base_ns"].tolist() == [20, 30, 10, 60]
    assert times.note == "The statistics include the steps of all ranks."
    assert sure.note.endswith(" A step on several ranks is one sample.")
    alone = comparison_report(ranks[0], ranks[1])
    assert "ranks" not in " ".join(section(alone, name).note for name in ("steps", "step_time", "statistics"))


@pytest.mark.parametrize("name", ["h100-bert-small", "sampled-rank0", "mi250-minitoy-train", "b200-eager-rank0of8"])
def test_a_run_against_itself(traces: Path, name: str) -> None:
    trace = load(traces / "torch" / f"{name}.json.gz")
    data = comparison_report(trace, trace).data
    if data["step_time"] is not None:
        assert (data["step_time"]["difference"], data["step_time"]["cliffs_delta"]) == (0, 0)
        assert data["step_time"]["verdict"] == "no difference beyond noise"
    assert all(row["difference_ns"] == 0 for row in data["attribution"])
    assert {share for side in data["matched_share"].values() for share in side["unmatched"].values()} <= {0, None}
