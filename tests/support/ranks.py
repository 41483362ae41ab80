"""Ranks of a synthetic job whose collectives, delays and clocks are known."""

from __future__ import annotations

import json
from typing import Any

from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL128(ncclDevKernelArgsStorage<4096ul>)"


def rank(
    number: int, *collectives: dict[str, Any], clock: int = 0, step_ns: int = 5000, world: int = 2, more: Any = ()
) -> Trace:
    """Return a rank with one step from 0 to ``step_ns``, a kernel for each collective, and ``more`` events. ``clock``
    is added to the times of the step and the collectives."""
    rows = [host("step 7", "step", clock, step_ns, step=7)]
    for index, one in enumerate(collectives):
        start = clock + one.pop("start_ns")
        rows.append(host("launch", "runtime", clock + 1 + index, 1, correlation=index))
        rows.append(device(one.pop("name", KERNEL), "kernel", start, one.pop("dur_ns"), index, **one))
    made = trace([*rows, *more], rank=number)
    return made.with_meta(world_size=world)


def collective(
    start_ns: int, end_ns: int, size: int = 1000, name: str = "all_reduce", group: str | None = "dp", **more: Any
) -> dict[str, Any]:
    """Return an all-reduce of a group of two ranks. Its times are read from the true clock."""
    told = {"name": name, "group": group, "group_size": 2, **more}
    args = json.dumps({"grid": [1], "collective": {key: value for key, value in told.items() if value is not None}})
    return {"start_ns": start_ns, "dur_ns": end_ns - start_ns, "bytes": size, "args": args}
