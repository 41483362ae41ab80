"""View ``memory_steps``: the memory that each step leaves allocated. In steady training, this memory does not grow."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, RANK, count, key, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING, StepEnds
from perfkit_core.views.select import accounted, in_steps


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device and step, with :data:`COLUMNS`. Unknown numbers are NA."""
    events, ends, level = memory.memory_events(trace), memory.step_ends(trace), memory.levels(trace)
    allocated = np.zeros(len(ends.step) + 1, np.int64)
    of_step = ends.of(np.arange(len(events.row)))
    np.add.at(allocated, of_step, np.maximum(memory.counted_bytes(events), 0))
    columns = {"step": trace.ints("step")[ends.step], "allocated_bytes": allocated[:-1]}
    for name, until in (("alive", np.arange(len(ends.step))), ("alive_next", ends.follower),
                        ("alive_last", ends.run_last)):  # fmt: skip
        columns[f"{name}_blocks"], columns[f"{name}_bytes"] = _alive(trace, ends, until)

    # if no event of the pool precedes a step, use the level before the recording
    pool, first = ends.pool, events.first()[ends.pool]
    before = np.where(level.start == MISSING, 0, level.start)[pool]
    after, start = (
        np.where(position < first, before, level.best(np.maximum(position, 0)) if len(level.growth) else 0)
        for position in (ends.last, ends.first - 1)
    )
    follows = np.append(False, ends.follower[:-1] >= 0)[: len(after)]
    columns["end_bytes"] = np.where(level.start[pool] != MISSING, after, MISSING)
    columns["growth_bytes"] = after - np.where(follows, np.append(0, after[:-1])[: len(after)], start)

    accounted_pools = np.unique(events.pool[accounted(trace, request)[events.row]])
    counted = in_steps(trace, request)[ends.step] & np.isin(pool, accounted_pools)
    return memory.pool_table(trace, events, pool, columns)[counted].reset_index(drop=True)


def _alive(trace: Trace, ends: StepEnds, until: IntArray) -> tuple[IntArray, IntArray]:
    """Return, for each step i, how many of its blocks are alive at the end of the step ``until[i]``, and their bytes.
    Both are MISSING if ``until[i]`` is -1, or if events of the pool have no address."""
    events, blocks = memory.memory_events(trace), memory.blocks(trace)
    step = ends.of(blocks.allocation)
    stays = (step >= 0) & blocks.alive(np.append(np.append(ends.last, -1)[until], -1)[step])
    count, size = np.zeros(len(ends.step), np.int64), np.zeros(len(ends.step), np.int64)
    np.add.at(count, step[stays], 1)
    np.add.at(size, step[stays], events.change[blocks.allocation[stays]])
    unknown = (until < 0) | np.isin(ends.pool, events.pool[blocks.placeless])
    return np.where(unknown, MISSING, count), np.where(unknown, MISSING, size)


COLUMNS = (
    RANK,
    DEVICE_NAME,
    key("step", "Step", thing="step"),
    size("allocated_bytes", "Allocated"),
    count("alive_blocks", "Alive blocks", exact=True, description="allocated in the step and alive at its end"),
    size("alive_bytes", "Alive"),
    count("alive_next_blocks", "Alive next blocks", exact=True, description="also alive at the end of the next step"),
    size("alive_next_bytes", "Alive next"),
    count("alive_last_blocks", "Alive last blocks", exact=True, description="also alive at the end of the last step"),
    size("alive_last_bytes", "Alive last"),
    size("end_bytes", "End", description="total at the end of the step"),
    size("growth_bytes", "Growth", description="growth since the end of the previous step"),
)

VIEW = View(
    name="memory_steps",
    title="Memory of each step",
    description=(
        "memory that each step allocated, and how much of it remains when the step ends, when the next step ends, and "
        "when the last step ends; memory is not followed across a gap in the step numbers"
    ),
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: (
        message("no training steps were recorded") if memory.has_events(trace) else memory.explain_empty(trace)
    ),
)
