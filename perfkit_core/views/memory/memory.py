"""View ``memory``: allocations and frees by the host event that caused them.

Each memory event counts once, for its owner: the innermost operator around the event, or else the nearest host event.
Memory events whose owner is a step form a single row. Names in parentheses were not recorded; perfkit adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, matches
from perfkit_core.base.language.messages import mark
from perfkit_core.plugins.contracts import Merged, View, ViewRequest, split_grouping
from perfkit_core.trace.model.columns import DEVICE_NAME, OPERATOR_NAME, added_by, count, key, size
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping, select
from perfkit_core.views.memory.events import MemoryEvents, explain_empty, memory_events
from perfkit_core.views.operators import calls
from perfkit_core.views.steps.step_rows import cut_off_rows
from perfkit_core.views.tables import texts, without_categoricals
from perfkit_core.views.user_code import SEPARATOR
from perfkit_core.views.user_code import innermost as line_of

IN_STEP: Final = mark("(in a step, outside operators)")
OUTSIDE: Final = mark("(outside host events)")
GROUPINGS: Final = ("phase", "module", "line", "step", "thread", "category", "rank")
_OF_THE_OWNER: Final = ("shape", "stack", "line", "category")

# Categories of events in Paddle's recordings
ALLOCATIONS: Final = ("Allocate", "ReservedAllocate")
OPERATOR: Final = "Operator"
INNER: Final = "OperatorInner"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of owner, device, type and groupings. ``--native`` counts like the framework."""
    events = memory_events(trace)
    if request.native and trace.rows("category", *ALLOCATIONS).any():
        event, owner = _native_owners(trace, events)
    else:
        event, owner = np.arange(len(events.row)), innermost(trace, events.row)
    rows, change, reserve = events.row[event], events.change[event], events.reserve[event]
    by: dict[str, Any] = {
        "name": names(trace, owner, rows, steps_apart=request.native),
        "device": texts(trace.codes("device"), rows),
        "type": texts(Codes(reserve.astype(np.int32), ["allocated", "reserved"]), np.arange(len(rows))),
    }
    counted = chosen(trace, request, rows, by["name"])
    by |= keys(trace, request, rows, owner, GROUPINGS)
    measures = {
        "allocations": (change >= 0).astype(np.int64),
        "frees": (change < 0).astype(np.int64),
        "allocated_bytes": np.maximum(change, 0),
        "freed_bytes": np.maximum(-change, 0),
        "increase_bytes": change,
    }
    grouped = pd.DataFrame({**by, **measures})[counted].groupby(list(by), sort=False, dropna=False, observed=True)
    return without_categoricals(grouped[list(measures)].sum().reset_index())


def _native_owners(trace: Trace, events: MemoryEvents) -> tuple[IntArray, IntArray]:
    """Return pairs of a memory event (position) and a host event (row) that counts it in Paddle's summary.

    A host event counts the memory events whose parent it is, but an ``OperatorInner`` counts none. An ``Operator`` also
    counts the memory events whose parent is one of its children. A memory event can therefore be in two pairs."""
    parent, category = trace.ints("parent"), trace.codes("category")
    start, end, rows = trace.ints("start_ns"), trace.end_ns, events.row
    nearest = parent[rows]
    # Paddle also counts the events in an empty last step
    for step in np.flatnonzero(cut_off_rows(trace)):
        inside = (nearest == NO_ROW) & (start[rows] >= start[step]) & (start[rows] <= end[step])
        for column in select.THREAD_KEY:
            inside &= trace.ints(column)[rows] == trace.ints(column)[step]
        nearest = np.where(inside, step, nearest)
    above = np.append(parent, NO_ROW)[nearest]
    direct = np.flatnonzero((nearest != NO_ROW) & ~np.append(category.rows(INNER), False)[nearest])
    indirect = np.flatnonzero(np.append(category.rows(OPERATOR), False)[above] & (above != NO_ROW))
    return np.concatenate([direct, indirect]), np.concatenate([nearest[direct], above[indirect]])


def innermost(trace: Trace, rows: IntArray) -> IntArray:
    """Return the row of each memory event's owner. The owner is the innermost operator around the event. If there is no
    such operator, the owner is the event's parent. The row is -1 if there is no parent either."""
    parent = trace.ints("parent")
    operator = nesting.nearest_above(parent, trace.operators)[rows]
    return np.where(operator == NO_ROW, parent[rows], operator)


