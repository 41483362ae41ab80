"""What was allocated in a step and stays?

A block stays when it is alive at the end of the next step and of the last one recorded without a gap, and no block of
its size from before those steps was freed meanwhile in its place (a queue longer than the recording). Steady training
leaves nothing so; what is made once (the state of an optimizer) stays from one step, a leak from every step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import DEVICE_NAME, NAME, RANK, added_by, count, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.memory.events import (
    NEVER,
    Blocks,
    MemoryEvents,
    StepEnds,
    blocks,
    explain_no_blocks,
    has_blocks,
    memory_events,
    pool_columns,
    step_ends,
)
from perfkit_core.views.memory.memory import chosen, keys, names, outermost
from perfkit_core.views.tables import plain, rounded_division

GROUPINGS = ("module", "phase", "shape", "stack", "thread")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an operator and device; see :data:`COLUMNS`."""
    found = memory_events(trace)
    ends = step_ends(trace, found)
    event, step = _staying(found, ends, blocks(trace))
    owner = outermost(trace, found.row[event])
    name = names(trace, owner)
    by = {"name": name, "pool": found.pool[event]} | keys(trace, request, found.row[event], owner, GROUPINGS)
    frame = pd.DataFrame({**by, "step": step, "blocks": 1, "bytes": found.change[event]})
    frame = frame[chosen(trace, request, found.row[event], name)]
    grouped = frame.groupby(list(by), sort=False, dropna=False, observed=True)
    sums = grouped.agg(steps=("step", "nunique"), blocks=("blocks", "sum"), bytes=("bytes", "sum")).reset_index()
    return _finished(trace, found, ends, plain(sums))


def _staying(found: MemoryEvents, ends: StepEnds, made: Blocks) -> tuple[IntArray, IntArray]:
    """Positions of the allocations of blocks that stay, and the row of their step."""
    step = ends.of(made.allocation)
    run = np.append(ends.run_last, -1)[step]
    alive = (step >= 0) & made.alive(np.append(ends.last, -1)[run])
    event, step, run = made.allocation[alive], step[alive], run[alive]
    stays = ~_replaces(found, event, run, _old_frees(found, ends, made)) & (ends.follower[step] >= 0)
    return event[stays], step[stays]


def _old_frees(found: MemoryEvents, ends: StepEnds, made: Blocks) -> pd.DataFrame:
    """Columns run, size: frees in the steps of a run of what was allocated before it."""
    freed = made.end != NEVER
    free = np.concatenate([made.end[freed], made.unmatched])
    allocation = np.concatenate([made.allocation[freed], np.full(len(made.unmatched), -1)])
    step = ends.of(free)
    run = np.append(ends.run_last, -1)[step]
    old = (step >= 0) & (allocation < np.append(ends.run_begin(), 0)[run]) & (found.change[free] < 0)
    return pd.DataFrame({"run": run[old], "size": -found.change[free[old]]})


def _replaces(found: MemoryEvents, event: IntArray, run: IntArray, old: pd.DataFrame) -> BoolArray:
    """True for as many of the newest blocks of each size as there were old ones freed."""
    newest_first = pd.DataFrame({"run": run, "size": found.change[event]})[::-1]
    newer = newest_first.groupby(["run", "size"]).cumcount()
    freed = old.groupby(["run", "size"]).size().rename("freed").reset_index()
    count = newest_first.merge(freed, how="left", on=["run", "size"])["freed"].fillna(0)
    replaced: BoolArray = newer.to_numpy() < count.to_numpy()
    return replaced[::-1]


def _finished(trace: Trace, found: MemoryEvents, ends: StepEnds, sums: pd.DataFrame) -> pd.DataFrame:
    pool = sums.pop("pool").to_numpy(np.int64)
    of_steps = np.bincount(ends.pool[ends.follower >= 0], minlength=len(found.pool_rank))[pool]
    average = rounded_division(sums["bytes"].to_numpy(np.int64), of_steps)
    places = pd.DataFrame({"name": sums.pop("name"), **pool_columns(trace, found, pool)})
    measures = pd.DataFrame({"steps": sums.pop("steps"), "of_steps": of_steps, "blocks": sums.pop("blocks"),
                             "bytes": sums.pop("bytes"), "avg_step_bytes": average})  # fmt: skip
    return pd.concat([places, sums, measures], axis=1)


def _told(trace: Trace) -> bool:
    """Whether a block could be followed from a step into the next one."""
    return has_blocks(trace) and _followed(trace)


def _followed(trace: Trace) -> bool:
    return bool((step_ends(trace, memory_events(trace)).follower >= 0).any())


def _explain(trace: Trace) -> Text:
    if not has_blocks(trace):
        return explain_no_blocks(trace)
    if not _followed(trace):
        return message("this needs two training steps, recorded one after the other")
    return message("nothing that was allocated in a step stayed")


COLUMNS = (
    replace(NAME, description="the outermost operator that allocated it"),
    RANK,
    DEVICE_NAME,
    *added_by(GROUPINGS),
    count("steps", "Steps", exact=True, description="in how many something stayed"),
    count("of_steps", "Of steps", exact=True, description="how many were recorded with the step after them"),
    count("blocks", "Blocks", exact=True, adds_up=True),
    size("bytes", "Size", adds_up=True),
    size("avg_step_bytes", "Avg step", adds_up=True, description="over all of these steps"),
)

VIEW = View(
    name="memory_leaks",
    title="Memory that stays",
    description=(
        "what steps allocated and later ones did not free, by the outermost operator around it; a leak comes back in "
        "every step, what is made once (the state of an optimizer) does not"
    ),
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="bytes",
    explain_empty=_explain,
    of_capture=_told,
)
