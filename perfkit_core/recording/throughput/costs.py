"""The result of a throughput benchmark: costs, rates, and the share of time spent waiting for input.

The average cost is the total time divided by the number of steps. The average rate is the number of samples divided by
the total time. Percentiles are measured values (the nearest-rank method).

:class:`NativeSummary` is the summary that Paddle's ``Profiler(timer_only=True)`` computes from the same times,
including its mistakes:

- The average of N steps is the sum of N - 9 batches, divided by N - 10.
- A value that is a new maximum is never used as the minimum. So the minimum can remain infinite.
- Reads with a duration of 0 are ignored. With 10 steps or fewer, there is no summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit_core.base.language.units import counted, format_count, format_ratio
from perfkit_core.recording.throughput.step_log import UNKNOWN, IntArray, StepLog, Steps

if TYPE_CHECKING:
    import pandas as pd


def info_line(steps: Steps, unit: str) -> str:
    """Return averages of the steps, such as ``reader_cost: 0.00012 s batch_cost: 0.01234 s ips: 2593.193 images/s``."""
    if not len(steps):
        return "no step has finished since the last call"
    parts = [f"{name}: {cost_ns / 1e9:.5f} s" for name, cost_ns in average_costs(steps).items()]
    rate = average_rate(steps)
    if rate is not None:
        counted = unit if (steps.samples != UNKNOWN).any() else "steps"
        parts.append(f"ips: {rate:.3f} {counted}/s")
    return " ".join(parts)


def metrics(steps: Steps) -> dict[str, float]:
    """Return the averages of :func:`info_line`, with the units in the names."""
    averages = {f"perfkit/{name}_ms": cost_ns / 1e6 for name, cost_ns in average_costs(steps).items()}
    rate = average_rate(steps)
    if rate is not None:
        averages[f"perfkit/{'samples' if (steps.samples != UNKNOWN).any() else 'steps'}_per_s"] = rate
    return averages


def average_costs(steps: Steps) -> dict[str, float]:
    """Return the mean costs per step in ns, without those that are unknown."""
    named = {"reader_cost": steps.reader_ns, "batch_cost": steps.batch_ns}
    return {name: int(ns.sum()) / len(ns) for name, ns in named.items() if ns is not None and len(ns)}


def average_rate(steps: Steps) -> float | None:
    """Return the samples per second, or the steps per second if no number of samples is known."""
    items, times_ns = steps.rate_steps
    return int(items.sum()) * 1e9 / int(times_ns.sum()) if times_ns.any() else None


Number = TypeVar("Number", int, float)

STATISTICS: Final = ("avg", "min", "max", "p50", "p90", "p99")
HOST: Final = "host clock"


@dataclass(frozen=True, slots=True)
class Costs:
    """Total and statistics of the durations of the steps, in ns. The average is rounded."""

    total_ns: int
    avg_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Statistics of samples (or steps) per second. ``avg_per_s`` is the number of samples in all steps divided
    by their total time. The other numbers are statistics of the rates of single steps."""

    avg_per_s: float
    min_per_s: float
    max_per_s: float
    p50_per_s: float
    p90_per_s: float
    p99_per_s: float


