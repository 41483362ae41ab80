"""Views of blocks of memory by the outermost operator that allocated them: ``memory_peak`` and ``memory_leaks``.

At the peak, the operator is known for blocks that were allocated in the recording and not freed before the peak. The
rest of the total was allocated before the recording, or is not explained by the events.

A block is left over if a step allocated it and it is alive at the end of the last step. Blocks are not followed across
a gap in the step numbers: the step before the gap is then the last one. Blocks that the last step itself allocated do
not count. A leak recurs in every step, but optimizer state is allocated in one step only.

A queue of buffers is no leak: each step allocates a buffer and frees an older one. The queue holds as many buffers at
the end as at the beginning. So if the steps free n blocks of one size that were allocated before the first step, the
view leaves out the n newest remaining blocks of this size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import IntArray, matches
from perfkit_core.base.language.messages import Text, mark, message
from perfkit_core.plugins.contracts import Listed, View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, OPERATOR_NAME, RANK, RATIO, added_by, count, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING, NEVER, StepEnds
from perfkit_core.views.memory.memory import by_owner, chosen
from perfkit_core.views.tables import rounded_division, without_categoricals

PEAK_GROUPINGS: Final = ("module", "phase", "shape", "stack", "line", "step", "thread")
BEFORE: Final = mark("(allocated before the recording)")
UNEXPLAINED: Final = mark("(not explained by the events)")


def peak_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per operator and device. If the request names steps, the peak within these steps is used."""
    events, level, blocks = memory.memory_events(trace), memory.levels(trace), memory.blocks(trace)
    pools = len(events.pool_rank)
    position, total = memory.peaks(trace, request)
    event = blocks.allocation[blocks.alive(position[events.pool[blocks.allocation]])]
    by = by_owner(trace, request, event, PEAK_GROUPINGS)
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


PEAK_COLUMNS: Final = (
    replace(OPERATOR_NAME, description="name of the outermost operator that allocated the memory"),
    RANK,
    DEVICE_NAME,
    *added_by(PEAK_GROUPINGS),
    count("blocks", "Blocks", exact=True, over="rows"),
    size("bytes", "Size", over="rows"),
    replace(RATIO, description="share of the total at the peak, or of the sum of the rows if totals are unknown"),
)

PEAK_VIEW = View(
    name="memory_peak",
    title="Memory at the peak",
    description="memory allocated at the peak, by the outermost operator that allocated it",
    table=Listed(peak_table, of_capture=memory.has_blocks),
    columns=PEAK_COLUMNS,
    groupings=PEAK_GROUPINGS,
    order="bytes",
    explain_empty=memory.explain_no_blocks,
)


LEAKS_GROUPINGS: Final = ("module", "phase", "shape", "stack", "line", "thread")


def leaks_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    events, ends = memory.memory_events(trace), memory.step_ends(trace)
    event, step = _staying(trace, ends)
    by = by_owner(trace, request, event, LEAKS_GROUPINGS)
    frame = pd.DataFrame({**by, "step": step, "blocks": 1, "bytes": events.change[event]})
    frame = frame[chosen(trace, request, events.row[event], by["name"])]
    grouped = frame.groupby(list(by), sort=False, dropna=False, observed=True)
    sums = grouped.agg(steps=("step", "nunique"), blocks=("blocks", "sum"), bytes=("bytes", "sum")).reset_index()
    sums = without_categoricals(sums)
    pool = sums["pool"].to_numpy(np.int64)
    of_steps = np.bincount(ends.pool[ends.follower >= 0], minlength=len(events.pool_rank))[pool]
    columns: dict[str, Any] = {"name": sums["name"], **memory.pool_columns(trace, events, pool)}
    columns |= {column: sums[column] for column in by if column not in ("name", "pool")}
    columns |= {"steps": sums["steps"], "of_steps": of_steps, "blocks": sums["blocks"], "bytes": sums["bytes"]}
    average = rounded_division(sums["bytes"].to_numpy(np.int64), of_steps)
    return pd.DataFrame({**columns, "avg_step_bytes": average})


def _staying(trace: Trace, ends: StepEnds) -> tuple[IntArray, IntArray]:
    """Return the blocks that the view lists, as two arrays: positions of their allocations, indexes of their steps."""
    change, blocks = memory.memory_events(trace).change, memory.blocks(trace)
    run_last = np.append(ends.run_last, -1)
    step = ends.of(blocks.allocation)
    run = run_last[step]
    alive = (step >= 0) & blocks.alive(np.append(ends.last, -1)[run])
    event, step, run = blocks.allocation[alive], step[alive], run[alive]

    # sizes of the blocks that a series of consecutive steps freed, but did not allocate
    freed = blocks.end != NEVER
    free = np.concatenate([blocks.end[freed], blocks.unmatched])
    allocation = np.concatenate([blocks.allocation[freed], np.full(len(blocks.unmatched), -1)])
    step_of_free = ends.of(free)
    run_of_free = run_last[step_of_free]
    old = (step_of_free >= 0) & (allocation < np.append(ends.run_begin(), 0)[run_of_free]) & (change[free] < 0)
    old_frees = pd.DataFrame({"run": run_of_free[old], "size": -change[free[old]]})

    # for each of these older blocks, leave out the newest remaining block of the same size
    newest_first = pd.DataFrame({"run": run, "size": change[event]})[::-1]
    newer = newest_first.groupby(["run", "size"]).cumcount().to_numpy()
    frees = old_frees.groupby(["run", "size"]).size().rename("freed").reset_index()
    count = newest_first.merge(frees, how="left", on=["run", "size"])["freed"].fillna(0).to_numpy()
    stays = ~(newer < count)[::-1] & (ends.follower[step] >= 0)
    return event[stays], step[stays]


def _followed(trace: Trace) -> bool:
    return memory.has_blocks(trace) and bool((memory.step_ends(trace).follower >= 0).any())


def _explain_no_leaks(trace: Trace) -> Text:
    if not memory.has_blocks(trace):
        return memory.explain_no_blocks(trace)
    if not _followed(trace):
        return message("this view needs two consecutive training steps")
    return message("no leaks: steps freed the memory that they or earlier steps had allocated")


LEAKS_COLUMNS: Final = (
    replace(OPERATOR_NAME, description="name of the outermost operator that allocated the memory"),
    RANK,
    DEVICE_NAME,
    *added_by(LEAKS_GROUPINGS),
    count("steps", "Steps", "steps that left memory allocated", exact=True),
    count("of_steps", "Of steps", "number of steps that have a next step", exact=True),
    count("blocks", "Blocks", exact=True, over="rows"),
    size("bytes", "Size", over="rows"),
    size("avg_step_bytes", "Avg step", "average over the steps that have a next step", over="rows"),
)

LEAKS_VIEW = View(
    name="memory_leaks",
    title="Memory leaks",
    description=(
        "memory that steps allocated and later steps did not free, by the outermost operator that allocated it; a leak "
        "recurs in every step, but optimizer state is allocated only once"
    ),
    table=Listed(leaks_table, of_capture=_followed),
    columns=LEAKS_COLUMNS,
    groupings=LEAKS_GROUPINGS,
    order="bytes",
    explain_empty=_explain_no_leaks,
)
