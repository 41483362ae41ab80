"""Compiled code: what the kernels of a compiled graph were made of. Compilers of frameworks fuse operators to kernels.

An adapter reads it from what the compiler wrote (``Framework.compiled_code``). The module
:mod:`perfkit_core.trace.assembly.kernel_calls` finds the events that it describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from perfkit_core.trace.model.schema import Column
from perfkit_core.trace.model.side_table import SideTable, structs

_FRAME: Final = re.compile(r"(?P<file>.+)\((?P<line>\d{1,18})\): (?P<function>.*)")


class KernelCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a kernel in the code of a compiled graph. Unknown fields are empty.

    - ``event``: name of the event that the profiler records for the call.
    - ``kernel``: name of the kernel in the code.
    - ``fused``: whether the compiler generated the kernel. Otherwise, the graph calls a ready-made operator.
    - ``operators``: native names of the operators that the model called, and that the kernel computes.
    - ``modules``: paths of the layers that called these operators, relative to the module that was compiled, which is
      ``""`` itself.
    - ``stacks``: lines of the model that called them, each as a stack ``file(line): function;…``, innermost first.
    """

    event: str
    kernel: str
    fused: bool = True
    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()

    @property
    def module(self) -> str | None:
        """The innermost layer that contains all layers of the call, or None if it is unknown or the compiled module."""
        return common_parent(self.modules)

    @property
    def stack(self) -> str | None:
        """The frames that all stacks of the call share, or None. If the stacks differ only in the lines of one
        function, its frame has the first of these lines."""
        return common_stack(self.stacks)

    @property
    def lines(self) -> tuple[str, ...]:
        """The innermost lines, as ``file:line``, without duplicates."""
        frames = [_FRAME.fullmatch(stack.partition(";")[0]) for stack in self.stacks]
        return tuple(dict.fromkeys(f"{frame['file']}:{frame['line']}" for frame in frames if frame))


class CompiledGraph(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kernel calls of a compiled graph, in the order of its code. ``event`` is the name of the event that spans a
    run of the graph, or None if no such event identifies the graph."""

    calls: tuple[KernelCall, ...]
    event: str | None = None


def united(calls: Sequence[KernelCall]) -> KernelCall:
    """Return a call with what all ``calls`` of one kernel were made of."""
    parts = (dict.fromkeys(part for call in calls for part in getattr(call, name)) for name in _PARTS)
    return KernelCall(calls[0].event, calls[0].kernel, calls[0].fused, *map(tuple, parts))


def agreed(calls: Sequence[KernelCall]) -> KernelCall:
    """Return a call with the fields in which all ``calls`` of one event name agree. The other fields are empty."""
    first = calls[0]
    same = (getattr(first, name) if len({getattr(call, name) for call in calls}) == 1 else () for name in _PARTS)
    return KernelCall(first.event, first.kernel, first.fused, *same)


_PARTS: Final = ("operators", "modules", "stacks")


def common_parent(paths: Iterable[str]) -> str | None:
    """Return the longest path that contains all ``paths``: ``blocks.0`` for ``blocks.0.up`` and ``blocks.0.norm``."""
    return ".".join(_shared([path.split(".") for path in paths])) or None


def common_stack(stacks: Sequence[str]) -> str | None:
    frames = [stack.split(";")[::-1] for stack in stacks]
    shared = _shared(frames)
    following = [_FRAME.fullmatch(stack[len(shared)]) for stack in frames if len(stack) > len(shared)]
    matches = [match for match in following if match]
    if len(matches) == len(frames) and len({(match["file"], match["function"]) for match in matches}) == 1:
        shared.append(min(matches, key=lambda match: int(match["line"]))[0])
    return ";".join(shared[::-1]) or None


def _shared(lists: Sequence[list[str]]) -> list[str]:
    """Return the longest common beginning of all lists."""
    shared = []
    for items in zip(*lists, strict=False):
        if len(set(items)) > 1:
            break
        shared.append(items[0])
    return shared


def to_table(graphs: Iterable[CompiledGraph]) -> pa.Table:
    calls = [(number, graph.event, call) for number, graph in enumerate(graphs) for call in graph.calls]
    return TABLE.of_structs(
        [call for _, _, call in calls],
        graph=[number for number, _, _ in calls],
        graph_event=[event for _, event, _ in calls],
    )


def of_table(table: pa.Table) -> tuple[CompiledGraph, ...]:
    graphs: dict[int, list[KernelCall]] = {}
    events: dict[int, str | None] = {}
    numbers, names = table["graph"].to_pylist(), table["graph_event"].to_pylist()
    for number, event, call in zip(numbers, names, structs(table, KernelCall), strict=True):
        parts = {name: tuple(getattr(call, name)) for name in _PARTS}
        graphs.setdefault(number, []).append(msgspec.structs.replace(call, **parts))
        events[number] = event
    return tuple(CompiledGraph(tuple(calls), events[number]) for number, calls in graphs.items())


_TEXTS: Final = pa.list_(pa.string())
TABLE: Final = SideTable(
    "compiled_graphs",
    "kernel calls in the code of compiled graphs, in the order of the code",
    (
        Column("graph", pa.int64(), False, "number of the graph"),
        Column("graph_event", pa.string(), True, "name of the event that spans a run of the graph"),
        Column("event", pa.string(), False, "name of the event that the profiler records for the call"),
        Column("kernel", pa.string(), False, "name of the kernel in the code"),
        Column("fused", pa.bool_(), False, "whether the compiler generated the kernel"),
        Column("operators", _TEXTS, False, "native names of the operators that the kernel computes"),
        Column("modules", _TEXTS, False, "paths of the layers that called these operators"),
        Column("stacks", _TEXTS, False, "stacks of the lines that called them, innermost frame first"),
    ),
    join=lambda tables: to_table(dict.fromkeys(graph for table in tables for graph in of_table(table))),
)
