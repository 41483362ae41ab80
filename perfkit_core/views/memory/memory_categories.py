"""View ``memory_categories``: the memory at the peak by what it holds: parameters, gradients, optimizer states,
activations, inputs, temporaries and workspace.

The category of a block follows from the phase in which it was allocated, and from how long it lived. A phase ends when
another of forward, backward and optimizer begins. docs/semantics.md lists the rules (memory_categories).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import Text, mark, message
from perfkit_core.base.operators.names import family
from perfkit_core.plugins.contracts import Listed, View, ViewRequest
from perfkit_core.trace.model import architecture
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import DEVICE_NAME, RANK, RATIO, count, key, size
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, FORWARD, MEMORY, NESTED_KINDS, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING, NEVER, UNSELECTED, Blocks, MemoryEvents
from perfkit_core.views.tables import rounded_division

CATEGORIES: Final = (
    mark("parameters"), mark("gradients"), mark("optimizer_states"), mark("activations"), mark("inputs"),
    mark("temporaries"), mark("workspace"), mark("unknown"),
)  # fmt: skip
COLUMN: Final = key("category", "Category", words="ids")
PARAMETERS, GRADIENTS, STATES, ACTIVATIONS, INPUTS, TEMPORARIES, WORKSPACE, UNKNOWN = range(len(CATEGORIES))
_PHASES: Final = (FORWARD, BACKWARD, OPTIMIZER)
_LASTING: Final = (ACTIVATIONS, GRADIENTS, STATES)
"""Category of a block that was allocated in one of _PHASES, and lived longer than the phase."""
_OUTSIDE: Final = len(_PHASES)
_LIBRARIES: Final = ("matmul", "conv", "attention", "rnn")
"""Families of operators that use workspace."""
_STATES_PER_PARAMETER: Final = (
    (re.compile(r"adam|lamb", re.IGNORECASE), 2),
    (re.compile(r"adagrad|lion|momentum", re.IGNORECASE), 1),
)
"""Names of optimizers, and how many values they keep for each parameter."""
_GRANULE: Final = 512
"""Allocators of devices round sizes up to multiples of this."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Bytes of each category. The sum over the categories is the total that was recorded, or else the known blocks."""

    before: IntArray  # before the first event of a pool, shape (pools, categories)
    after: IntArray  # after an event, shape (events, categories)

    def at(self, events: MemoryEvents, pool: IntArray, position: IntArray) -> IntArray:
        """Return the levels of each ``pool`` after the event at ``position``, shape (len(pool), categories)."""
        begun = (position >= events.first()[pool])[:, None]
        return np.where(begun, self.after[np.maximum(position, 0)], self.before[pool])


@once
def levels(trace: Trace) -> Levels:
    events, level = memory.memory_events(trace), memory.levels(trace)
    blocks, code = memory.blocks(trace), of_blocks(trace)
    size = events.change[blocks.allocation]
    old = _of_old_frees(events, blocks, code)
    before = _before(trace, events, blocks, code, old)
    change = np.zeros((len(events.row), len(CATEGORIES)), np.int64)
    change[blocks.allocation, code] += size
    ended = blocks.end != NEVER
    np.subtract.at(change, (blocks.end[ended], code[ended]), size[ended])
    totals = (level.start != MISSING)[events.pool]
    freed = totals[blocks.unmatched]
    change[blocks.unmatched[freed], old[freed]] += events.change[blocks.unmatched[freed]]
    after, first = change, events.first().tolist()
    for pool, (begin, end) in enumerate(pairwise([*first, len(change)])):
        after[begin:end] = before[pool] + np.cumsum(change[begin:end], axis=0)
    after[totals, UNKNOWN] += (level.allocated - after.sum(axis=1))[totals]
    return Levels(before, after)


@once
def of_blocks(trace: Trace) -> IntArray:
    """Return the category of each block of :func:`perfkit_core.views.memory.events.blocks`, shape (blocks,)."""
    events, blocks = memory.memory_events(trace), memory.blocks(trace)
    row = events.row[blocks.allocation]
    start = trace.ints("start_ns")
    end = np.where(blocks.end == NEVER, NEVER, start[events.row[np.where(blocks.end == NEVER, 0, blocks.end)]])
    phase, following, loading = _spans(trace, events.pool_rank[events.pool[blocks.allocation]], row)
    lasting = (end == NEVER) | (end >= following)
    code = np.full(len(row), UNKNOWN)
    code[~lasting] = TEMPORARIES
    inside = phase != _OUTSIDE
    code[inside & lasting] = np.append(_LASTING, UNKNOWN)[phase[inside & lasting]]
    libraries = np.array([family(name) in _LIBRARIES for name in trace.codes("op_name").values], np.bool_)
    mask = trace.operators & trace.codes("op_name").lookup(libraries, False)
    operator = nesting.nearest_on_path(trace.ints("parent"), mask)[row]
    code[(operator != NO_ROW) & (end <= np.append(trace.end_ns, 0)[operator])] = WORKSPACE
    code[(~inside | loading) & lasting & (end != NEVER)] = INPUTS
    unfreed, size = lasting & (end == NEVER), events.change[blocks.allocation]
    for pool in range(len(events.pool_rank)):
        mine = events.pool[blocks.allocation] == pool
        code[_last_batch(np.flatnonzero(mine & (code == INPUTS)), mine & unfreed & (~inside | loading), size)] = INPUTS
        sizes, _ = _parameter_sizes(trace, events, blocks, code, pool)
        rest = np.flatnonzero(mine & unfreed & ~inside & (code != INPUTS))
        code[_matched(rest, size, sizes, _rounds_up(size[mine]))] = PARAMETERS
    return code


