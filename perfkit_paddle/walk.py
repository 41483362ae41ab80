"""The live event tree of ``paddle.profiler`` as the tables that a protobuf scan gives: for where Paddle cannot save.

Slower (10 µs an event instead of 2), and poorer: the tree does not tell copy kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from perfkit_paddle.pb_schema import MISSING, OWNER, layout
from perfkit_paddle.pb_table import IntArray, Table

_UINT64: Final = 1 << 64
_HOST: Final = {"pid": "process_id", "tid": "thread_id", "start_ns": "start_ns", "end_ns": "end_ns"}
_RUNTIME: Final = _HOST | {"correlation": "correlation_id"}
_DEVICE: Final = {
    "start_ns": "start_ns", "end_ns": "end_ns", "device": "device_id", "context": "context_id", "stream": "stream_id",
    "correlation": "correlation_id",
}  # fmt: skip
_KERNEL: Final = {
    **{f"{key}_{axis}": f"{key}_{axis}" for key in ("block", "grid") for axis in "xyz"},
    "static_shared": "shared_memory", "registers": "registers_per_thread",
}  # fmt: skip
_KERNEL_FLOATS: Final = ("blocks_per_sm", "warps_per_sm", "occupancy")
_MEMORY: Final = {
    "start_ns": "timestamp_ns", "address": "addr", "pid": "process_id", "tid": "thread_id", "bytes": "increase_bytes",
    "allocated": "current_allocated", "reserved": "current_reserved", "peak_allocated": "peak_allocated",
    "peak_reserved": "peak_reserved",
}  # fmt: skip


def walk(trees: Mapping[int, Any], extra_info: Mapping[str, str]) -> dict[str, Table]:
    """Tables by name from ``result.get_data()`` and ``result.get_extra_info()``."""
    tables = _Tables()
    for thread, root in trees.items():
        owner = tables.add("thread", 0, thread_id=thread)
        for number, (node, parent) in enumerate(_breadth_first(root)):
            _host(tables, owner, node, number, parent)
    for key, value in extra_info.items():
        tables.add("extra", 0, **tables.text("key", key), **tables.text("value", value))
    tables.add("file", 0)
    return tables.finished()


def _breadth_first(root: Any) -> Iterator[tuple[Any, int]]:
    """Nodes and the number of their parent (-1: none), in the order in which Paddle numbers them."""
    level, parents, count = [root], [-1], 0
    while level:
        below, below_parents = [], []
        for node, parent in zip(level, parents, strict=True):
            yield node, parent
            children = node.children_node
            below += children
            below_parents += [count] * len(children)
            count += 1
        level, parents = below, below_parents


def _host(tables: _Tables, thread: int, node: Any, number: int, parent: int) -> None:
    own = _read(node, _HOST) | tables.text("name", node.name)
    row = tables.add("host", thread, id=number, parent_id=parent, type=int(node.type), **own)
    for memory in node.mem_node:
        place = tables.text("place", memory.place)
        tables.add("memory", row, type=int(memory.type), **_read(memory, _MEMORY), **place)
    for call in node.runtime_node:
        called = tables.add("runtime", row, **_read(call, _RUNTIME), **tables.text("name", call.name))
        for work in call.device_node:
            _device(tables, called, work)


def _device(tables: _Tables, call: int, node: Any) -> None:
    cells = _read(node, _DEVICE) | tables.text("name", node.name) | {"type": int(node.type)}
    kind = getattr(node.type, "name", "")
    if kind == "Kernel":
        cells |= _read(node, _KERNEL) | {"dynamic_shared": 0}
        cells |= {column: int(np.float32(getattr(node, column)).view(np.int32)) for column in _KERNEL_FLOATS}
    else:
        cells["bytes"] = node.num_bytes
    if kind == "Memset":
        cells["value"] = node.value
    tables.add("device", call, **cells)


def _read(node: Any, attributes: Mapping[str, str]) -> dict[str, int]:
    return {column: getattr(node, attribute) for column, attribute in attributes.items()}


class _Tables:
    """Rows by table, and the bytes of their texts, each kept once."""

    def __init__(self) -> None:
        plan = layout()
        self._columns = dict(zip(plan.tables, plan.columns, strict=True))
        self._rows: dict[str, list[list[int]]] = {name: [] for name in plan.tables}
        self._texts = bytearray()
        self._known: dict[str, tuple[int, int]] = {}

    def text(self, column: str, value: str) -> dict[str, int]:
        """The two cells of a text."""
        if value not in self._known:
            raw = value.encode("utf-8", "replace")
            self._known[value] = len(self._texts), len(raw)
            self._texts += raw
        offset, length = self._known[value]
        return {column: offset, f"{column}.length": length}

    def add(self, table: str, owner: int, **cells: int) -> int:
        """Add a row and return its number."""
        cells[OWNER] = owner
        self._rows[table].append([_signed(cells.get(column, MISSING)) for column in self._columns[table]])
        return len(self._rows[table]) - 1

    def finished(self) -> dict[str, Table]:
        data = np.frombuffer(bytes(self._texts), np.uint8)
        return {
            name: Table(data, _by_column(rows, len(self._columns[name])), self._columns[name])
            for name, rows in self._rows.items()
        }


def _by_column(rows: list[list[int]], width: int) -> IntArray:
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, width).T)


def _signed(value: int) -> int:
    """An unsigned 64-bit number as the int64 with the same bits, as in the protobuf."""
    return value - _UINT64 if value >= 1 << 63 else value
