"""A recording of two steps for trackers, and the figures that must be logged of it, computed by hand.

Step 4 takes 10 ms and waits 1 ms for data. Step 5 takes 20 ms and waits 3 ms. The device works for 6 ms of the 30 ms.
1000 bytes are allocated, then 500 more."""

from __future__ import annotations

import pytest

from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

MS = 1_000_000
PLACE = "cuda:0"
FIGURES = {
    "perfkit/step_time_ms": pytest.approx(15.0),
    "perfkit/data_wait_ms": pytest.approx(2.0),
    "perfkit/device_idle_ratio": pytest.approx(1 - 6 / 30),
    "perfkit/peak_memory_bytes": 1500,
}
HOSTILE = "</script><script>alert(1)</script>|\n"


def logged_trace(rank: int | None = 0) -> Trace:
    rows = []
    for number, start, dur, wait, work in ((4, 0, 10, 1, 2), (5, 10, 20, 3, 4)):
        rows += [
            host(f"step {number}", "step", start * MS, dur * MS, step=number),
            host("loader", "dataloader", start * MS, wait * MS),
            host(HOSTILE, "operator", (start + wait) * MS, 2 * MS),
            host("launch", "runtime", (start + wait) * MS, MS, correlation=number),
            device("kernel", "kernel", (start + wait + 1) * MS, work * MS, number),
        ]
    for at, size, total in ((2, 1000, 1000), (3, 500, 1500), (12, -500, 1000)):
        rows.append(
            {**host("[memory]", "memory", at * MS, 0), "device": PLACE, "bytes": size, "address": at,
             "total_bytes": total}
        )  # fmt: skip
    return trace(rows, rank=rank)
