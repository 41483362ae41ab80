"""The summary that Paddle's ``Profiler(timer_only=True)`` computes from the same times, including its mistakes:

- The average of N steps is the sum of N - 9 batches, divided by N - 10.
- A value that is a new maximum is never used as the minimum. So the minimum can remain infinite.
- Reads with a duration of 0 are ignored. With 10 steps or fewer, there is no summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.recording.throughput.step_log import UNKNOWN, StepLog

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
