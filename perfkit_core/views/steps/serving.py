"""View ``serving``: the steps of an inference server, by what they compute (prefill, decode, both, denoising).

The names of the ranges say what a step computes. The time of a step and the gap before it are defined in
:mod:`perfkit_core.trace.assembly.server_steps`. They are unknown for the first step.

- Busy: union of the device work that the step launched.
- Shares of families: device time of the family, divided by all device time that the steps launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.assembly.graph_capture import replayed
from perfkit_core.trace.assembly.lost_records import incomplete_steps
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.model.columns import (
    DEVICE,
    DUR,
    RANK,
    Average,
    Column,
    count,
    description,
    duration,
    key,
    share,
)
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.serving_step import KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.operators.families import event_families
from perfkit_core.views.steps.step_rows import position, step_frame
from perfkit_core.views.tables import concat, in_order_of, integers, no_rows, rounded_division, with_columns

GROUPINGS: Final = ("step", "rank")
ATTENTION: Final = "attention"
MATMUL: Final = "matmul"
EXPERTS: Final = "mixture_of_experts"
COMMUNICATION: Final = "communication"
OTHER: Final = "other"
PARTS: Final = (ATTENTION, MATMUL, EXPERTS, COMMUNICATION, OTHER)
"""Parts of the device time of a step. Kernels that communicate are communication, whatever their family."""
_COUNTS: Final = ("requests", "context_requests", "generation_requests", "tokens", "context_keys", "generation_keys")
_NUMBERS: Final = (*_COUNTS, "keys", "step_ns", "gap_ns", "busy_ns", "device_ns", *(f"{name}_ns" for name in PARTS),
                   "graph_ns")  # fmt: skip
_TYPES: Final = {
    "rank": "Int64", "step": "int64", "dur_ns": "int64", "kind": "object", **dict.fromkeys(_NUMBERS, "Int64")
}  # fmt: skip


def by_step(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per server step, sorted by rank and start, with the columns of ``--by step``. Raises
    UsageError."""
    chosen, selected = select.in_steps(trace, request), select.accounted(trace, request)
    rows, steps = serving_steps(trace)
    if not steps:
        return no_rows(_TYPES)
    order = np.lexsort((rows, trace.ints("rank")[rows]))
    rows, steps = rows[order], [steps[at] for at in order.tolist()]
    cells: dict[str, Any] = {"kind": [step.kind for step in steps]}
    for name in _COUNTS:
        cells[name] = pd.Series(pd.array([getattr(step, name) for step in steps], "Int64"))
    # a group of no requests has no keys, also if the name of the range does not say it
    keys = [
        cells[f"{group}_keys"].mask(cells[f"{group}_requests"].eq(0).fillna(False), 0)
        for group in ("context", "generation")
    ]
    cells["keys"] = keys[0] + keys[1]
    for name, of_step in (("step_ns", "time_ns"), ("gap_ns", "gap_ns")):
        numbers = pd.array([getattr(step, of_step) for step in steps], "Int64")
        numbers[incomplete_steps(trace)[rows]] = pd.NA  # a step ends with its device work
        cells[name] = numbers
    table = with_columns(step_frame(trace, rows), cells | _device(trace, rows, selected))
    result: pd.DataFrame = table[list(_TYPES)][chosen[rows]].reset_index(drop=True)
    return result


def _device(trace: Trace, rows: Any, selected: Any) -> dict[str, Any]:
    """Return the device time of each step: the union, the parts, and the part that replays of graphs launched. Only
    work in the mask ``selected`` counts."""
    device = trace.rows("kind", *DEVICE_WORK)
    work = np.flatnonzero(device & (trace.ints("step") >= 0) & selected)
    step = position(trace, rows, trace.ints("rank")[work], trace.ints("step")[work])
    work, step = work[step >= 0], step[step >= 0]
    dur, families = trace.ints("dur_ns")[work], event_families(trace)
    number = np.array([PARTS.index(name) if name in PARTS else PARTS.index(OTHER) for name in families.values] + [-1])
    part = np.where(families.codes[work] < 0, PARTS.index(OTHER), number[families.codes[work]])
    part[communication(trace).device[work]] = PARTS.index(COMMUNICATION)
    launched = trace.ints("rank")[device & (trace.ints("launched_by") != NO_ROW)]
    recorded = np.isin(trace.ints("rank")[rows], launched)  # without launches, the steps of device work are unknown
    recorded &= ~incomplete_steps(trace)[rows]

    def total(mask: Any) -> Any:
        return integers(groupby.sums(step[mask], len(rows), dur[mask]), recorded)

    busy = intervals.union_length_by(step, len(rows), trace.ints("start_ns")[work], trace.end_ns[work])
    return {
        "busy_ns": integers(busy, recorded),
        "device_ns": total(np.ones(len(work), np.bool_)),
        **{f"{name}_ns": total(part == at) for at, name in enumerate(PARTS)},
        "graph_ns": total(replayed(trace)[0][work]),
    }


def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
    """Return one row per step kind, or per step (``--by step``), of all ranks, with :data:`COLUMNS`."""
    steps = concat(partials)
    if "step" in request.by or steps.empty:
        return steps if "step" in request.by else pd.DataFrame(columns=[c.name for c in COLUMNS if not c.by])
    keys = ["rank", "kind"] if "rank" in request.by else ["kind"]
    rows = [
        {**dict(zip(keys, name, strict=True)), **_of_kind(group)}
        for name, group in steps.groupby(keys, dropna=False, sort=False)
    ]
    table = in_order_of(pd.DataFrame(rows), "kind", KINDS)
    integer_columns = [name for name in map(str, table) if name.endswith("_ns") or name in ("tokens", "rank")]
    return table.astype(dict.fromkeys(integer_columns, "Int64"))