@dataclass(frozen=True, slots=True, repr=False)
class ThroughputSummary:
    """The result of a benchmark. ``print`` shows it as a table. If no steps were measured, costs and rates are None.

    - ``steps``: number of measured steps.
    - ``warmup_steps``, ``unfinished_steps``: numbers of steps left out. Unfinished steps still run on the device.
    - ``samples``: number of samples; None if ``step`` was never called with a number.
    - ``steps_without_samples``: number of steps whose number of samples is unknown. ``ips`` leaves out these steps.
    - ``timed_by``: the clock of the batch cost.
    - ``ips``: samples per second, or steps per second if no number of samples is known.
    - ``unit``: what ``ips`` counts, for example "images".
    - ``reader_cost``: waits for input; None if no batch was read through a timed reader.
    - ``reader_ratio``: the reader cost divided by the batch cost."""

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

    def __repr__(self) -> str:
        rate = f"{format_count(self.ips.avg_per_s)} {self.unit}/s" if self.ips else "no rate"
        return f"<ThroughputSummary {counted(self.steps, 'step')}, {rate}>"

    def __str__(self) -> str:
        from perfkit_core.output.renderers.text import render
        from perfkit_core.trace.model.report_data import Report, Section

        steps = partial(counted, noun="step")
        samples = "" if self.samples is None else f", {self.samples} {self.unit}"
        headline = [
            f"{counted(self.steps, 'step')} measured{samples}; {counted(self.warmup_steps, 'step')} of warm-up left out"
        ]
        headline.append(f"timed by the {self.timed_by}")
        if self.unfinished_steps:
            headline.append(
                f"{counted(self.unfinished_steps, 'step')} left out, because the device has not finished yet"
            )
        if self.samples is not None and self.steps_without_samples:
            without = steps(self.steps_without_samples)
            headline.append(f"{without} left out of the rate, because the number of samples is unknown")
        if self.reader_ratio is not None:
            headline.append(f"waiting for input: {format_ratio(self.reader_ratio)} of the batch cost")
        table = self.to_pandas().rename(columns={"samples_per_s": f"{self.unit}_per_s"}).reset_index()
        if not self.steps:
            table = table.head(0)
        empty = "no step was measured"
        if self.warmup_steps:
            empty += f", because only {steps(self.warmup_steps)} of warm-up finished"
        section = Section("throughput", "Step cost and rate", table, empty=empty)
        return render(Report("Throughput", (), (section,), headline=tuple(headline))).rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain data."""
        return asdict(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with one row per statistic (avg, min, max, p50, p90, p99). Columns: reader_cost_ns and
        batch_cost_ns (Int64), samples_per_s or steps_per_s (Float64)."""
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
    with_samples = steps.samples != UNKNOWN
    return ThroughputSummary(
        steps=len(steps),
        warmup_steps=warmup,
        unfinished_steps=unfinished,
        samples=int(steps.samples[with_samples].sum()) if with_samples.any() else None,
        steps_without_samples=int((~with_samples).sum()),
        timed_by=timed_by,
        unit=unit if with_samples.any() else "steps",
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
    """Return statistics of items per second. Both arrays have one value per step. If all times are 0, return None."""
    timed = times_ns > 0
    if not timed.any():
        return None
    average = int(items.sum()) * 1_000_000_000 / int(times_ns.sum())
    return Rates(average, *_spread(items[timed] * 1e9 / times_ns[timed], float))


def _spread(values: npt.NDArray[Any], number: Callable[[Any], Number]) -> tuple[Number, ...]:
    ordered = np.sort(values)
    ranks = [0, -1] + [-(-percent * len(ordered) // 100) - 1 for percent in (50, 90, 99)]
    return tuple(number(ordered[rank]) for rank in ranks)


SKIPPED: Final = 10
"""Number of steps that Paddle's timer leaves out. It does not depend on ``warmup``."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NativeRow:
    avg: float
    max: float
    min: float


@dataclass(frozen=True, slots=True)
class NativeSummary:
    """Paddle's summary: cost in s, ``ips`` in ``unit``, ``reader_ratio`` in %. For 10 steps or fewer, they are None."""

    steps: int
    unit: str
    reader: NativeRow | None = None
    batch: NativeRow | None = None
    ips: NativeRow | None = None
    reader_ratio: float | None = None

    def __str__(self) -> str:
        if self.batch is None:
            return f"Paddle's formulas give no throughput for {self.steps} steps; they need at least {SKIPPED + 1}"
        ratio = f", reader ratio {self.reader_ratio:.3f} %" if self.reader_ratio else ""
        lines = [
            f"Throughput of {self.steps} steps by Paddle's formulas, including the mistakes in these formulas; "
            f"costs in s, ips in {self.unit}{ratio}",
            f"{'':<12}{'avg':>15}{'max':>15}{'min':>15}",
        ]
        named = (("reader_cost", self.reader), ("batch_cost", self.batch), ("ips", self.ips))
        lines += [
            f"{name:<12}{row.avg:>15.5f}{row.max:>15.5f}{row.min:>15.5f}" for name, row in named if row and row.avg
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that Paddle's ``get_summary()`` returns. It is empty for 10 steps or fewer."""
        if self.reader is None or self.batch is None or self.ips is None:
            return {}
        rows = {"reader_summary": self.reader, "batch_summary": self.batch, "ips_summary": self.ips}
        shown: dict[str, Any] = {key: {"max": r.max, "min": r.min, "avg": r.avg} for key, r in rows.items()}
        return shown | {"reader_ratio": self.reader_ratio}


def native_summary(log: StepLog, unit: str) -> NativeSummary:
    steps = len(log.samples)
    samples = np.array(log.samples, dtype=np.int64)
    per_sample = np.logical_and.accumulate(samples != UNKNOWN)  # true until a step lacks its number of samples
    unit = f"{unit}/s" if steps and per_sample[-1] else "steps/s"
    if steps <= SKIPPED:
        return NativeSummary(steps, unit)
    counted = slice(SKIPPED - 1, steps)
    batch = np.array(log.batch_ns[counted]) / 1e9
    items = np.where(per_sample, samples, 1)[counted]
    with np.errstate(divide="ignore", invalid="ignore"):
        ips = _row(items / batch, 0.0)
    total = _total(batch)
    amount = int(samples[counted][per_sample[counted]].sum()) if per_sample[-1] else steps - SKIPPED
    reads = np.array(log.read_ns[log.reads[SKIPPED - 1] :], dtype=np.int64)
    reader_row = _row(reads[reads > 0] / 1e9, steps - SKIPPED)
    batch_row = _row(batch, steps - SKIPPED)
    ips_row = NativeRow(amount / total, ips.max, ips.min)
    return NativeSummary(steps, unit, reader_row, batch_row, ips_row, reader_row.avg / batch_row.avg * 100)


def _row(values: FloatArray, divisor: float) -> NativeRow:
    """Return average, maximum and minimum. As in Paddle, the minimum ignores the first value and every later value
    that exceeds all values before it."""
    highest = np.maximum.accumulate(np.append(0.0, values))
    low = values[values <= highest[:-1]]
    average = _total(values) / divisor if divisor else 0.0
    return NativeRow(average, float(highest[-1]), float(low.min()) if len(low) else float("inf"))


def _total(values: FloatArray) -> float:
    """Add the values one by one, as Paddle does. ``numpy.sum`` adds in pairs, so its rounding differs."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0
