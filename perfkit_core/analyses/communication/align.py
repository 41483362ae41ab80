"""All ranks of a trace on the clock of the first one, by the collectives they share (``clock_offsets``)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.analyses.communication.clock_offsets import clock_offsets
from perfkit_core.analyses.communication.partials import all_collectives, reduce_each
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import Finding, Trace

_EQUAL_NS: Final = 1_000
_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (_EQUAL_NS, "µs"))
_FROM: Final = 10
"""From how many of a unit on it is used: 1,234 µs say more than 1 ms."""


def aligned(trace: Trace) -> Trace:
    """The trace with the starts of each rank less the offset of its clock, and a finding that says so.

    A rank whose clock cannot be told keeps its times, with a finding. Durations and everything else stay.
    """
    offsets = clock_offsets(all_collectives(reduce_each(trace, ViewRequest())))
    if len(offsets) < 2:
        text = "nothing to align: no collectives of several ranks were recorded"
        return trace.with_findings(Finding("clocks-not-aligned", text))
    told = offsets["offset_ns"].dropna().astype("int64")
    found = [Finding("clocks-aligned", _shifted(told))] if len(told) > 1 else []
    unknown = offsets.index[offsets["offset_ns"].isna()].tolist()
    if unknown:
        text = f"the clocks of {len(unknown)} of {len(offsets)} ranks could not be aligned: {_listed(unknown)}"
        found.append(Finding("clocks-not-aligned", text + " (--view clocks tells why)"))
    return _moved(trace, told).with_findings(*found)


def _moved(trace: Trace, offsets: pd.Series[int]) -> Trace:
    ranks, code = np.unique(trace.ints("rank"), return_inverse=True)
    shift = offsets.reindex(ranks, fill_value=0).to_numpy(np.int64)[code]
    start = trace.ints("start_ns") - shift
    window = (int(start.min()), int((start + trace.ints("dur_ns")).max())) if len(start) else None
    return trace.with_columns(start_ns=pa.array(start)).with_meta(window_ns=window)


def _shifted(offsets: pd.Series[int]) -> str:
    low, high = int(offsets.iloc[1:].min()), int(offsets.iloc[1:].max())
    return f"clocks are set to that of rank {offsets.index[0]}, by common collectives: {_apart(low, high)}"


def _apart(low: int, high: int) -> str:
    """How the clocks of the others went; no nearer than the ends of a collective tell."""
    if -_EQUAL_NS < low and high < _EQUAL_NS:
        return "the others went alike, to the microsecond"
    if low == high:
        return f"the others were {_by(low)}"
    return f"the others were between {_by(low)} and {_by(high)}"


def _by(offset_ns: int) -> str:
    size = abs(offset_ns)
    unit, text = next((unit, text) for unit, text in _UNITS if size >= _FROM * unit or unit == _EQUAL_NS)
    return f"{(size + unit // 2) // unit:,} {text} {'behind' if offset_ns < 0 else 'ahead'}"


def _listed(ranks: list[int], most: int = 8) -> str:
    more = "" if len(ranks) <= most else f" and {len(ranks) - most} more"
    return "rank " + ", ".join(map(str, ranks[:most])) + more
