"""The result of a throughput benchmark: costs, rates, and the share of waiting for input. Averages are total time by
number of steps, and samples by total time. Percentiles are nearest rank: the smallest measured value that at least that
share of the steps does not exceed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit_core.language.units import format_ratio
from perfkit_core.throughput.step_log import UNKNOWN, IntArray, Steps

if TYPE_CHECKING:
    import pandas as pd


def info_line(steps: Steps, unit: str) -> str:
    """Return ``reader_cost: 0.00012 s batch_cost: 0.01234 s ips: 2593.193 images/s``: averages over the steps."""
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


Number = TypeVar("Number", int, float)

STATISTICS: Final = ("avg", "min", "max", "p50", "p90", "p99")
HOST: Final = "host clock"


@dataclass(frozen=True, slots=True)
class Costs:
    """Times of the steps in ns; the average is rounded."""

    total_ns: int
    avg_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Items per second. ``avg_per_s`` is all items by all time; the others are over single steps."""

    avg_per_s: float
    min_per_s: float
    max_per_s: float
    p50_per_s: float
    p90_per_s: float
    p99_per_s: float


@dataclass(frozen=True, slots=True)
class ThroughputSummary:
    """The measured steps. Without any, costs, rates and ratio are None; ``print`` shows the table. ``warmup_steps``
    were run and left out; ``unfinished_steps`` had not finished on the device. ``samples`` is None if no step gave any;
    ``steps_without_samples`` are left out of ``ips``, unless all are: then ``ips`` counts steps. ``reader_cost`` is
    None if no batch was read through a timed reader; ``reader_ratio`` is its share of the batch cost (1 is all).
    ``unit`` is what ``ips`` counts, ``timed_by`` the clock of the batch cost."""

    steps: int
    warmup_steps: int
    unfinished_steps: int
    samples: int | None
    steps_without_samples: int
    timed_by: str
    unit: str
    reader_cost: Costs | None
    batch_cost: Costs | None
    ips: Rates | None
    reader_ratio: float | None

    def __str__(self) -> str:
        from perfkit_core.renderers.text import render
        from perfkit_core.report.model import Report, Section

        table = self.to_pandas().rename(columns={"samples_per_s": f"{self.unit}_per_s"}).reset_index()
        if not self.steps:
            table = table.head(0)
        empty = "no step was measured"
        if self.warmup_steps:
            empty += f": {_steps(self.warmup_steps)} finished, all of warm-up"
        section = Section("throughput", "Cost of a step, and rate", table, empty=empty)
        return render(Report("Throughput", (), (section,), headline=tuple(_headline(self)))).rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, nested, for JSON."""
        return asdict(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each statistic (avg, min, max, p50, p90, p99); columns reader_cost_ns, batch_cost_ns
        (Int64), and samples_per_s or steps_per_s (Float64). Missing is NA."""
        import pandas as pd

        columns = {
            "reader_cost_ns": pd.array(_column(self.reader_cost, "ns"), dtype="Int64"),
            "batch_cost_ns": pd.array(_column(self.batch_cost, "ns"), dtype="Int64"),
            f"{'steps' if self.samples is None else 'samples'}_per_s": pd.array(
                _column(self.ips, "per_s"), dtype="Float64"
            ),
        }
        return pd.DataFrame(columns, index=pd.Index(STATISTICS, name="statistic"))


def _column(numbers: Costs | Rates | None, suffix: str) -> list[Any]:
    return [None if numbers is None else getattr(numbers, f"{name}_{suffix}") for name in STATISTICS]


def summarize_steps(steps: Steps, warmup: int, unfinished: int, timed_by: str, unit: str) -> ThroughputSummary:
    batch = costs(steps.batch_ns)
    reader = None if steps.reader_ns is None else costs(steps.reader_ns)
    told = steps.samples >= 0
    return ThroughputSummary(
        steps=len(steps),
        warmup_steps=warmup,
        unfinished_steps=unfinished,
        samples=int(steps.samples[told].sum()) if told.any() else None,
        steps_without_samples=int((~told).sum()),
        timed_by=timed_by,
        unit=unit if told.any() else "steps",
        reader_cost=reader,
        batch_cost=batch,
        ips=rates(*steps.rate_steps),
        reader_ratio=reader.total_ns / batch.total_ns if reader and batch and batch.total_ns else None,
    )


def costs(times_ns: IntArray) -> Costs | None:
    if not len(times_ns):
        return None
    total, count = int(times_ns.sum()), len(times_ns)
    return Costs(total, (2 * total + count) // (2 * count), *_spread(times_ns, int))


def rates(items: IntArray, times_ns: IntArray) -> Rates | None:
    """Return rates, None if the clock was too coarse to measure any step."""
    timed = times_ns > 0
    if not timed.any():
        return None
    average = int(items.sum()) * 1_000_000_000 / int(times_ns.sum())
    return Rates(average, *_spread(items[timed] * 1e9 / times_ns[timed], float))


def _spread(values: npt.NDArray[Any], number: Callable[[Any], Number]) -> tuple[Number, Number, Number, Number, Number]:
    ordered = np.sort(values)

    def at(percent: int) -> Number:
        return number(ordered[-(-percent * len(ordered) // 100) - 1])

    return number(ordered[0]), number(ordered[-1]), at(50), at(90), at(99)
