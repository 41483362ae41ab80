"""Times what a framework lets be timed, many times, as percentiles.

Operators on the host take turns, one call each: an operator that is called again and again finds its code and data in
the caches, which in a training it seldom does. What only hands work over is timed in rows of calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from perfkit_core.calibration.bench import Bench, Call, DeviceBench, Direction
from perfkit_core.calibration.model import (
    KERNEL,
    LARGE,
    LAUNCH,
    SMALL,
    SYNCHRONIZE,
    Measurement,
    copy_name,
    operator_name,
)

TURNS: Final = 1000
"""Calls of each operator on the host."""
SAMPLES: Final = 200
CALLS: Final = 20
"""Calls in a row: short of the queue of a device (1024), in which the host would have to wait."""
WARMUP: Final = 100
"""Calls before the first that counts: libraries choose their kernels, caches fill."""
QUEUED: Final = 100
"""Kernels in a row, short of that queue too."""
LARGE_SAMPLES: Final = 20
_DIRECTIONS: Final[tuple[Direction, ...]] = ("htod", "dtoh")

Clock = Callable[[], int]
Report = Callable[[str], None]


def measured(
    bench: Bench, report: Report = lambda text: None, clock: Clock = time.perf_counter_ns
) -> list[Measurement]:
    """Everything that can be timed here. ``report`` is told what is being timed."""
    report("timing operators on the host")
    found = [_percentiles(name, samples) for name, samples in _in_turns(bench, clock)]
    if bench.device is not None:
        report(f"timing {bench.device.name}")
        found += [_percentiles(name, samples) for name, samples in _of_device(bench.device, clock)]
    return found


def _in_turns(bench: Bench, clock: Clock) -> Iterator[tuple[str, list[float]]]:
    """ns of single calls, less what asking the clock takes."""
    asking = min(_row(lambda: None, clock, 1) for _ in range(WARMUP))
    found: dict[tuple[str, int], list[float]] = {key: [] for key in bench.operators}
    for turn in range(-WARMUP, TURNS):
        for key, call in bench.operators.items():
            taken = _row(call, clock, 1) - asking
            if turn >= 0:
                found[key].append(max(taken, 0.0))
    for key, samples in found.items():
        yield operator_name(*key), samples


def _calls(call: Call, clock: Clock, samples: int = SAMPLES, calls: int = CALLS) -> list[float]:
    """Mean ns of some calls in a row, so many times."""
    for _ in range(WARMUP if calls > 1 else 1):
        call()
    return [_row(call, clock, calls) for _ in range(samples)]


def _row(call: Call, clock: Clock, calls: int) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def _of_device(device: DeviceBench, clock: Clock) -> Iterator[tuple[str, list[float]]]:
    yield LAUNCH, _launches(device, clock)
    yield KERNEL, _kernels(device)
    yield SYNCHRONIZE, _calls(device.synchronize, clock)
    for direction in _DIRECTIONS:
        for pinned in (False, True):
            for size, samples in ((SMALL, SAMPLES), (LARGE, LARGE_SAMPLES)):
                call = device.copy(direction, size, pinned)
                if call is not None:
                    yield copy_name(direction, size, pinned), _calls(call, clock, samples, 1)


def _launches(device: DeviceBench, clock: Clock) -> list[float]:
    """The queue is emptied between the samples, never within one."""
    _row(device.launch, clock, WARMUP)
    found = []
    for _ in range(SAMPLES):
        device.synchronize()
        found.append(_row(device.launch, clock, CALLS))
    device.synchronize()
    return found


def _kernels(device: DeviceBench) -> list[float]:
    """Kernels that wait in a queue behind long work run as closely as the device can."""
    found = []
    for _ in range(LARGE_SAMPLES):
        device.occupy()
        start = device.clock.mark()
        for _ in range(QUEUED):
            device.launch()
        end = device.clock.mark()
        device.clock.wait(end)
        found.append(device.clock.elapsed_ns(start, end) / QUEUED)
    return found


def _percentiles(name: str, samples: list[float]) -> Measurement:
    low, mid, high = (round(float(value), 1) for value in np.quantile(samples, [0.1, 0.5, 0.9]))
    return Measurement(name, low, mid, high, len(samples))
