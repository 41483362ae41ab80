"""The operations that a calibration times, and their measured times.

Adapters fill in a :class:`~perfkit_core.plugins.frameworks.Bench`, and
:mod:`perfkit_core.measure.calibration.calibrate` times its calls."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from perfkit_core.plugins.frameworks import Call, Direction
from perfkit_core.replay.transforms import Quantity

SOURCE: Final = "calibrated on this machine"
LAUNCH: Final = "launch"
"""Name of this measurement: the time that the host needs to launch the smallest kernel."""
KERNEL: Final = "kernel"
"""Name of this measurement: the time per kernel on the device while many of the smallest kernels are queued."""
SYNCHRONIZE: Final = "synchronize"
"""Name of this measurement: the time of a synchronize call when the device is already idle."""


def recording_name(option: str) -> str:
    """Return the name of the measurement of the profiler's time per operator, or of what an option adds to it."""
    return f"record_{option}" if option else "record"


SMALL: Final = 4
"""Size in bytes of the small copy. It measures the latency of copies."""
LARGE: Final = 1 << 26
"""Size in bytes of the large copy. It measures the bandwidth of copies."""


def operator_name(canonical: str, elements: int) -> str:
    return f"host_{canonical}_{elements}"


def copy_name(direction: Direction, size: int, pinned: bool) -> str:
    return f"{direction}_{'pinned' if pinned else 'pageable'}_{size}_bytes"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The time of a call in ns, as percentiles. A sample is the time of one call, or the mean of consecutive calls."""

    name: str
    p10_ns: float
    p50_ns: float
    p90_ns: float
    samples: int

    @property
    def quantity(self) -> Quantity:
        return Quantity(self.p10_ns, self.p50_ns, self.p90_ns, SOURCE)


@dataclass(frozen=True, slots=True)
class Calibration:
    """All measurements of one framework on one machine. ``device`` is the device model, None without a device."""

    framework: str
    version: str
    cpu: str
    cpus: int
    device: str | None
    threads: int | None
    date: str
    measurements: tuple[Measurement, ...]

    def quantity(self, name: str) -> Quantity | None:
        return next((timing.quantity for timing in self.measurements if timing.name == name), None)

    def host_ns(self, canonical: str | None = None) -> Quantity | None:
        """Return the host time of the operator ``canonical`` on tensors of 1 to 64 elements. If it was not measured,
        return the range and median over all measured operators. Return None if no operator was measured."""
        every = [timing for timing in self.measurements if timing.name.startswith("host_")]
        same = [timing for timing in every if canonical and timing.name.rpartition("_")[0] == f"host_{canonical}"]
        measured = same or every
        if not measured:
            return None
        low, high = min(timing.p10_ns for timing in measured), max(timing.p90_ns for timing in measured)
        return Quantity(low, statistics.median(timing.p50_ns for timing in measured), high, SOURCE)

    def copy_ns(self, direction: Direction, size: int, pinned: bool = False) -> Quantity | None:
        """Return the time of a copy, including the wait for its end. It is computed from the latency and the time per
        byte. Return None if copies of this kind were not measured."""
        small, large = (self.quantity(copy_name(direction, bytes_, pinned)) for bytes_ in (SMALL, LARGE))
        if small is None or large is None:
            return None
        share = max(size - SMALL, 0) / (LARGE - SMALL)
        ends = ((small.low, large.low), (small.mid, large.mid), (small.high, large.high))
        low, mid, high = (first + max(last - first, 0.0) * share for first, last in ends)
        return Quantity(low, mid, high, SOURCE)


ELEMENTS: Final = (1, 64)
OCCUPYING: Final = 8192
"""Number of rows of a square matrix. The product of two such matrices takes a GPU several milliseconds."""


def installed_version(*distributions: str) -> str | None:
    """Return the version of the first of ``distributions`` that is installed, or None. Nothing is imported."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def small_operators(
    framework: Any, count: int, gather: Callable[[Any, Any], Call], cast: Callable[[Any], Call]
) -> dict[tuple[str, int], Call]:
    """Return a dict with a function for each small operator. The keys are (canonical name, ``count``). Each function
    runs its operator on a tensor of ``count`` elements and allocates the result, as eager code does.

    Two of the functions depend on the framework. ``gather`` must return a function that selects values by index.
    ``cast`` must return a function that converts a tensor to another type."""
    values, numbers = framework.ones([count]), framework.arange(count)
    condition = values > 0
    return {
        ("add", count): lambda: values + 1.0,
        ("multiply", count): lambda: values * values,
        ("compare", count): lambda: values < 0.5,
        ("logical", count): lambda: framework.logical_and(condition, condition),
        ("where", count): lambda: framework.where(condition, values, values),
        ("gather", count): gather(values, numbers),
        ("slice", count): lambda: values[0],
        ("sum", count): values.sum,
        ("cast", count): cast(numbers),
        ("fill", count): lambda: framework.full_like(values, 1.0),
    }