def by_owner(trace: Trace, request: ViewRequest, event: IntArray, groupings: Sequence[str]) -> dict[str, Any]:
    """Return the key columns of allocations: the owner's name, the pool and the groupings. ``event`` holds positions in
    :func:`memory_events`. Here, the owner of an allocation is the outermost operator around it. Without an operator,
    the owner is the parent event of the allocation."""
    events = memory_events(trace)
    rows = events.row[event]
    above = trace.ints("parent")[rows]
    operator = np.where(above == NO_ROW, NO_ROW, calls.outermost(trace)[above])
    owner = np.where(operator == NO_ROW, above, operator)
    owner_keys = {"name": names(trace, owner, rows), "pool": events.pool[event]}
    return owner_keys | keys(trace, request, rows, owner, groupings)


def names(trace: Trace, owner: IntArray, rows: IntArray, steps_apart: bool = False) -> pd.Categorical:
    """Return the names of the owners of the memory events ``rows``. If the owner is no operator, and the memory event
    has a stack of its own, the name is the line of code of this stack."""
    recorded = trace.codes("name")
    line_index, lines = _own_lines(trace, np.where(np.append(trace.operators, False)[owner], NO_ROW, rows))
    labels = list(dict.fromkeys([*recorded.values, IN_STEP, OUTSIDE, *lines]))
    position = {label: code for code, label in enumerate(labels)}
    step = np.append(trace.rows("kind", STEP) & (not steps_apart), False)[owner]
    code = np.where(step, position[IN_STEP], np.append(recorded.codes, position[OUTSIDE])[owner])
    line = np.array([*(position[line] for line in lines), NO_ROW], np.int64)[line_index]
    return pd.Categorical.from_codes(np.where(line == NO_ROW, code, line), categories=pd.Index(labels, dtype=object))


def _own_lines(trace: Trace, rows: IntArray) -> tuple[IntArray, list[str]]:
    """Return for each row the index of its line of code in a list (-1: it has no stack, or is NO_ROW), and the list."""
    if not trace.has_values("stack"):
        return np.full(len(rows), NO_ROW), []
    stack = trace.codes("stack")
    codes = np.append(stack.codes, NO_ROW)[rows]
    used, index = np.unique(codes, return_inverse=True)
    texts = [stack.values[code] for code in used if code >= 0]
    lines = [line_of(text, trace.meta.framework) or text.partition(SEPARATOR)[0] for text in texts]
    return index - (len(used) - len(texts)), lines


def keys(
    trace: Trace, request: ViewRequest, rows: IntArray, owner: IntArray, groupings: Sequence[str]
) -> dict[str, Any]:
    """Return the key columns of memory events for the groupings. Raises UsageError for unsupported groupings."""
    columns: dict[str, Any] = {}
    parent = trace.ints("parent")
    for item in request.by:
        name = split_grouping(item)[0]
        source = np.where(owner == NO_ROW, rows, owner) if name in _OF_THE_OWNER else rows
        if name in ("stack", "line") and trace.has_values("stack"):  # a memory event may have a stack of its own
            source = np.where(trace.codes("stack").codes[rows] >= 0, rows, source)
        elif name == "module":  # the nearest ancestor that has a module
            nearest = nesting.nearest_on_path(parent, trace.codes("module").codes >= 0)[rows]
            source = np.where(nearest == NO_ROW, rows, nearest)
        elif name == "phase":  # the phase "other" is inferred only for host events: use the parent
            has_phase = (trace.codes("phase").codes[rows] >= 0) | (parent[rows] == NO_ROW)
            source = np.where(has_phase, rows, parent[rows])
        columns |= grouping.keys(trace, replace(request, by=(item,)), source, groupings)
    return columns


def chosen(trace: Trace, request: ViewRequest, rows: IntArray, name: pd.Categorical) -> BoolArray:
    """Return the mask of the selected memory events. Name patterns apply to ``name``, the name of the event's owner."""
    mask = select.selected(trace, replace(request, pattern=None))[rows]
    if request.pattern is not None:
        mask = mask & matches(list(name.categories), request.pattern)[name.codes]
    return mask


COLUMNS = (
    replace(OPERATOR_NAME, description="name of the owner"),
    DEVICE_NAME,
    key("type", "Type", "reserved: changes of the allocator's reserve; allocated: all other events"),
    *added_by(GROUPINGS),
    count("allocations", "Allocations", exact=True, over="steps"),
    count("frees", "Frees", exact=True, over="steps"),
    size("allocated_bytes", "Allocated", over="steps"),
    size("freed_bytes", "Freed", over="steps"),
    size("increase_bytes", "Increase", over="steps"),
)

VIEW = View(
    name="memory",
    title="Memory by operator",
    description="allocations and frees by their innermost operator; with --native, some events count in two rows",
    table=Merged(table, native=True),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="allocated_bytes",
    explain_empty=explain_empty,
)
