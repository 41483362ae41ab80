"""All ranks of a trace on the clock of the first one, by the collectives they share (``clock_offsets``)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.analyses.communication.clock_offsets import clock_offsets
from perfkit_core.analyses.communication.partials import all_collectives, reduce_each
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import Finding, Trace

_LEAST_NS: Final = 500
_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_FROM: Final = 10
"""From how many of a unit on it is used: 1,234 µs say more than 1 ms."""


def aligned(trace: Trace) -> Trace:
    """The trace with the starts of each rank less the offset of its clock, and a finding that says so.

    A rank whose clock cannot be told keeps its times, with a finding. Durations and everything else stay.
    """
    offsets = clock_offsets(all_collectives(reduce_each(trace, ViewRequest())))
    if len(offsets) < 2:
        text = in_english("nothing to align: no collectives of several ranks were recorded")
        return trace.with_findings(Finding("clocks-not-aligned", text))
    told = offsets["offset_ns"].dropna().astype("int64")
    found = [Finding("clocks-aligned", _shifted(told))] if len(told) > 1 else []
    unknown = offsets.index[offsets["offset_ns"].isna()].tolist()
    if unknown:
        text = in_english(
            "the clocks of {unknown} of {count} ranks could not be aligned: {ranks} (--view clocks tells why)",
            unknown=len(unknown),
            count=len(offsets),
            ranks=_listed(unknown),
        )
        found.append(Finding("clocks-not-aligned", text))
    return _moved(trace, told).with_findings(*found)


def _moved(trace: Trace, offsets: pd.Series[int]) -> Trace:
    ranks, code = np.unique(trace.ints("rank"), return_inverse=True)
    shift = offsets.reindex(ranks, fill_value=0).to_numpy(np.int64)[code]
    start = trace.ints("start_ns") - shift
    window = (int(start.min()), int((start + trace.ints("dur_ns")).max())) if len(start) else None
    return trace.with_columns(start_ns=pa.array(start)).with_meta(window_ns=window)


def _shifted(offsets: pd.Series[int]) -> str:
    low, high = int(offsets.iloc[1:].min()), int(offsets.iloc[1:].max())
    return in_english(_apart(low, high), rank=offsets.index[0], behind=_spelled(abs(low)), ahead=_spelled(abs(high)))


def _apart(low: int, high: int) -> str:
    """How the other clocks went, no finer than the ends of a collective tell."""
    behind, ahead = low <= -_LEAST_NS, high >= _LEAST_NS
    if behind and ahead:
        return in_english(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {behind} behind or up "
            "to {ahead} ahead"
        )
    if behind:
        return in_english(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {behind} behind"
        )
    if ahead:
        return in_english(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {ahead} ahead"
        )
    return in_english("clocks are set to that of rank {rank}, by common collectives: the others were as it is")


def _spelled(size_ns: int) -> str:
    unit, text = next(((unit, text) for unit, text in _UNITS if size_ns >= _FROM * unit), _UNITS[-1])
    return f"{(size_ns + unit // 2) // unit:,} {text}"


def _listed(ranks: list[int], most: int = 8) -> str:
    more = "" if len(ranks) <= most else f" and {len(ranks) - most} more"
    return "rank " + ", ".join(map(str, ranks[:most])) + more
