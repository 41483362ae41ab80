"""Check that sums over all events of a trace fit 64 bits, so that no view can overflow."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.algorithms.arrays import constant
from perfkit_core.base.algorithms.decimals import span_ns
from perfkit_core.base.language.messages import message
from perfkit_core.errors import SourceError
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace

MOST: Final = 2**62 - 1
"""Largest sum of absolute values of a column. Rounded divisions double a sum, so one bit of 64 is left free."""
_TIMES: Final = ("dur_ns", "self_ns")
_SIZES: Final = ("bytes", "flops")
_YEAR_NS: Final = 365 * 24 * 3600 * 10**9


def checked(trace: Trace) -> Trace:
    """Return the trace, without sizes or FLOPs whose sum does not fit: a data-quality warning reports this. Each view
    adds up a column over some of the events, so the sum of all absolute values limits all these sums. Raises
    SourceError if the durations, or the distance between the first and the last event, do not fit."""
    for name in _TIMES:
        if not _fits(trace, name):
            raise _too_long("the sum of all durations")
    if len(trace) and trace.magnitude("start_ns") + trace.magnitude("dur_ns") > MOST:
        first, last = span_ns(trace.ints("start_ns"), trace.ints("dur_ns"))
        if last - first > MOST or last >= 2**63:
            raise _too_long("the time from the first to the last event")
    large = [name for name in _SIZES if not _fits(trace, name)]
    if trace.magnitude("total_bytes") > MOST:
        large.append("total_bytes")
    findings = [Finding("numbers-too-large", message("the column {column} is left out, because its numbers are too "
                "large to be added up: the file is probably damaged", column=name)) for name in large]  # fmt: skip
    empty = {name: constant(None, schema.SCHEMA.field(name).type, len(trace)) for name in large}
    return trace.with_columns(**empty).with_findings(*findings) if large else trace


def _too_long(what: str) -> SourceError:
    return SourceError(
        f"the times are too large to be added up: {what} is more than {MOST // _YEAR_NS} years",
        "the file is damaged, or was not written by a profiler; of several files, one may use another unit of time",
    )


def _fits(trace: Trace, name: str) -> bool:
    return trace.magnitude(name) * len(trace) <= MOST or _sum(trace, name) <= MOST


def _sum(trace: Trace, name: str) -> int:
    """Return the exact sum of the absolute values of a column."""
    total = 0
    for chunk in trace.column(name).chunks:
        cells = chunk.drop_null().to_numpy().astype(np.int64)
        size = np.where(cells < 0, -cells, cells).view(np.uint64)  # also right for -2^63
        total += (int((size >> np.uint64(32)).sum()) << 32) + int((size & np.uint64(0xFFFFFFFF)).sum())
    return total
