"""The events of compiled kernels, and the layers and lines of code that they were made of.

An execution of a compiled graph is a host event with the name that the graph states. The calls of a kernel in an
execution are matched in order: the n-th event with the kernel's name is the n-th call of the kernel in the code. If an
execution has another number of events than the code has calls, each event gets the operators, lines and layers of all
calls of that kernel.

If no enclosing event names a graph, the kernel's parent event is taken as the execution of the graph. The graph is then
the one that calls the same generated kernels in the same order. If there is no such graph, or if there are several, an
event gets only what all graphs with a kernel of its name agree on.

The events inside a call, and the device work that they launched, belong to the call. A replay of a recorded device
graph launches all kernels at once, so only the kernels themselves have names; they are matched by their start times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, Codes, IntArray, texts
from perfkit_core.trace.assembly.labels import parse_module_label
from perfkit_core.trace.assembly.layers import CALL_SEPARATOR
from perfkit_core.trace.model import architecture, compiled_graph
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall, agreed, united
from perfkit_core.trace.model.schema import KERNEL, PYTHON
from perfkit_core.trace.model.trace import Trace

NO_CALL: Final = -1


@dataclass(frozen=True, slots=True)
class Origins:
    """The calls of kernels to which events belong."""

    call: IntArray  # index in `calls`, -1 if none, shape (rows,)
    calls: tuple[KernelCall, ...]
    call_rows: IntArray  # rows of the events that are calls themselves, not only inside one


@once
def origins(trace: Trace) -> Origins:
    """Return the kernel calls of all events, by ``trace.compiled_graphs``."""
    table = _CallTable(trace.compiled_graphs)
    call = np.full(len(trace), NO_CALL, np.int64)
    if not table.by_event:
        return Origins(call, (), np.flatnonzero(call >= 0))
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    names = trace.codes("name")
    named = names.lookup(np.array([name in table.by_event for name in names.values], np.bool_), False)
    spans = names.lookup(np.array([table.spans.get(name, -1) for name in names.values], np.int64), -1)
    span = nesting.nearest_on_path(parent, trace.host & (spans >= 0))

    rows = np.flatnonzero(named & trace.host & trace.operators)
    run = np.where(span[rows] == NO_ROW, parent[rows], span[rows])
    # An operator inside another operator of the run is not called by the graph.
    outer = nesting.nearest_above(parent, trace.operators)[rows]
    direct = (run != NO_ROW) & (outer <= run)
    rows, run = rows[direct], run[direct]

    kernels = np.flatnonzero(named & ~trace.host & trace.rows("kind", KERNEL) & (launched_by != NO_ROW))
    around = span[launched_by[kernels]]
    around = np.where(around == NO_ROW, parent[launched_by[kernels]], around)
    replayed = (around != NO_ROW) & ~np.isin(around, run)
    rows, run = np.append(rows, kernels[replayed]), np.append(run, around[replayed])

    call[rows] = table.matched(names, rows, run, np.append(spans, -1)[run])
    call_rows = np.flatnonzero(call >= 0)
    call = nesting.last_on_path(parent, call)
    launched = (launched_by != NO_ROW) & (call == NO_CALL)
    call[launched] = call[launched_by[launched]]
    return Origins(call, tuple(table.calls), call_rows)


class _CallTable:
    """The calls of several graphs, and the calls that :func:`united` and :func:`agreed` make of them."""

    def __init__(self, graphs: Sequence[CompiledGraph]) -> None:
        self.calls: list[KernelCall] = []
        self.by_event: dict[str, list[KernelCall]] = {}
        self.spans: dict[str, int] = {}  # event of a graph → its number
        self._graphs = graphs
        self._first: dict[tuple[int, str], tuple[int, int]] = {}  # number and number of calls of the first call
        self._united: dict[tuple[int, str], int] = {}
        self._agreed: dict[str, int] = {}
        self._in_order: dict[tuple[str, ...], list[int]] = {}
        for number, graph in enumerate(graphs):
            if graph.event is not None:
                self.spans.setdefault(graph.event, number)
            self._in_order.setdefault(tuple(call.event for call in graph.calls if call.fused), []).append(number)
            by_event: dict[str, list[KernelCall]] = {}
            for call in graph.calls:
                by_event.setdefault(call.event, []).append(call)
            for event, calls in by_event.items():
                self._first[number, event] = len(self.calls), len(calls)
                self.calls += calls
                self.by_event.setdefault(event, []).extend(calls)

    def matched(self, names: Codes, rows: IntArray, run: IntArray, graph: IntArray) -> IntArray:
        """Return the call of each event, -1 if it is unknown. For each event: ``run`` is the row of its run, ``graph``
        the graph of this run, or -1. Shape (len(rows),)."""
        order = np.lexsort((rows, run))
        table = pd.DataFrame({"run": run, "name": names.codes[rows], "graph": graph}).iloc[order]
        unknown = table["graph"] < 0
        by_run = table[unknown].groupby("run")["name"]
        graphs = {row: self._graph_of(names.values[code] for code in codes) for row, codes in by_run}
        table["graph"] = table["graph"].where(~unknown, table["run"].map(graphs))
        same = table.groupby(["run", "name"])["graph"]
        ordinal, count = same.cumcount(), same.transform("size")
        answer = np.full(len(rows), NO_CALL, np.int64)
        for part in table.groupby(["graph", "name"]).groups.values():
            graph_number, code = (int(table[name][part[0]]) for name in ("graph", "name"))
            event = names.values[code]
            if graph_number < 0:
                answer[part] = self._by_name(event)
            elif (graph_number, event) in self._first:
                first, calls = self._first[graph_number, event]
                answer[part] = np.where(count[part] == calls, first + ordinal[part], self._all_of(graph_number, event))
        return answer

    def _graph_of(self, events: Iterable[str]) -> int:
        generated = tuple(event for event in events if self.by_event[event][0].fused)
        graphs = self._in_order.get(generated, []) if generated else []
        return graphs[0] if len(graphs) == 1 else -1

    def _all_of(self, number: int, event: str) -> int:
        if (number, event) not in self._united:
            first, count = self._first[number, event]
            self._united[number, event] = self._add(united(self.calls[first : first + count]))
        return self._united[number, event]

    def _by_name(self, event: str) -> int:
        calls = self.by_event[event]
        if not calls[0].fused:  # a ready-made operator, which may also run outside compiled graphs
            return NO_CALL
        if event not in self._agreed:
            self._agreed[event] = self._add(agreed(calls))
        return self._agreed[event]

    def _add(self, call: KernelCall) -> int:
        self.calls.append(call)
        return len(self.calls) - 1


def with_graphs(trace: Trace, graphs: Sequence[CompiledGraph]) -> Trace:
    """Return the trace with compiled graphs in its metadata. The columns ``module`` and ``stack`` of their kernels get
    the layers and lines of code.

    A kernel of several layers belongs to the innermost layer around them. The column ``stack`` is filled only if no
    Python frames were recorded as events."""
    if not graphs:
        return trace
    trace = trace.with_tables(compiled_graphs=compiled_graph.to_table(graphs))
    origin = origins(trace)
    if not len(origin.call_rows):
        return trace
    columns = {}
    layer = _layer_names(trace)
    module = trace.codes("module")
    calls = np.append(origin.call, NO_CALL)
    pairs = pd.MultiIndex.from_arrays([calls[:-1], module.codes])
    number, distinct = pairs.factorize()
    paths = [
        layer(None if around < 0 else module.values[around], None if call < 0 else origin.calls[call].module)
        for call, around in distinct
    ]
    columns["module"] = _column(paths, number)
    if not trace.rows("kind", PYTHON).any():
        stack = trace.codes("stack")
        lines = [call.stack for call in origin.calls]
        stack_code = np.where(stack.codes >= 0, len(lines) + stack.codes, np.where(origin.call >= 0, origin.call, -1))
        columns["stack"] = _column([*lines, *stack.values, None], stack_code)
    return trace.with_columns(**columns)


def _column(values: Sequence[str | None], codes: IntArray) -> object:
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    position = {value: number for number, value in enumerate(distinct)}
    table = np.array([*(-1 if value is None else position[value] for value in values)], np.int32)
    return texts(table[codes], distinct)


def _layer_names(trace: Trace) -> Callable[[str | None, str | None], str | None]:
    """Return a function that names a layer inside a compiled module. Its arguments are the value of the column
    ``module`` outside the compiled graph, and the path of the layer in the compiled module."""
    labels = [label for name in trace.codes("name").values if (label := parse_module_label(name))]
    paths = {label.path for label in labels}
    paths |= {layer.path for model in architecture.from_meta(trace.meta) for layer in model.layers}

    def labelled(around: str | None, inside: str | None) -> str | None:
        inner = (f"{around}.{inside}", inside) if inside else ()
        return next((path for path in inner if path in paths), around)

    def called(around: str | None, inside: str | None) -> str | None:
        path = inside.replace(".", CALL_SEPARATOR) if inside else None
        return CALL_SEPARATOR.join(part for part in (around, path) if part) or None

    return labelled if labels else called
