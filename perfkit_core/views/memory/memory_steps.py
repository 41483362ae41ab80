"""Does memory grow from step to step?

In a steady training it does not: what a step leaves allocated, the next one frees or replaces.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import DEVICE_NAME, RANK, count, key, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.memory.events import (
    MISSING,
    Blocks,
    Levels,
    MemoryEvents,
    StepEnds,
    blocks,
    counted_bytes,
    explain_empty,
    levels,
    memory_events,
    nullable,
    pool_columns,
    step_ends,
)
from perfkit_core.views.select import accounted, in_steps


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a device and step; see :data:`COLUMNS`. NA: not known."""
    found = memory_events(trace)
    ends, made = step_ends(trace, found), blocks(trace)
    level = levels(trace)
    after, growth = _levels(found, level, ends)
    columns = {"step": trace.ints("step")[ends.step], "allocated_bytes": _allocated(found, ends)}
    columns |= _alive(found, ends, made, "alive", np.arange(len(ends.step)))
    columns |= _alive(found, ends, made, "alive_next", ends.follower)
    columns |= _alive(found, ends, made, "alive_last", ends.run_last)
    columns |= {"end_bytes": after, "growth_bytes": growth}
    measured = {name: nullable(values) for name, values in columns.items()}
    result = pd.DataFrame({**pool_columns(trace, found, ends.pool), **measured})
    return result[_counted(trace, request, found, ends)].reset_index(drop=True)


def _counted(trace: Trace, request: ViewRequest, found: MemoryEvents, ends: StepEnds) -> BoolArray:
    """The wanted steps; of the pools, those with an event that is accounted for."""
    pools = np.unique(found.pool[accounted(trace, request)[found.row]])
    return np.asarray(in_steps(trace, request)[ends.step] & np.isin(ends.pool, pools), np.bool_)


def _levels(found: MemoryEvents, level: Levels, ends: StepEnds) -> tuple[IntArray, IntArray]:
    """What is allocated at the end of each step (MISSING: not recorded), and by how much that grew."""
    after = _level_at(found, level, ends.pool, ends.last)
    start = _level_at(found, level, ends.pool, ends.first - 1)
    follows = np.append(False, ends.follower[:-1] >= 0)[: len(after)]
    growth = after - np.where(follows, np.append(0, after[:-1])[: len(after)], start)
    told = level.start[ends.pool] != MISSING
    return np.where(told, after, MISSING), growth


def _level_at(found: MemoryEvents, level: Levels, pool: IntArray, position: IntArray) -> IntArray:
    """The level of each pool after the event at a position, which may lie before the first of the pool."""
    start = np.where(level.start == MISSING, 0, level.start)[pool]
    after = level.best(np.maximum(position, 0)) if len(level.growth) else 0
    return np.where(position < found.first()[pool], start, after)


def _allocated(found: MemoryEvents, ends: StepEnds) -> IntArray:
    total = np.zeros(len(ends.step) + 1, np.int64)
    np.add.at(total, ends.of(np.arange(len(found.row))), np.maximum(counted_bytes(found), 0))
    return total[:-1]


def _alive(found: MemoryEvents, ends: StepEnds, made: Blocks, name: str, until: IntArray) -> dict[str, IntArray]:
    """Blocks of each step that are alive at the end of the step ``until`` (-1: unknown)."""
    step = ends.of(made.allocation)
    last = np.append(np.append(ends.last, -1)[until], -1)[step]
    stays = (step >= 0) & made.alive(last)
    count, size = np.zeros(len(ends.step), np.int64), np.zeros(len(ends.step), np.int64)
    np.add.at(count, step[stays], 1)
    np.add.at(size, step[stays], found.change[made.allocation[stays]])
    placeless = np.isin(ends.pool, found.pool[made.placeless])
    unknown = (until < 0) | placeless
    return {f"{name}_blocks": np.where(unknown, MISSING, count), f"{name}_bytes": np.where(unknown, MISSING, size)}


def _explain(trace: Trace) -> Text:
    return explain_empty(trace) if not len(memory_events(trace).row) else message("no training steps were recorded")


COLUMNS = (
    RANK,
    DEVICE_NAME,
    key("step", "Step"),
    size("allocated_bytes", "Allocated"),
    count("alive_blocks", "Alive blocks", exact=True, description="allocated in the step and alive at its end"),
    size("alive_bytes", "Alive"),
    count("alive_next_blocks", "Alive next blocks", exact=True, description="… at the end of the next step"),
    size("alive_next_bytes", "Alive next"),
    count("alive_last_blocks", "Alive last blocks", exact=True, description="… of the last step without a gap"),
    size("alive_last_bytes", "Alive last"),
    size("end_bytes", "End", description="all that is allocated at the end of the step"),
    size("growth_bytes", "Growth", description="since the end of the step before"),
)

VIEW = View(
    name="memory_steps",
    title="Memory of each step",
    description=(
        "what each step allocated that was alive at its end, at the end of the next step and of the last one in a row; "
        "all that was allocated at its end, and how that grew"
    ),
    table=table,
    columns=COLUMNS,
    explain_empty=_explain,
)
