"""Times that cannot be: no time at all, overruns of counters, another clock, and ranges that never ended.

Public reports of users of torch.profiler on CUDA and ROCm describe these recordings. The profilers wrote them without a
warning.
"""

from __future__ import annotations

from typing import Any, Final

from tests.data.reports.formats import Content, chrome, nsys, paddle_json, paddle_pb
from tests.data.reports.training import Event, Events, changed, correlation_of, is_kernel, shifted, span, training

ROLLOVER_US: Final = 2**32 / 1000
"""A ROCm duration in ns that overflowed 32 bits once."""
HIP: Final = "hipLaunchKernel"
MI250X: Final = {"id": 0, "name": "AMD Instinct MI250X", "totalGlobalMem": 68702699520, "numSms": 104}
HOURS_27_8_US: Final = 100_000_000_000
YEARS_3_US: Final = 3 * 365 * 86_400 * 1_000_000
DECEMBER_6_US: Final = 1_765_000_000_000_000
"""2025-12-06 05:46:40 UTC."""
A100S: Final = [{"id": number, "name": "NVIDIA A100-SXM4-40GB"} for number in range(2)]


def zero_times(events: Events, chosen: Any) -> Events:
    """Return the events with start 0 and duration 0 for those that are chosen: the profiler stored no time."""
    return changed(events, chosen, ts=0.0, dur=0.0)


def from_step(first: float) -> Any:
    """Return a test whether an event begins at ``first`` or later."""
    return lambda event: event["ts"] >= first


def overflow(events: Events, correlation: int, dur: float) -> Events:
    """Return the events with another duration for the kernel of a launch."""
    return changed(events, lambda event: is_kernel(event) and correlation_of(event) == correlation, dur=dur)


def two_streams(steps: tuple[int, ...] = (2, 3, 4)) -> Events:
    """Return a training whose operators op2 and op3 launch on stream 8."""
    events = training(steps, launch=HIP)
    for event in events:
        if is_kernel(event) and event["name"] in ("kernel_2<float>", "kernel_3<float>"):
            event["tid"] = event["args"]["stream"] = 8
    return events


def of_launches(*correlations: int) -> Any:
    """Return a test whether an event is a kernel of one of these launches."""
    return lambda event: is_kernel(event) and correlation_of(event) in correlations


def open_step(events: Events, name: str, **values: Any) -> Events:
    """Return the events with other fields for a step. The value None removes a field."""
    result = [event | values if event["name"] == name else event for event in events]
    return [{key: value for key, value in event.items() if value is not None} for event in result]


def frame(number: int, parent: int | None, name: str, ts: float, dur: float, thread: int = 100) -> Event:
    """Return a call of a Python function with the ids that torch records with stacks."""
    ids: dict[str, Any] = {"Python id": number, "Python parent id": parent, "Ev Idx": 90000 + number}
    return span("python_function", name, ts, dur, 100, thread, **ids)


MAIN, BATCH, STEP = "train.py(10): main", "loader.py(5): next_batch", "train.py(30): step"


def overrun() -> Events:
    """Return a training in which ``next_batch`` never returned: its frame ends with the recording, and the later calls
    of ``step`` lie inside it. Both are calls of ``main``."""
    return [
        *training((2, 3, 4)),
        frame(1, None, MAIN, 995.0, 3000.0), frame(2, 1, BATCH, 1005.0, 2980.0),
        frame(3, 1, STEP, 1010.0, 960.0), frame(4, 1, STEP, 2010.0, 960.0),
    ]  # fmt: skip


def overrun_deeper() -> Events:
    """Return frames in which ``read`` below ``next_batch`` never returned, and three later calls below ``main``."""
    calls = [frame(4 + n, 1, STEP, 1100.0 + 1000 * n, 800.0) for n in range(3)]
    inner = [frame(7 + n, 4 + n, "train.py(40): loss", 1200.0 + 1000 * n, 100.0) for n in range(3)]
    return [
        *training((2, 3, 4)), frame(1, None, MAIN, 995.0, 3000.0), frame(2, 1, BATCH, 1000.0, 60.0),
        frame(3, 2, "loader.py(9): read", 1005.0, 2985.0), *calls, *inner,
    ]  # fmt: skip


def overrun_thread() -> Events:
    """Return frames of two threads. In the second thread, two frames without a return swallow later calls."""
    second = [
        frame(5, None, "worker.py(1): run", 1000.0, 2990.0, 101),
        frame(6, 5, "worker.py(5): wait", 1010.0, 2970.0, 101), frame(7, 5, "worker.py(8): poll", 1500.0, 2475.0, 101),
        frame(8, 5, "worker.py(12): work", 2000.0, 100.0, 101), frame(9, 5, "worker.py(12): work", 2200.0, 100.0, 101),
    ]  # fmt: skip
    first = [frame(1, None, MAIN, 995.0, 3000.0), frame(2, 1, STEP, 1010.0, 960.0)]
    return [*training((2, 3, 4)), *first, *second]


