"""The overview as Paddle's ``summary()`` has it, by the framework's own event types.

Time is the union over threads or streams of what counts (see ``native_rules``), with two exceptions: phases have the
calls and the sums of the table of phases; communication is that of the distributed summary, on the host and once more
on the device. Shares are of the step time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.communication.distributed_native import distinct, native_communication
from perfkit_core.analyses.native_rules import counted, native_steps
from perfkit_core.analyses.select import in_steps, selected
from perfkit_core.analyses.span import rank_codes, union_ns
from perfkit_core.analyses.step.model_native import phase_rows
from perfkit_core.analyses.tables import ratio
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import COMMUNICATION, DEVICE_WORK
from perfkit_core.trace import BoolArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns category, place, calls, time_ns, ratio."""
    chosen, here = selected(trace, request), in_steps(trace, request)
    codes = trace.codes("category")
    types = _types(trace)
    rows = list(_unions(trace, chosen & counted(trace) & ~np.isin(codes.codes, types.get(COMMUNICATION, []))))
    phases = {codes.values[code]: row for row in phase_rows(trace, here) for code in types.get(row["phase"], [])}
    rows = [row | _as_phase(phases[row["category"]]) if row["category"] in phases else row for row in rows]
    name = next((codes.values[code] for code in types.get(COMMUNICATION, [])), COMMUNICATION.capitalize())
    rows += _communication(trace, chosen, name)
    result = pd.DataFrame(rows, columns=["category", "place", "calls", "time_ns"])
    return result.assign(ratio=ratio(result["time_ns"], union_ns(trace, native_steps(trace, here))))


def _types(trace: Trace) -> dict[str, list[int]]:
    """For each kind of host event the categories that hold nothing else."""
    kinds, categories = trace.codes("kind"), trace.codes("category")
    pairs = np.unique(np.stack([categories.codes[trace.host], kinds.codes[trace.host]]), axis=1)
    single = np.bincount(pairs[0][pairs[0] >= 0], minlength=len(categories.values)) == 1
    found: dict[str, list[int]] = {}
    for category, kind in pairs.T.tolist():
        if category >= 0 and single[category]:
            found.setdefault(kinds.values[kind], []).append(category)
    return found


def _unions(trace: Trace, counts: BoolArray) -> Iterator[dict[str, Any]]:
    codes = trace.codes("category")
    rank, ranks = rank_codes(trace)
    for place, mask in (("host", counts & trace.host), ("device", counts & trace.rows("kind", *DEVICE_WORK))):
        rows = np.flatnonzero(mask & (codes.codes >= 0))
        calls = np.bincount(codes.codes[rows], minlength=len(codes.values))
        group = codes.codes[rows].astype(np.int64) * ranks + rank[rows]
        start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
        time = intervals.union_length_by(group, len(codes.values) * ranks, start, end).reshape(-1, ranks).sum(axis=1)
        for code in np.flatnonzero(calls).tolist():
            yield _row(codes.values[code], place, int(calls[code]), int(time[code]))


def _communication(trace: Trace, chosen: BoolArray, category: str) -> Iterator[dict[str, Any]]:
    talk = native_communication(trace)
    for place, mask in (("host", chosen & talk.host), ("device", chosen & talk.device)):
        if mask.any():
            yield _row(category, place, distinct(trace, mask), union_ns(trace, mask))


def _as_phase(phase: dict[str, Any]) -> dict[str, Any]:
    return {"calls": phase["calls"], "time_ns": phase["total_cpu_ns"]}


def _row(category: str, place: str, calls: int, time_ns: int) -> dict[str, Any]:
    return {"category": category, "place": place, "calls": calls, "time_ns": time_ns}
