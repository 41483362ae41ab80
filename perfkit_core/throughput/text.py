"""How a throughput benchmark is printed: the line within the loop, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfkit_core.language.units import format_ratio
from perfkit_core.throughput.log import UNKNOWN
from perfkit_core.throughput.steps import Steps

if TYPE_CHECKING:
    from perfkit_core.throughput.summary import ThroughputSummary


def info_line(steps: Steps, unit: str) -> str:
    """``reader_cost: 0.00012 s batch_cost: 0.01234 s ips: 2593.193 images/s``: averages over the steps."""
    if not len(steps):
        return "no step has finished since the last call"
    total = int(steps.batch_ns.sum())
    parts = [] if steps.reader_ns is None else [f"reader_cost: {_average(int(steps.reader_ns.sum()), len(steps))} s"]
    parts.append(f"batch_cost: {_average(total, len(steps))} s")
    items, times_ns = steps.rate_steps
    if times_ns.any():
        counted = unit if (steps.samples != UNKNOWN).any() else "steps"
        parts.append(f"ips: {int(items.sum()) * 1e9 / int(times_ns.sum()):.3f} {counted}/s")
    return " ".join(parts)


def _average(total_ns: int, count: int) -> str:
    return f"{total_ns / count / 1e9:.5f}"


def summary_text(summary: ThroughputSummary) -> str:
    """The table, as the command line prints tables, under the sentences that say what was measured."""
    from perfkit_core.renderers.text import render
    from perfkit_core.report.model import Report, Section

    table = summary.to_pandas().rename(columns={"samples_per_s": f"{summary.unit}_per_s"}).reset_index()
    if not summary.steps:
        table = table.head(0)
    section = Section("throughput", "Cost of a step, and rate", table, empty=_nothing(summary))
    return render(Report("Throughput", (), (section,), headline=tuple(_headline(summary)))).rstrip("\n")


def _nothing(summary: ThroughputSummary) -> str:
    run = summary.warmup_steps
    return f"no step was measured: {_steps(run)} finished, all of warm-up" if run else "no step was measured"


def _headline(summary: ThroughputSummary) -> Iterator[str]:
    samples = "" if summary.samples is None else f", {summary.samples} {summary.unit}"
    yield f"{_steps(summary.steps)} measured{samples}; {_steps(summary.warmup_steps)} of warm-up left out"
    yield f"timed by the {summary.timed_by}"
    if summary.unfinished_steps:
        yield f"{_steps(summary.unfinished_steps)} not yet finished on the device, left out"
    if summary.samples is not None and summary.steps_without_samples:
        yield f"number of samples unknown in {_steps(summary.steps_without_samples)}, left out of the rate"
    if summary.reader_ratio is not None:
        yield f"waiting for input: {format_ratio(summary.reader_ratio)} of the batch cost"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"