FOUR: Final = (2, 3, 4, 5)
LATE: Final = from_step(5_002_000.0)

FILES: Final[dict[str, Content]] = {
    "clean.json": lambda: chrome(training((2, 3, 4))),
    "clean_paddle.pb": lambda: paddle_pb(training((2, 3, 4))),
    "clean_nsys.sqlite": lambda: nsys(training((2, 3, 4))),
    # From the middle on, nothing has a time.
    "r04_zero_ts.json": lambda: chrome(zero_times(training(FOUR, 5e6), LATE), baseTimeNanoseconds=1780 * 10**15),
    "r04_first_half.json": lambda: chrome(zero_times(training(FOUR, 1.7e15), lambda e: e["ts"] < 1.7e15 + 2000)),
    "r04_kernels_only.json": lambda: chrome(
        zero_times(training(FOUR, 5e6), lambda e: is_kernel(e) and LATE(e)), baseTimeNanoseconds=1780 * 10**15
    ),
    "r04_paddle.pb": lambda: paddle_pb(zero_times(training((2, 3, 4)), from_step(3000))),
    # A kernel's duration runs over the next kernels of its stream.
    "r06_overflow.json": lambda: chrome(overflow(training((2, 3, 4)), 6, 1_600_000.0)),
    "r06_rocm_second_stream.json": lambda: chrome(
        overflow(two_streams(), 7, 150 + ROLLOVER_US), deviceProperties=[MI250X]
    ),
    "r06_second_device.json": lambda: chrome(
        overflow(training((2, 3, 4), devices=(0, 1)), 12, 700.0), deviceProperties=A100S
    ),
    "r06_last_kernel.json": lambda: chrome(overflow(training((2, 3, 4)), 12, 150 + 2 * ROLLOVER_US)),
    "r06_paddle.pb": lambda: paddle_pb(overflow(training((2, 3, 4)), 6, 1_600_000.0)),
    "r06_paddle.json": lambda: paddle_json(overflow(training((2, 3, 4)), 6, 150 + ROLLOVER_US)),
    "r06_nsys.sqlite": lambda: nsys(overflow(training((2, 3, 4)), 6, 1_600_000.0)),
    # Times of another clock. The kernels of the first step, of one device, of one stream.
    "r64c_other_clock.json": lambda: chrome(
        shifted(training((2, 3, 4), DECEMBER_6_US), of_launches(1, 2, 3, 4), -HOURS_27_8_US)
    ),
    "r64c_future_device.json": lambda: chrome(
        shifted(training((2, 3, 4), DECEMBER_6_US, (0, 1)), lambda e: is_kernel(e, device=1), YEARS_3_US),
        deviceProperties=A100S,
    ),
    "r64c_stream_skew.json": lambda: chrome(
        shifted(training((2, 3, 4), DECEMBER_6_US, launch=HIP, stream=9), is_kernel, -5_000_000),
        deviceProperties=[MI250X]
    ),
    "r64c_paddle.pb": lambda: paddle_pb(shifted(training((2, 3, 4)), of_launches(9, 10, 11, 12), -HOURS_27_8_US)),
    # The last step is open, or the first.
    "r68_open_step.json": lambda: chrome(open_step(training((2, 3, 4)), "ProfilerStep#4", dur=0)),
    "r68_first_open.json": lambda: chrome(open_step(training((2, 3, 4)), "ProfilerStep#2", dur=0.0)),
    "r68_no_duration.json": lambda: chrome(open_step(training((2, 3, 4)), "ProfilerStep#4", dur=None)),
    "r68_only_begin.json": lambda: chrome(open_step(training((2, 3, 4)), "ProfilerStep#4", dur=None, ph="B")),
    "r68_paddle.json": lambda: paddle_json(open_step(training((2, 3, 4)), "ProfilerStep#4", dur=0)),
    "r68_paddle.pb": lambda: paddle_pb(open_step(training((2, 3, 4)), "ProfilerStep#4", dur=0)),
    # Python frames without a return.
    "r67_overrun.json": lambda: chrome(overrun(), with_stack=1),
    "r67_deeper.json": lambda: chrome(overrun_deeper(), with_stack=1),
    "r67_second_thread.json": lambda: chrome(overrun_thread(), with_stack=1),
}  # fmt: skip
