"""View ``memory_leaks``: memory that steps allocated and later steps did not free.

A block counts if a step allocated it and it is alive at the end of the last step. Blocks are not followed across a gap
in the step numbers: the step before the gap is then the last one. Blocks that the last step itself allocated do not
count. A leak recurs in every step, but optimizer state is allocated in one step only.

A queue of buffers is no leak: each step allocates a buffer and frees an older one. The queue holds as many buffers at
the end as at the beginning. So if the steps free n blocks of one size that were allocated before the first step, the
view leaves out the n newest remaining blocks of this size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, OPERATOR_NAME, RANK, added_by, count, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import NEVER, StepEnds
from perfkit_core.views.memory.memory import by_owner, chosen
from perfkit_core.views.tables import rounded_division, without_categoricals

GROUPINGS: Final = ("module", "phase", "shape", "stack", "line", "thread")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    events, ends = memory.memory_events(trace), memory.step_ends(trace)
    event, step = _staying(trace, ends)
    by = by_owner(trace, request, event, GROUPINGS)
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


def _explain(trace: Trace) -> Text:
    if not memory.has_blocks(trace):
        return memory.explain_no_blocks(trace)
    if not _followed(trace):
        return message("this view needs two consecutive training steps")
    return message("no leaks: steps freed the memory that they or earlier steps had allocated")


COLUMNS: Final = (
    replace(OPERATOR_NAME, description="name of the outermost operator that allocated the memory"),
    RANK,
    DEVICE_NAME,
    *added_by(GROUPINGS),
    count("steps", "Steps", exact=True, description="steps that left memory allocated"),
    count("of_steps", "Of steps", exact=True, description="number of steps that have a next step"),
    count("blocks", "Blocks", exact=True, adds_up=True),
    size("bytes", "Size", adds_up=True),
    size("avg_step_bytes", "Avg step", adds_up=True, description="average over the steps that have a next step"),
)

VIEW = View(
    name="memory_leaks",
    title="Memory leaks",
    description=(
        "memory that steps allocated and later steps did not free, by the outermost operator that allocated it; a leak "
        "recurs in every step, but optimizer state is allocated only once"
    ),
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="bytes",
    explain_empty=_explain,
    of_capture=_followed,
)
