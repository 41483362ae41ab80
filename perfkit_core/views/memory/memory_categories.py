"""View ``memory_categories``: the memory at the peak by what it holds, such as parameters and activations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, RANK, RATIO, count, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import categories
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING, UNSELECTED
from perfkit_core.views.tables import rounded_division


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device and category, with :data:`COLUMNS`. A category without memory at the peak has no row,
    except unknown memory. If the request names steps, the peak within these steps is used."""
    events, blocks = memory.memory_events(trace), memory.blocks(trace)
    pool_of_block, code = events.pool[blocks.allocation], categories.of_blocks(trace)
    position, _ = memory.peaks(trace, request)
    bytes_ = categories.levels(trace).at(events, np.arange(len(position)), position)
    alive = blocks.alive(position[pool_of_block])
    counts = np.zeros_like(bytes_)
    np.add.at(counts, (pool_of_block[alive], code[alive]), 1)
    counts[(counts == 0) & (bytes_ != 0)] = MISSING  # memory from before the recording
    shown = (position != UNSELECTED) & np.isin(np.arange(len(position)), pool_of_block)
    pool, category = np.nonzero(shown[:, None] & ((bytes_ != 0) | (np.arange(bytes_.shape[1]) == categories.UNKNOWN)))
    measures = {"blocks": counts, "bytes": bytes_, "growth_bytes": _growth(trace)}
    result = memory.pool_table(trace, events, pool, {name: values[pool, category] for name, values in measures.items()})
    result.insert(2, "category", np.array(categories.CATEGORIES, object)[category])
    total = bytes_.sum(axis=1)[pool]
    result.insert(5, "ratio", bytes_[pool, category] / np.where(total == 0, 1, total))
    return result


def _growth(trace: Trace) -> IntArray:
    """Return by how many bytes a category grows from the end of a step to the end of the next step, on average. Shape
    (pools, categories). MISSING without consecutive steps."""
    events, ends, level = memory.memory_events(trace), memory.step_ends(trace), categories.levels(trace)
    step = np.flatnonzero(ends.follower >= 0)
    pool, total = ends.pool[step], np.zeros_like(level.before)
    after, following = (level.at(events, pool, ends.last[steps]) for steps in (step, ends.follower[step]))
    np.add.at(total, pool, following - after)
    count = np.bincount(pool, minlength=len(total))[:, None]
    return np.where(count > 0, rounded_division(total, count), MISSING)


def _explain(trace: Trace) -> Text:
    return memory.explain_no_blocks(trace) if not memory.has_blocks(trace) else message("no events are selected")


COLUMNS = (
    RANK,
    DEVICE_NAME,
    categories.COLUMN,
    count("blocks", "Blocks", exact=True, adds_up=True, description="blocks that were allocated in the recording"),
    size("bytes", "Size", adds_up=True),
    RATIO,
    size("growth_bytes", "Growth per step", adds_up=True, noun=""),
)

VIEW = View(
    name="memory_categories",
    title="Memory at the peak by category",
    description=(
        "memory allocated at the peak: parameters, gradients, optimizer states, activations, inputs, temporaries and "
        "workspace, inferred from phases and lifetimes of blocks"
    ),
    table=table,
    columns=COLUMNS,
    order="bytes",
    explain_empty=_explain,
    of_capture=memory.has_blocks,
)
