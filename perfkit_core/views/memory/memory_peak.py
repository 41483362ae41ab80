"""What was alive when most memory was allocated?

Blocks that were allocated in the recording and not yet freed, by the outermost operator that allocated them. What the
total holds beyond them was allocated before the recording, or cannot be explained by the events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray, matches
from perfkit_core.model.columns import DEVICE_NAME, NAME, RANK, RATIO, added_by, count, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.memory.events import (
    MISSING,
    Blocks,
    Levels,
    MemoryEvents,
    blocks,
    explain_no_blocks,
    has_blocks,
    levels,
    memory_events,
    peak,
    pool_columns,
)
from perfkit_core.views.memory.memory import keys, names, outermost
from perfkit_core.views.select import selected
from perfkit_core.views.tables import plain

GROUPINGS = ("module", "phase", "shape", "stack", "step", "thread")
BEFORE: Final = "(allocated before the recording)"
UNEXPLAINED: Final = "(not explained by the events)"


@dataclass(frozen=True, slots=True)
class Peaks:
    """Of each pool, shape (pools,): ``position`` of the event after which most was allocated (-1: no event counts) and
    the ``total`` then (MISSING: not recorded)."""

    position: IntArray
    total: IntArray


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an operator and device; see :data:`COLUMNS`. With ``steps``: the peak in them."""
    found = memory_events(trace)
    level, made = levels(trace), blocks(trace)
    peaks = _peaks(trace, found, level, request)
    alive = np.flatnonzero(made.alive(peaks.position[found.pool[made.allocation]]))
    event = made.allocation[alive]
    owner = outermost(trace, found.row[event])
    by = {"name": names(trace, owner), "pool": found.pool[event]}
    by |= keys(trace, request, found.row[event], owner, GROUPINGS)
    frame = pd.DataFrame({**by, "blocks": np.ones(len(event), np.int64), "bytes": found.change[event]})
    sums = frame.groupby(list(by), sort=False, dropna=False, observed=True)[["blocks", "bytes"]].sum().reset_index()
    sums = plain(sums).astype({"blocks": "Int64", "bytes": "Int64"})
    known = np.bincount(found.pool[event], found.change[event], len(found.pool_rank)).astype(np.int64)
    return _finished(trace, request, found, peaks, pd.concat([sums, _rest(found, level, made, peaks, known)]))


def _peaks(trace: Trace, found: MemoryEvents, level: Levels, request: ViewRequest) -> Peaks:
    counted = selected(trace, replace(request, pattern=None))[found.row]
    position = np.full(len(found.pool_rank), -1, np.int64)
    total = np.full(len(found.pool_rank), MISSING)
    at = np.flatnonzero(counted)
    pools = np.unique(found.pool[at])
    for pool, mine in zip(pools, np.split(at, np.searchsorted(found.pool[at], pools[1:])), strict=False):
        position[pool], most = peak(level, found, mine)
        total[pool] = most if level.start[pool] != MISSING else MISSING
    return Peaks(position, total)


def _rest(found: MemoryEvents, level: Levels, made: Blocks, peaks: Peaks, known: IntArray) -> pd.DataFrame:
    """What the total of each pool holds beyond the known blocks."""
    rows: list[dict[str, Any]] = []
    old = made.unmatched[made.unmatched <= peaks.position[found.pool[made.unmatched]]]
    freed = np.zeros(len(found.pool_rank), np.int64)
    np.add.at(freed, found.pool[old], found.change[old])
    for pool in np.flatnonzero(peaks.total != MISSING):
        older = int(level.start[pool] + freed[pool])
        rest = int(peaks.total[pool] - known[pool]) - older
        sizes = {BEFORE: older, UNEXPLAINED: rest}
        rows += [{"name": name, "pool": pool, "bytes": size} for name, size in sizes.items() if size]
    return pd.DataFrame(rows, columns=["name", "pool", "bytes"]).astype({"pool": "int64", "bytes": "Int64"})


def _finished(
    trace: Trace, request: ViewRequest, found: MemoryEvents, peaks: Peaks, rows: pd.DataFrame
) -> pd.DataFrame:
    pool = rows.pop("pool").to_numpy(np.int64)
    size = rows["bytes"].to_numpy(np.int64)
    listed = np.zeros(len(found.pool_rank), np.int64)
    np.add.at(listed, pool, size)
    whole = np.where(peaks.total == MISSING, listed, peaks.total)[pool]
    rows = rows.reset_index(drop=True)
    places = pd.DataFrame({"name": rows.pop("name"), **pool_columns(trace, found, pool)})
    rows = pd.concat([places, rows, pd.DataFrame({"ratio": size / np.where(whole == 0, 1, whole)})], axis=1)
    if request.pattern is not None:
        rows = rows[matches(rows["name"].to_list(), request.pattern)]
    return rows.reset_index(drop=True)


COLUMNS: Final = (
    replace(NAME, description="the outermost operator that allocated it"),
    RANK,
    DEVICE_NAME,
    *added_by(GROUPINGS),
    count("blocks", "Blocks", exact=True, adds_up=True),
    size("bytes", "Size", adds_up=True),
    replace(RATIO, description="of the total at the peak; of the sum of the rows where no totals were recorded"),
)

VIEW = View(
    name="memory_peak",
    title="Memory at the peak",
    description="what was alive when most was allocated, by the outermost operator that allocated it",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="bytes",
    explain_empty=explain_no_blocks,
    of_capture=has_blocks,
)
