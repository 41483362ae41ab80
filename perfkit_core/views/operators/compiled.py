"""View ``compiled``: kernels that a compiler generated, and the operators, layers and lines of code in them.

Operators come from the compile information of the run (``--compile-info``), else from the name of the kernel. Layers
and lines are null without this information. Device time is the time of the kernels themselves; host time is the
duration of the host event around their launch, or of the kernel if it runs on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.assembly.graph_capture import graph_launches
from perfkit_core.trace.assembly.kernel_calls import NO_CALL, origins
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import CALLS, CPU, DEVICE, FIRST, HOST, NAME, ON_DEVICE, Share, added_by, share
from perfkit_core.trace.model.compiled_graph import KernelCall
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping, select
from perfkit_core.views.tables import group, ratio, text_column_at, texts, without_categoricals

GRAPH: Final = "graph"
GROUPINGS: Final = (GRAPH, "module", "stack", "phase", "step", "device", "rank")
_SEPARATOR: Final = ", "
_REGION: Final = re.compile(
    r"compiled|run_program|cuda_?graph|graph_?replay|program_interpreter|interpreter_?core|standalone_?executor",
    re.IGNORECASE,
)
"""Names of regions of compiled or captured code."""
_LEAST: Final = 0.1
"""Minimum share of the time of compiled code. An eager model may call a small compiled function."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of kernel name and groupings, with :data:`COLUMNS`. Raises UsageError."""
    number, calls = kernels(trace)
    rows = np.flatnonzero((number >= 0) & select.selected(trace, request))
    keys: dict[str, Any] = {"name": texts(trace.codes("name"), rows)}
    keys |= grouping.keys(trace, request, rows, GROUPINGS, {GRAPH: (GRAPH, _graphs)})
    groups = group(keys)
    times, host = trace.ints("dur_ns")[rows], trace.host[rows]
    cpu, device = groups.sum(np.where(host, times, 0)), groups.sum(np.where(host, 0, times))
    of_group = pd.Series(number[rows]).groupby(groups.code).unique()
    made_of = [[calls[number] for number in numbers] for numbers in of_group]
    lists = {part: [_joined(row_calls, part) for row_calls in made_of] for part in ("operators", "lines", "modules")}
    result = groups.keys.assign(
        **{part: pd.Series(values, dtype=object).replace("", None) for part, values in lists.items()},
        calls=np.maximum(groups.sum(host), groups.sum(~host)),
        total_cpu_ns=cpu,
        total_cpu_ratio=ratio(cpu, int(cpu.sum())),
        total_device_ns=device,
        total_device_ratio=ratio(device, int(device.sum())),
    )
    return without_categoricals(result)


@once
def kernels(trace: Trace) -> tuple[IntArray, tuple[KernelCall, ...]]:
    """Return for each event the index of its call of a generated kernel (-1 if none), shape (rows,), and the calls.

    A kernel on a device and the host event that launched it have the same name. Both are events of the call. An event
    whose call is unknown has a call that only contains the operators in the kernel's name."""
    origin, names = origins(trace), trace.codes("name")
    code = get_plugins().framework(trace.meta.framework).compiled_code()
    by_name = [
        KernelCall(name, name, True, tuple(operators))
        for name in names.values
        if (operators := code.operators(name) if code else ())
    ]
    position = {call.event: len(origin.calls) + number for number, call in enumerate(by_name)}
    of_name = names.lookup(np.array([position.get(name, NO_CALL) for name in names.values], np.int64), NO_CALL)
    runs = (trace.host & trace.operators) | (~trace.host & trace.rows("kind", KERNEL))
    number = np.where(runs, of_name, NO_CALL)

    generated = np.array([*(call.fused for call in origin.calls), False], np.bool_)
    event = {call.event: None for call in origin.calls}
    code_of = {name: number for number, name in enumerate(names.values) if name in event}
    events = np.array([*(code_of.get(call.event, -2) for call in origin.calls), -2], np.int64)
    matches = runs & generated[origin.call] & (events[origin.call] == names.codes)
    number[matches] = origin.call[matches]
    return number, (*origin.calls, *by_name)


@once
def regions(trace: Trace) -> BoolArray:
    """Return the mask of the operators and ranges that run compiled or captured code, shape (rows,). A Python frame is
    none: an import of a compiler, or its check of an eager function, compiles nothing."""
    kinds = schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC, schema.PYTHON, schema.STEP}
    names = trace.codes("name")
    mask: BoolArray = names.lookup(np.array([bool(_REGION.search(name)) for name in names.values], np.bool_), False)
    return mask & trace.host & trace.rows("kind", *kinds)


def runs_compiled(trace: Trace) -> bool:
    """Return whether compiled or captured code has at least :data:`_LEAST` of the time of the kernels, or of the
    operators, in most steps; without steps, in the recording."""
    compiled = regions(trace) | graph_launches(trace)
    compiled |= nesting.lies_in(trace.ints("parent"), compiled) | (kernels(trace)[0] >= 0)
    launched = np.append(compiled, False)[trace.ints("launched_by")]
    has_steps = (trace.host & trace.rows("kind", schema.STEP)).any()
    for work in (trace.rows("kind", KERNEL) & ~trace.host, trace.operators & trace.host):
        rows = np.flatnonzero(work & (trace.ints("step") >= 0) if has_steps else work)
        if len(rows):
            _, step = np.unique(trace.ints("step")[rows], return_inverse=True)
            time_ns = trace.ints("dur_ns")[rows]
            share = np.bincount(step, time_ns * (compiled | launched)[rows]) / np.maximum(np.bincount(step, time_ns), 1)
            if np.median(share) >= _LEAST:
                return True
    return False


def _joined(calls: Iterable[KernelCall], part: str) -> str:
    return _SEPARATOR.join(dict.fromkeys(text for call in calls for text in getattr(call, part) if text))


def _graphs(trace: Trace, rows: IntArray, _: str | None) -> pd.Categorical:
    """Return the names of the events that span the runs of the graphs, null for graphs without such an event."""
    names, launched_by = trace.codes("name"), trace.ints("launched_by")[rows]
    runs = trace.host & names.rows(*(graph.event for graph in trace.compiled_graphs if graph.event))
    span = np.append(nesting.nearest_on_path(trace.ints("parent"), runs), NO_ROW)
    return text_column_at(names, span[np.where(launched_by == NO_ROW, rows, launched_by)])


COLUMNS: Final = (
    replace(NAME, thing="kernel"),
    columns.description(GRAPH, "Graph", by=(GRAPH,)),
    *(column for column in added_by(GROUPINGS) if column.name != GRAPH),
    columns.text("operators", "Operators", "native names of the operators that were fused", merge=FIRST),
    columns.text("lines", "Lines", "lines of code that called them, as ``file:line``", merge=FIRST),
    columns.text("modules", "Layers", "paths of the layers that called them", merge=FIRST),
    replace(CALLS, description="calls of the kernel"),
    replace(CPU[0], description="duration of the host events of the kernel"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST),
    ON_DEVICE[0],
    share("total_device_ratio", "Total device", Share("total_device_ns"), place=DEVICE),
)

VIEW = View(
    name="compiled",
    title="Compiled kernels",
    description="generated kernels, with the operators fused in each, and their layers and lines of code",
    table=Merged(table),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("total_device_ns", "total_cpu_ns"),
    explain_empty=lambda trace: message(
        "no generated kernels were recorded (docs/compiled-code.md says what records them on a CPU)"
    ),
)
