"""View ``memory_peak``: the memory allocated at the peak, by the outermost operator that allocated it.

The operator is known for blocks that were allocated in the recording and not freed before the peak. The rest of the
total was allocated before the recording, or is not explained by the events.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import matches
from perfkit_core.base.language.messages import mark
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, OPERATOR_NAME, RANK, RATIO, added_by, count, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING
from perfkit_core.views.memory.memory import by_owner
from perfkit_core.views.tables import without_categoricals

GROUPINGS: Final = ("module", "phase", "shape", "stack", "line", "step", "thread")
BEFORE: Final = mark("(allocated before the recording)")
UNEXPLAINED: Final = mark("(not explained by the events)")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per operator and device. If the request names steps, the peak within these steps is used."""
    events, level, blocks = memory.memory_events(trace), memory.levels(trace), memory.blocks(trace)
    pools = len(events.pool_rank)
    position, total = memory.peaks(trace, request)
    event = blocks.allocation[blocks.alive(position[events.pool[blocks.allocation]])]
    by = by_owner(trace, request, event, GROUPINGS)
    frame = pd.DataFrame({**by, "blocks": np.ones(len(event), np.int64), "bytes": events.change[event]})
    sums = frame.groupby(list(by), sort=False, dropna=False, observed=True)[["blocks", "bytes"]].sum().reset_index()
    sums = without_categoricals(sums).astype({"blocks": "Int64", "bytes": "Int64"})

    # the sizes of the blocks may not add up to the total of the pool: add rows for the rest
    block_bytes = groupby.sums(events.pool[event], pools, events.change[event])
    old = blocks.unmatched[blocks.unmatched <= position[events.pool[blocks.unmatched]]]
    freed = np.zeros(pools, np.int64)
    np.add.at(freed, events.pool[old], events.change[old])
    rest: list[dict[str, Any]] = []
    for number in np.flatnonzero(total != MISSING):
        older = int(level.start[number]) + int(freed[number])
        sizes = {BEFORE: older, UNEXPLAINED: int(total[number]) - int(block_bytes[number]) - older}
        rest += [{"name": name, "pool": number, "bytes": size} for name, size in sizes.items() if size]
    beyond = pd.DataFrame(rest, columns=["name", "pool", "bytes"]).astype({"pool": "int64", "bytes": "Int64"})

    result = pd.concat([sums, beyond]).reset_index(drop=True)
    pool, bytes_ = result["pool"].to_numpy(np.int64), result["bytes"].to_numpy(np.int64)
    listed = np.zeros(pools, np.int64)
    np.add.at(listed, pool, bytes_)
    denominator = np.where(total == MISSING, listed, total)[pool]
    places = pd.DataFrame({"name": result["name"], **memory.pool_columns(trace, events, pool)})
    result = pd.concat([places, result.drop(columns=["name", "pool"])], axis=1)
    result["ratio"] = bytes_ / np.where(denominator == 0, 1, denominator)
    if request.pattern is not None:
        result = result[matches(result["name"].to_list(), request.pattern)]
    return result.reset_index(drop=True)


COLUMNS: Final = (
    replace(OPERATOR_NAME, description="name of the outermost operator that allocated the memory"),
    RANK,
    DEVICE_NAME,
    *added_by(GROUPINGS),
    count("blocks", "Blocks", exact=True, adds_up=True),
    size("bytes", "Size", adds_up=True),
    replace(RATIO, description="share of the total at the peak, or of the sum of the rows if totals are unknown"),
)

VIEW = View(
    name="memory_peak",
    title="Memory at the peak",
    description="memory allocated at the peak, by the outermost operator that allocated it",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="bytes",
    explain_empty=memory.explain_no_blocks,
    of_capture=memory.has_blocks,
)
