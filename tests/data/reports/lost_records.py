"""Recordings from which the profiler lost device records, and recordings with those of the warm-up.

A buffer of CUPTI that overflows loses the oldest records. The launches stay. Users saw an idle device.
"""

from __future__ import annotations

from typing import Any, Final

from tests.data.reports.formats import Content, chrome, nsys, paddle_json, paddle_pb
from tests.data.reports.times import A100S, HIP
from tests.data.reports.training import Events, is_kernel, kernel, span, training, without_kernels

FOUR: Final = (2, 3, 4, 5)
NOT_IN_STEP: Final = ("user_annotation", "cpu_op")


def lost_on_device(events: Events, device: int, before: float) -> Events:
    """Return the events without the kernels of a device before a time."""
    return [event for event in events if not (is_kernel(event, device) and event["ts"] < before)]


def driver_calls(events: Events) -> Events:
    """Return the events with launches by the driver's function, as Triton launches kernels."""
    driver: dict[str, Any] = {"cat": "cuda_driver", "name": "cuLaunchKernelEx"}
    return [event | driver if event["cat"] == "cuda_runtime" else event for event in events]


def warm_up(events: Events, before: float, launches: bool = True) -> Events:
    """Return the events without the host ranges (and launches) before a time: the profiler only warmed up."""
    gone = NOT_IN_STEP if launches else (*NOT_IN_STEP, "cuda_runtime")
    return [event for event in events if event["ts"] >= before or event["cat"] not in gone]


def graph_replays(nodes: tuple[int, ...], graph: int = 5) -> Events:
    """Return one replay of a graph of four kernels per step. Of each replay, the first kernels are recorded."""
    events: Events = []
    for index, recorded in enumerate(nodes):
        at = 1000.0 * (index + 1)
        call = {"External id": index + 1, "cbid": 311, "correlation": index + 1}
        events += [span("user_annotation", f"ProfilerStep#{index + 2}", at, 990.0),
                   span("cuda_runtime", "cudaGraphLaunch", at + 20, 30.0, **call)]  # fmt: skip
        more = {"graph id": graph, "graph node id": graph << 32}
        events += [
            kernel(f"kernel_{node}<float>", at + 60 + 200 * node, 150.0, index + 1,
                   **more | {"graph node id": (graph << 32) + node})
            for node in range(recorded)
        ]  # fmt: skip
    return events


FILES: Final[dict[str, Content]] = {
    "r41_head_lost.json": lambda: chrome(without_kernels(training(FOUR), range(1, 7))),
    "r41_middle_lost.json": lambda: chrome(without_kernels(training((2, 3, 4, 5, 6)), (10, 11, 12))),
    "r41_second_device.json": lambda: chrome(
        lost_on_device(training(FOUR, devices=(0, 1)), 1, 2300.0), deviceProperties=A100S
    ),
    "r41_driver.json": lambda: chrome(driver_calls(without_kernels(training(FOUR), range(1, 6)))),
    "r41_all_lost.json": lambda: chrome(without_kernels(training(FOUR), range(1, 17))),
    "r41_rocm.json": lambda: chrome(without_kernels(training(FOUR, launch="hipExtModuleLaunchKernel"), (5, 6))),
    "r41_paddle.pb": lambda: paddle_pb(without_kernels(training(FOUR), range(1, 7))),
    "r41_paddle.json": lambda: paddle_json(without_kernels(training(FOUR), (13, 14))),
    "r41_nsys.sqlite": lambda: nsys(without_kernels(training(FOUR), range(1, 7))),
    "graph_partly_lost.json": lambda: chrome(graph_replays((4, 4, 2, 4))),
    "graph_complete.json": lambda: chrome(graph_replays((4, 4, 4, 4))),
    # The kernels of the warm-up, with and without their launches.
    "r72_warmup_kernels.json": lambda: chrome(warm_up(training((2, 3, 4), launch=HIP), 2000.0)),
    "r72b_warmup_kernels_only.json": lambda: chrome(warm_up(training((2, 3, 4), launch=HIP), 2000.0, launches=False)),
    "r72_two_steps.json": lambda: chrome(warm_up(training((1, 2, 3, 4)), 3000.0)),
    "r72_second_device.json": lambda: chrome(
        [event for event in warm_up(training((2, 3, 4), devices=(0, 1)), 2000.0, launches=False)
         if event["ts"] >= 2000 or event["args"]["device"] == 1],
        deviceProperties=A100S,
    ),
    "r72_paddle.pb": lambda: paddle_pb(warm_up(training((2, 3, 4)), 2000.0)),
}  # fmt: skip
