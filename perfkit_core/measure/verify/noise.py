"""By how much equal runs of a command differ. The results are stored for ``perfkit compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from perfkit_core.base.language.units import format_ratio
from perfkit_core.base.system import processes
from perfkit_core.errors import CaptureError
from perfkit_core.measure.calibration import equal_runs
from perfkit_core.measure.verify import runs
from perfkit_core.measure.verify.outcome import Outcome
from perfkit_core.measure.verify.runs import Metric
from perfkit_core.recording.throughput.costs import HOST

if TYPE_CHECKING:
    from perfkit_core.trace.model.report_data import Report, Section

KINDS: Final[Mapping[equal_runs.Kind, str]] = {"host": "steps without device work", "device": "steps with device work"}
FEWEST: Final = 3
"""Minimum number of runs. Student's t makes the noise of two runs useless."""


def measure(command: str, count: int, report: Callable[[str], None]) -> equal_runs.EqualRuns:
    """Run a command ``count`` times after a warm-up run, each time as a new process, and store how the runs differ.
    Raises CaptureError if a run fails or has no steps, and UsageError if the result cannot be stored."""
    results = []
    with processes.ended_by_signals():
        for number in range(count + runs.WARMUP):
            report(f"run {number + 1} of {count + runs.WARMUP}")
            results.append(runs.run_once(command, Metric()))
    record = store(command, results[runs.WARMUP :])
    if record is None:
        raise CaptureError(
            f"the runs of {command!r} were timed by different frameworks or clocks",
            "measure a command that trains with one framework on one kind of device",
        )
    return record


def of_verification(outcome: Outcome) -> dict[str, equal_runs.EqualRuns]:
    """Store how the runs of each side differ, and return the records by side, "base" or "change". A side whose runs
    have no steps has no record."""
    sides = {"base": outcome.plan.base, "change": outcome.plan.change}
    records = {
        side: store(command, [run for run in outcome.runs if run.side == side]) for side, command in sides.items()
    }
    return {side: record for side, record in records.items() if record is not None}


def store(command: str, results: Sequence[runs.Timed | runs.Run]) -> equal_runs.EqualRuns | None:
    """Store how the runs of a command differ. Return None if there are too few runs with steps, or if they differ in
    their framework or clock. Raises UsageError if writing fails."""
    timed = [result.slowest for result in results if result.slowest is not None]
    if len(timed) < FEWEST or len({(times.framework, times.timed_by) for times in timed}) > 1:
        return None
    kind = equal_runs.HOST if timed[0].timed_by == HOST else equal_runs.DEVICE
    medians = [float(np.median(times.step_ns)) for times in timed]
    return equal_runs.store(command, timed[0].framework, kind, min(len(times.step_ns) for times in timed), medians)


def report(record: equal_runs.EqualRuns) -> Report:
    """Return the report on a new record. Its section lists all records of this machine."""
    import msgspec

    from perfkit_core.trace.model.report_data import Report

    kind, slowest = KINDS[record.kind], max(record.median_ns) / min(record.median_ns) - 1
    headline = (
        f"{len(record.median_ns)} equal runs of {record.command!r} differ by {format_ratio(record.ratio)} (standard "
        f"deviation of the median step, {kind}); the slowest takes {format_ratio(slowest)} longer than the fastest.",
        f"perfkit compare uses this, instead of an assumption, for single recordings made on this machine with "
        f"{record.framework} ({kind}). It is stored in {equal_runs.file()}; delete this file to forget it.",
    )
    data = {"equal_runs": msgspec.to_builtins(record)}
    return Report("perfkit calibrate", (), tuple(sections()), headline=headline, data=data)


def sections() -> list[Section]:
    """Return a section with all records of this machine, the newest first, or nothing if there are none."""
    import pandas as pd

    from perfkit_core.trace.model.report_data import Section

    rows = [
        (record.date, record.framework, record.kind, len(record.median_ns), record.steps,
         round(np.median(record.median_ns)), record.ratio, record.command)
        for record in equal_runs.stored()
    ]  # fmt: skip
    if not rows:
        return []
    columns = ["date", "framework", "kind", "runs", "steps", "median_step_ns", "spread_ratio", "command"]
    note = (
        "Spread: the relative standard deviation of the median step between equal runs, without a profiler. The "
        f"newest {equal_runs.NEWEST} rows of a framework and kind count."
    )
    return [Section("equal_runs", "Equal runs on this machine", pd.DataFrame(rows, columns=columns), note=note)]
