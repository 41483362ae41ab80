"""Measure the calls of a bench on this machine, and store the results in the cache folder.

Each combination of framework version, processor and device has its own file. Operators on the host are called in turn.
Repeated calls of one operator would find its code and data in the caches, which is rare in training. Calls that only
launch work are timed in groups of consecutive calls."""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from perfkit_core.base.system import machine, paths
from perfkit_core.base.system.outside_text import decode_json, read_file
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.measure.calibration import bench
from perfkit_core.plugins.frameworks import Bench, Calibrator, Call, DeviceBench, Direction, RecordingBench
from perfkit_core.plugins.manager import get_plugins


def folder() -> Path:
    """Return ``$XDG_CACHE_HOME/perfkit/calibrations``. The default of ``$XDG_CACHE_HOME`` is ``~/.cache``."""
    return paths.user_folder("XDG_CACHE_HOME", ".cache") / "calibrations"


def file_of(calibration: bench.Calibration) -> Path:
    parts = (calibration.framework, calibration.version, calibration.cpu, str(calibration.cpus))
    key = "\n".join((*parts, calibration.device or ""))
    return folder() / f"{calibration.framework}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def save(calibration: bench.Calibration) -> Path:
    """Write the file of a calibration and return its path. An older file is replaced atomically. Raises UsageError."""
    import msgspec

    path = file_of(calibration)
    try:
        with paths.replacing(path) as file:
            file.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})", "set XDG_CACHE_HOME") from None
    return path


def stored(framework: str) -> Iterator[bench.Calibration]:
    """Yield all stored calibrations of a framework, the newest first. Unreadable files are skipped."""
    calibrations: list[bench.Calibration] = []
    with contextlib.suppress(OSError):  # the folder is missing or unreadable
        for path in folder().glob(f"{framework}-*.json"):
            with contextlib.suppress(OSError, ValueError):
                calibrations.append(decode_json(read_file(path), bench.Calibration))
    of_framework = (calibration for calibration in calibrations if calibration.framework == framework)
    yield from sorted(of_framework, key=lambda calibration: calibration.date, reverse=True)


TURNS: Final = 1000
"""Number of calls of each operator on the host."""
SAMPLES: Final = 200
CALLS: Final = 20
"""Number of consecutive calls in a sample. The queue of a device holds 1024 calls, so the host does not wait."""
WARMUP: Final = 100
"""Number of calls before the first measured call. In these calls, caches fill and libraries choose their kernels."""
QUEUED: Final = 100
"""Number of consecutive kernels in a sample. All of them fit in the queue of the device."""
LARGE_SAMPLES: Final = 20
RECORDINGS: Final = 20
"""Number of recordings with each option of a profiler."""
_DIRECTIONS: Final[tuple[Direction, ...]] = ("htod", "dtoh")

Clock = Callable[[], int]
Report = Callable[[str], None]


def measured(
    calls: Bench, report: Report = lambda text: None, clock: Clock = time.perf_counter_ns
) -> list[bench.Measurement]:
    """Time all calls of the bench. ``report`` is called with progress texts."""
    report("timing operators on the host")
    reading = min(_row(lambda: None, clock, 1) for _ in range(WARMUP))  # the time to read the clock
    times: dict[tuple[str, int], list[float]] = {key: [] for key in calls.operators}
    for turn in range(-WARMUP, TURNS):
        for key, call in calls.operators.items():
            call_ns = _row(call, clock, 1) - reading
            if turn >= 0:
                times[key].append(max(call_ns, 0.0))
    measurements = [_percentiles(bench.operator_name(*key), samples) for key, samples in times.items()]
    if calls.recording is not None:
        report("timing the profiler")
        measurements += [_percentiles(name, samples) for name, samples in _of_recording(calls.recording, clock)]
    if calls.device is not None:
        report(f"timing {calls.device.name}")
        measurements += [_percentiles(name, samples) for name, samples in _of_device(calls.device, clock)]
    return measurements


def _calls(call: Call, clock: Clock, samples: int = SAMPLES, calls: int = CALLS) -> list[float]:
    for _ in range(WARMUP if calls > 1 else 1):
        call()
    return [_row(call, clock, calls) for _ in range(samples)]


def _row(call: Call, clock: Clock, calls: int) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def _of_recording(recording: RecordingBench, clock: Clock) -> Iterator[tuple[str, list[float]]]:
    usual_ns = 0.0
    for option in recording.options:
        costs, times = list[float](), list[float]()
        run = functools.partial(_timed, recording.work, clock, times)
        for _ in range(RECORDINGS):
            plain = _row(recording.work, clock, CALLS)
            events = recording.profiled(option, run)
            costs.append(max((times[-1] - plain) * CALLS / max(events, 1.0) - usual_ns, 0.0))
        if not option:
            usual_ns = float(np.median(costs))
        yield bench.recording_name(option), costs


def _timed(work: Call, clock: Clock, times: list[float]) -> None:
    times.append(_row(work, clock, CALLS))


def _of_device(device: DeviceBench, clock: Clock) -> Iterator[tuple[str, list[float]]]:
    # synchronize empties the launch queue before each sample, because a launch into a full queue waits
    _row(device.launch, clock, WARMUP)
    launches, kernels = [], []
    for _ in range(SAMPLES):
        device.synchronize()
        launches.append(_row(device.launch, clock, CALLS))
    device.synchronize()
    yield bench.LAUNCH, launches
    # the device is kept busy while kernels are queued, so that they then run without gaps
    for _ in range(LARGE_SAMPLES):
        device.occupy()
        start = device.clock.mark()
        for _ in range(QUEUED):
            device.launch()
        end = device.clock.mark()
        device.clock.wait(end)
        kernels.append(device.clock.elapsed_ns(start, end) / QUEUED)
    yield bench.KERNEL, kernels
    yield bench.SYNCHRONIZE, _calls(device.synchronize, clock)
    for direction in _DIRECTIONS:
        for pinned in (False, True):
            for size, samples in ((bench.SMALL, SAMPLES), (bench.LARGE, LARGE_SAMPLES)):
                call = device.copy(direction, size, pinned)
                if call is not None:
                    yield bench.copy_name(direction, size, pinned), _calls(call, clock, samples, 1)


def _percentiles(name: str, samples: list[float]) -> bench.Measurement:
    low, mid, high = (round(float(value), 1) for value in np.quantile(samples, [0.1, 0.5, 0.9]))
    return bench.Measurement(name, low, mid, high, len(samples))


def newest(framework: str, device: str | None = None) -> bench.Calibration | None:
    """Return the newest calibration of the installed framework version on this processor, and on ``device`` if it is
    given. Return None if there is none. Nothing is measured, and the framework is not imported."""
    calibrator = get_plugins().framework(framework).calibrator()
    version = calibrator.version() if calibrator else None
    fits = (entry for entry in stored(framework) if (entry.version, entry.cpu) == (version, machine.cpu_model()))
    return next((entry for entry in fits if device is None or entry.device == device), None)


def calibrate(
    framework: str, calibrator: Calibrator, report: Callable[[str], None] = lambda text: None
) -> bench.Calibration:
    """Measure and save a calibration. Raises CaptureError without the framework, and UsageError if writing fails."""
    version = calibrator.version()
    if version is None:
        raise CaptureError(f"{framework} is not installed", "install it, or give another --framework")
    calls = calibrator.bench()
    calibration = bench.Calibration(
        framework,
        version,
        machine.cpu_model(),
        len(machine.usable_cpus()),
        calls.device.name if calls.device else None,
        calls.threads,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tuple(measured(calls, report)),
    )
    save(calibration)
    return calibration