def _last_batch(inputs: IntArray, candidates: BoolArray, size: IntArray) -> IntArray:
    """Return the blocks of the last batch, which the recording does not free. Of the ``candidates``, they have the
    size of an input, and were allocated after the last of the ``inputs`` of this size."""
    latest = dict(zip(size[inputs].tolist(), inputs.tolist(), strict=True))
    blocks = np.flatnonzero(candidates).tolist()
    return np.array([block for block in blocks if block > latest.get(int(size[block]), block)], np.int64)


def _spans(trace: Trace, rank: IntArray, row: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return for each memory event ``row`` its phase as an index of _PHASES or _OUTSIDE, the time at which the next
    other phase begins (NEVER if none does), and whether it lies in data loading.

    Events between forward and backward belong to forward, and events between backward and the optimizer to backward.
    Events between backward and forward are outside: with gradient accumulation, they make the next micro-batch.
    """
    codes, parent = trace.codes("phase"), trace.ints("parent")[row]
    phase_index = np.array([_PHASES.index(name) if name in _PHASES else _OUTSIDE for name in codes.values] + [_OUTSIDE])
    of_event = phase_index[codes.codes]
    own_phase = np.where(parent == NO_ROW, of_event[row], of_event[parent])
    own_phase = np.where(of_event[row] == _OUTSIDE, own_phase, of_event[row])
    loads = np.array([name == DATALOADER for name in codes.values] + [False])[codes.codes]
    nested = trace.host & trace.rows("kind", *NESTED_KINDS) | trace.rows("kind", MEMORY)
    marks = np.flatnonzero(nested & (of_event != _OUTSIDE))
    phase, following = own_phase.copy(), np.full(len(row), NEVER)
    time, start = trace.ints("start_ns")[row], trace.ints("start_ns")
    for number in np.unique(rank):
        mine = np.flatnonzero(rank == number)
        begin = marks[trace.ints("rank")[marks] == number]
        begin = begin[np.flatnonzero(np.diff(of_event[begin], prepend=-1))]  # where the phase changes
        if not len(begin):
            continue
        at = np.searchsorted(start[begin], time[mine], side="right")
        now = np.append(_OUTSIDE, of_event[begin])[at]
        then = np.append(of_event[begin], _OUTSIDE)[at]
        next_batch = (now == _PHASES.index(BACKWARD)) & (then == _PHASES.index(FORWARD))
        between = (own_phase[mine] == _OUTSIDE) & (now != _PHASES.index(OPTIMIZER)) & ~next_batch
        phase[mine] = np.where(between, now, own_phase[mine])
        following[mine] = np.append(start[begin], NEVER)[at]
    return phase, following, np.where(parent == NO_ROW, loads[row], loads[parent])


def _parameter_sizes(
    trace: Trace, events: MemoryEvents, blocks: Blocks, code: IntArray, pool: int
) -> tuple[Counter[int], int]:
    """Return the sizes of the parameters on a device, and the sum. They are the sizes in the recorded model. Without
    it, they are the sizes of the gradients of the backward pass that allocated the most bytes of gradients."""
    models, device = architecture.from_meta(trace.meta), trace.codes("device").values[events.pool_device[pool]]
    layers = [layer for model in models for layer in model.layers if layer.device in (None, device)]
    model_sizes = [part.bytes for layer in layers for part in layer.parameters if part.tied_to is None and part.bytes]
    if model_sizes:
        return Counter(model_sizes), sum(model_sizes)
    at = blocks.allocation[(code == GRADIENTS) & (events.pool[blocks.allocation] == pool)]
    if not len(at):
        return Counter(), 0
    rank = np.full(len(at), events.pool_rank[pool])
    _, following, _ = _spans(trace, rank, events.row[at])
    _, passes = np.unique(following, return_inverse=True)
    largest = np.bincount(passes, events.change[at]).argmax()
    sizes = events.change[at[passes == largest]].tolist()
    return Counter(sizes), sum(sizes)


def _rounds_up(size: IntArray) -> bool:
    """Return whether an allocator with blocks of these sizes rounds them up."""
    return not (size % _GRANULE).any()


def _matched(candidates: IntArray, size: IntArray, size_counts: Counter[int], rounds_up: bool) -> IntArray:
    """Return the first candidates of each size, as many as ``size_counts`` has."""
    left = size_counts.copy()
    if rounds_up:
        left = Counter()
        for number, count in size_counts.items():
            left[-(-number // _GRANULE) * _GRANULE] += count
    chosen = []
    for candidate in candidates.tolist():
        if left[int(size[candidate])] > 0:
            left[int(size[candidate])] -= 1
            chosen.append(candidate)
    return np.array(chosen, np.int64)


def _of_old_frees(events: MemoryEvents, blocks: Blocks, code: IntArray) -> IntArray:
    """Return the categories of the blocks from before the recording that were freed in it. They are gradients if the
    recording has gradients of their sizes."""
    old = np.full(len(blocks.unmatched), UNKNOWN)
    size = -events.change[blocks.unmatched]
    for pool in range(len(events.pool_rank)):
        gradients = (code == GRADIENTS) & (events.pool[blocks.allocation] == pool)
        counts = Counter(events.change[blocks.allocation[gradients]].tolist())
        old[_matched(np.flatnonzero(events.pool[blocks.unmatched] == pool), size, counts, rounds_up=False)] = GRADIENTS
    return old


def _before(trace: Trace, events: MemoryEvents, blocks: Blocks, code: IntArray, old: IntArray) -> IntArray:
    """Return the bytes of each category that were allocated before the recording, shape (pools, categories)."""
    start, before = memory.levels(trace).start, np.zeros((len(events.pool_rank), len(CATEGORIES)), np.int64)
    size, factor = events.change[blocks.allocation], _states_per_parameter(trace)
    for pool in np.flatnonzero(start != MISSING):
        mine, left = events.pool[blocks.allocation] == pool, int(start[pool])
        freed = events.pool[blocks.unmatched] == pool
        before[pool, GRADIENTS] = -events.change[blocks.unmatched[freed & (old == GRADIENTS)]].sum()
        left += int(events.change[blocks.unmatched[freed]].sum())
        _, total = _parameter_sizes(trace, events, blocks, code, int(pool))
        for category, expected in ((PARAMETERS, total), (STATES, factor * total)):
            rest = max(expected - int(size[mine & (code == category)].sum()), 0)
            if rest <= left:
                before[pool, category], left = rest, left - rest
        before[pool, UNKNOWN] = start[pool] - before[pool].sum()
    return before


def _states_per_parameter(trace: Trace) -> int:
    """Return how many values the recorded optimizer keeps for each parameter, 0 if unknown."""
    updates = np.array([family(name) == "optimizer_update" for name in trace.codes("op_name").values], np.bool_)
    mask = trace.rows("kind", OPTIMIZER) | trace.codes("op_name").lookup(updates, False)
    names = trace.codes("name")
    used = [names.values[code] for code in np.unique(names.codes[mask])]
    return next((count for pattern, count in _STATES_PER_PARAMETER if any(map(pattern.search, used))), 0)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device and category, with :data:`COLUMNS`. A category without memory at the peak has no row,
    except unknown memory. If the request names steps, the peak within these steps is used."""
    events, blocks = memory.memory_events(trace), memory.blocks(trace)
    pool_of_block, code = events.pool[blocks.allocation], of_blocks(trace)
    position, _ = memory.peaks(trace, request)
    bytes_ = levels(trace).at(events, np.arange(len(position)), position)
    alive = blocks.alive(position[pool_of_block])
    counts = np.zeros_like(bytes_)
    np.add.at(counts, (pool_of_block[alive], code[alive]), 1)
    counts[(counts == 0) & (bytes_ != 0)] = MISSING  # memory from before the recording
    shown = (position != UNSELECTED) & np.isin(np.arange(len(position)), pool_of_block)
    pool, category = np.nonzero(shown[:, None] & ((bytes_ != 0) | (np.arange(bytes_.shape[1]) == UNKNOWN)))
    measures = {"blocks": counts, "bytes": bytes_, "growth_bytes": _growth(trace)}
    result = memory.pool_table(trace, events, pool, {name: values[pool, category] for name, values in measures.items()})
    result.insert(2, "category", np.array(CATEGORIES, object)[category])
    total = bytes_.sum(axis=1)[pool]
    result.insert(5, "ratio", bytes_[pool, category] / np.where(total == 0, 1, total))
    return result


def _growth(trace: Trace) -> IntArray:
    """Return by how many bytes a category grows from the end of a step to the end of the next step, on average. Shape
    (pools, categories). MISSING without consecutive steps."""
    events, ends, level = memory.memory_events(trace), memory.step_ends(trace), levels(trace)
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
    COLUMN,
    count("blocks", "Blocks", "blocks that were allocated in the recording", exact=True, over="rows"),
    size("bytes", "Size", over="rows"),
    RATIO,
    size("growth_bytes", "Growth per step", over="rows", heading="complete"),
)

VIEW = View(
    name="memory_categories",
    title="Memory at the peak by category",
    description=(
        "memory allocated at the peak: parameters, gradients, optimizer states, activations, inputs, temporaries and "
        "workspace, inferred from phases and lifetimes of blocks"
    ),
    table=Listed(table, of_capture=memory.has_blocks),
    columns=COLUMNS,
    order="bytes",
    explain_empty=_explain,
)