def _of_kind(steps: pd.DataFrame) -> dict[str, Any]:
    """Return the numbers of the steps of one kind. A number is NA if no step has it."""
    timed, device = steps[steps["step_ns"].notna()], _sum(steps["device_ns"])
    time = _sum(timed["step_ns"])

    def both(numerator: str, denominator: str) -> tuple[int | None, int | None]:
        """Return the sums over the steps that have both numbers."""
        complete = steps[[numerator, denominator]].dropna()
        return _sum(complete[numerator]), _sum(complete[denominator])

    return {
        "steps": len(steps),
        "requests": _ratio(_sum(steps["requests"]), int(steps["requests"].notna().sum())),
        "step_ns": _mean(time, len(timed)),
        "token_ns": _mean(*both("step_ns", "tokens")),
        "tokens_per_s": _ratio(*both("tokens", "step_ns"), 1e9),
        "tokens": _sum(steps["tokens"]),
        "busy_ns": _mean(_sum(steps["busy_ns"]), int(steps["busy_ns"].notna().sum())),
        "busy_ratio": _ratio(*both("busy_ns", "step_ns")),
        "gap_ns": _mean(_sum(timed["gap_ns"]), int(timed["gap_ns"].notna().sum())),
        "gap_ratio": _ratio(_sum(timed["gap_ns"]), time),
        **{f"{name}_ratio": _ratio(_sum(steps[f"{name}_ns"]), device) for name in (*PARTS, "graph")},
        "busy_token_ns": _mean(*both("busy_ns", "tokens")),
        "range_ns": _mean(_sum(steps["dur_ns"]), len(steps)),
        "keys": _ratio(*both("keys", "requests")),
    }


def _sum(values: pd.Series[Any]) -> int | None:
    numbers = values.dropna()
    return int(numbers.sum()) if len(numbers) else None


def _mean(total: int | None, number: int | None) -> Any:
    return int(rounded_division(total, number)) if total is not None and number else pd.NA


def _ratio(part: int | None, total: int | None, factor: float = 1.0) -> float:
    return part / total * factor if part is not None and total else float("nan")


_TITLES: Final = {ATTENTION: "Attention", MATMUL: "Matmul", EXPERTS: "Experts", COMMUNICATION: "Communication",
                  OTHER: "Other"}  # fmt: skip
_OF_DEVICE: Final = "share of the device time that the steps launched"
_ALWAYS: Final = (
    key("kind", "Kind", words=KINDS),
    description("requests", "Requests per step", "requests of a step; average", unit="count"),
    duration("step_ns", "Time", "time from the end of the previous step to the end of the step; average"),
    count(
        "tokens",
        "Tokens, all steps",
        "tokens that the steps compute, added up "
        "over all ranks: ranks of a tensor-parallel group compute the same tokens",
        exact=True,
        over="rows",
    ),
    count(
        "keys", "KV length", "keys that attention reads; average per request, with --by step sum", merge=Average("keys")
    ),
    duration("busy_ns", "Device busy", "union of the device work of a step; average", place=DEVICE),
    duration("gap_ns", "Gap before step", "idle time of the device before the first work of a step; average"),
)
_OF_KINDS: Final = (
    description("steps", "Steps", "number of steps, added up over all ranks", unit="count", exact=True),
    duration("token_ns", "Step time per token", "step time divided by the tokens of all requests"),
    count("tokens_per_s", "Tokens/s", "tokens per second of one rank"),
    duration("range_ns", "Host range", "duration of the range on the host; average", merge=Average("range_ns")),
    duration("busy_token_ns", "Device busy per token", place=DEVICE, merge=Average("busy_token_ns")),
    share("busy_ratio", "Device busy", place=DEVICE, description="share of the time of the steps"),
    share("gap_ratio", "Gap before step", description="share of the time of the steps"),
    *(share(f"{name}_ratio", _TITLES[name], place=DEVICE, description=_OF_DEVICE) for name in PARTS),
    share("graph_ratio", "Graph replays", place=DEVICE, description=_OF_DEVICE),
)
_OF_STEPS: Final = (
    key("step", "Step", thing="step"),
    replace(DUR, description="duration of the range on the host"),
    count("context_requests", "Prefill requests", exact=True),
    count("generation_requests", "Decode requests", exact=True),
    count("context_keys", "Prefill KV length", exact=True),
    count("generation_keys", "Decode KV length", exact=True),
    duration("device_ns", "Device", "device work of the step, summed over streams", place=DEVICE),
    *(duration(f"{name}_ns", _TITLES[name], place=DEVICE) for name in PARTS),
    duration("graph_ns", "Graph replays", place=DEVICE),
)
COLUMNS: Final[tuple[Column, ...]] = (
    replace(RANK, by=("rank", "step")),
    *_ALWAYS,
    *_OF_KINDS,
    *(replace(column, by=("step",)) for column in _OF_STEPS),
)

VIEW = View(
    name="serving",
    title="Server steps",
    description="time, batch, tokens and device time of prefill, decode and other steps of an inference server",
    table=Reduced(by_step, merge),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message(
        "no steps of an inference server were recorded (docs/serving.md lists the names of their ranges)"
    ),
)
