"""The tables of a profile protobuf as one table of recorded events, with the parents that Paddle recorded.

Parts in this order: host events, runtime calls, device work, memory events. The artificial root of each thread is left
out; its children have no parent.

Columns of the event table from the tables of a profile protobuf, one function a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import NO_ROW, constant
from perfkit_core.assembly.draft import Recorded
from perfkit_core.model.schema import CPU, OTHER
from perfkit_core.runtime import parallel
from perfkit_core.runtime.compile import compiled_at_once
from perfkit_paddle import names, pb_args
from perfkit_paddle import names as labels
from perfkit_paddle.pb_schema import OWNER
from perfkit_paddle.pb_table import IntArray, Table

_RUNTIME_TYPE: Final = names.EVENT_TYPES.index("CudaRuntime")


def _span(table: Table) -> labels.Columns:
    start = table["start_ns"]
    duration = table["end_ns"] - start
    return {"start_ns": pa.array(start), "dur_ns": pa.array(np.maximum(duration, 0, out=duration))}


def _thread(table: Table) -> labels.Columns:
    cpu = labels.constant(CPU, len(table))
    return {"pid": table.integers("pid"), "tid": table.integers("tid"), "device": cpu}


def host(table: Table) -> labels.Columns:
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | _thread(table)


def runtime(table: Table) -> labels.Columns:
    types = np.full(len(table), _RUNTIME_TYPE, np.int64)
    own = {"correlation": table.integers("correlation"), "args": pb_args.runtime(table)}
    return labels.labelled(table.texts("name"), types) | _span(table) | _thread(table) | own


def device(table: Table) -> labels.Columns:
    numbers, row = np.unique(table["device"], return_inverse=True)
    own = {
        "device": labels.spread([f"{names.DEVICE_BACKEND}:{number}" for number in numbers], row),
        "stream": table.integers("stream"),
        "correlation": table.integers("correlation"),
        "bytes": table.integers("bytes"),
    }
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | own | pb_args.device(table)


def memory(table: Table) -> labels.Columns:
    place = table.texts("place")
    own = {
        "start_ns": pa.array(table["start_ns"]),
        "dur_ns": pa.array(np.zeros(len(table), np.int64)),
        "device": places(place),
        "bytes": table.integers("bytes"),
        "address": table.integers("address"),
        "total_bytes": table.integers("allocated"),
        "args": pb_args.memory(table),
    }
    return labels.memory_labelled(table["type"]) | _thread(table) | own


def places(place: pa.DictionaryArray) -> pa.DictionaryArray:
    """Values of the device column for the places of memory events; null is the host."""
    devices = [names.place_device(text) for text in place.dictionary.to_pylist()] + [CPU]
    codes = place.indices.fill_null(len(devices) - 1).to_numpy()
    return labels.spread(devices, codes)


BoolArray = npt.NDArray[np.bool_]

_SPAN: Final = ("name", "start_ns", "end_ns")
REQUIRED: Final = {
    "host": (*_SPAN, "id", "parent_id", "type", "pid", "tid"),
    "runtime": (*_SPAN, "pid", "tid", "correlation"),
    "device": (*_SPAN, "type", "device", "stream", "correlation"),
    "memory": ("start_ns", "type", "address", "pid", "tid", "bytes"),
}
"""Without these an event cannot be used. All Paddle versions write them."""
_NODES: Final = 1 << 40
"""More than a tree has."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """How many events could not be used, or had an end before their start, or are of which unknown type."""

    incomplete: int = 0
    reversed: int = 0
    unknown: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Doubtful) -> Doubtful:
        unknown = dict(sorted((Counter(self.unknown) + Counter(other.unknown)).items()))
        return Doubtful(self.incomplete + other.incomplete, self.reversed + other.reversed, unknown)


@dataclass(frozen=True, slots=True)
class Rows:
    """Recorded events, and what is doubtful about them."""

    recorded: Recorded
    doubtful: Doubtful


def rows(tables: dict[str, Table]) -> Rows:
    """All events of a file. Incomplete ones are left out and counted."""
    kept = _Kept(tables)

    def tree() -> tuple[IntArray, labels.Columns]:
        above = _parent_rows(tables["host"])
        row, parent = _new_rows(kept.node, above)
        return kept.each(parent, row), pb_args.supplements(tables, row, above)

    (parent, supplements), parts = parallel.both(tree, kept.parts, len(tables["host"]))
    return kept.rows(parts, supplements, parent)


def of_piece(tables: dict[str, Table], thread: int) -> Rows:
    """The events of some nodes of a tree, the ``thread``-th of its file. Parents are not rows: they are numbers of the
    column ``node``, which hold in the whole file. What hangs on a part of an operator stays there."""
    kept = _Kept(tables)
    number = np.append(_numbers(thread, tables["host"]["id"]), NO_ROW)
    parent = kept.each(_numbers(thread, tables["host"]["parent_id"])[kept.node], number)
    nowhere = np.full(len(tables["host"]), NO_ROW, np.int64)
    found = kept.rows(kept.parts(), pb_args.supplements(tables, _new_rows(kept.node, nowhere)[0], nowhere), parent)
    node = np.full(found.recorded.columns.num_rows, NO_ROW, np.int64)
    node[: int(kept.node.sum())] = number[:-1][kept.node]
    columns = found.recorded.columns
    for name, values in (("node", node), ("parent", parent)):
        columns = columns.append_column(name, pa.array(values, mask=values == NO_ROW))
    return replace(found, recorded=Recorded(columns))


class _Kept:
    """What of some tables can be used; ``node`` marks the host events among the rows of their table."""

    def __init__(self, tables: dict[str, Table]) -> None:
        whole = {name: _whole(tables[name], columns) for name, columns in REQUIRED.items()}
        self.node = whole["host"] & ~_roots(tables["host"])
        self._host = tables["host"].take(self.node)
        self._runtime, self._device, self._memory = (
            tables[name].take(whole[name]) for name in ("runtime", "device", "memory")
        )
        self._incomplete = sum(int((~mask).sum()) for mask in whole.values())

    def each(self, of_host: IntArray, of_owner: IntArray) -> IntArray:
        """The parents of all rows, from those of the host events, and from what stands for each host row as owner."""
        none = np.full(len(self._device), NO_ROW, np.int64)
        others = [of_owner[self._runtime[OWNER]], none, of_owner[self._memory[OWNER]]]
        return np.concatenate([of_host, *others]) if any(map(len, others)) else of_host

    def parts(self) -> list[labels.Columns]:
        """The columns of each part, of the host events those that they have themselves."""
        return [
            host(self._host),
            runtime(self._runtime),
            device(self._device),
            memory(self._memory),
        ]

    def rows(self, parts: list[labels.Columns], supplements: labels.Columns, parent: IntArray) -> Rows:
        """The events, in the order of the parts; ``supplements`` are further columns of the host events."""
        host, runtime, device = self._host, self._runtime, self._device
        return Rows(
            Recorded(_behind_one_another([parts[0] | supplements, *parts[1:]]), parent),
            Doubtful(
                self._incomplete,
                sum(int((span["end_ns"] < span["start_ns"]).sum()) for span in (host, runtime, device)),
                _unknown([host["type"], device["type"]]),
            ),
        )


def _behind_one_another(parts: list[labels.Columns]) -> pa.Table:
    """All parts as one table, with the columns of each. What a part lacks is null there; Arrow would fill memory with
    that."""
    types = {name: column.type for part in parts for name, column in part.items()}
    filled = [part for part in parts if len(part["start_ns"])]
    columns = {
        name: pa.chunked_array([chunk for part in filled for chunk in _chunks(part, name, kind)], kind)
        for name, kind in types.items()
    }
    return pa.table(columns).unify_dictionaries()


def _chunks(part: labels.Columns, name: str, kind: pa.DataType) -> list[pa.Array]:
    return [part[name]] if name in part else constant(None, kind, len(part["start_ns"])).chunks


def _numbers(thread: int, node: IntArray) -> IntArray:
    """Numbers of nodes that no other thread has; NO_ROW for what Paddle counts no node by."""
    return np.where((node >= 0) & (node < _NODES), thread * _NODES + node, NO_ROW)


def _whole(table: Table, columns: tuple[str, ...]) -> BoolArray:
    mask = np.ones(len(table), np.bool_)
    for column in columns:
        mask &= table.known(column)
    return mask


def _roots(host: Table) -> BoolArray:
    """The artificial node above each thread: without parent, from 0 to the end of time."""
    endless = np.flatnonzero((host["end_ns"] == -1) & (host["start_ns"] == 0))
    name = host.take(endless).texts("name").to_pylist()
    roots = np.zeros(len(host), np.bool_)
    roots[endless[[text == names.ROOT_NAME for text in name]]] = True
    return roots


def _new_rows(node: BoolArray, above: IntArray) -> tuple[IntArray, IntArray]:
    """Row in the result of each host row of the file, NO_ROW where it was left out, and one more cell for NO_ROW
    itself; and the parents of the rows of the result."""
    row, parent = np.empty(len(node) + 1, np.int64), np.empty(int(node.sum()), np.int64)
    _renumber(node, above, row, parent)
    return row, parent


def _parent_rows(host: Table) -> IntArray:
    """Row of each host node's parent in the same thread, NO_ROW where there is none. Parents come first."""
    thread, node, wanted = host[OWNER], host["id"], host["parent_id"]
    above = np.empty(len(host), np.int64)
    if _place(thread, node, wanted, above):
        return above
    return _looked_up(thread, node, wanted)


def _looked_up(thread: IntArray, node: IntArray, wanted: IntArray) -> IntArray:
    """Row of the node of the same thread with the wanted number, NO_ROW where none comes before."""
    count = len(node)
    ids, code = np.unique(np.concatenate([node, wanted]), return_inverse=True)
    key = np.tile(thread, 2) * (len(ids) + 1) + code
    order = np.argsort(key[:count], kind="stable")
    own = key[:count][order]
    found = order[np.minimum(np.searchsorted(own, key[count:]), count - 1)]
    return np.where((key[found] == key[count:]) & (found < np.arange(count)), found, NO_ROW)


@compiled_at_once
def _place(thread, node, wanted, above):  # type: ignore[no-untyped-def]
    """Sets the parents of nodes that count from 0 on in each thread, as Paddle numbers them; False where others do."""
    begin = 0
    for i in range(len(node)):
        if i > 0 and thread[i] != thread[i - 1]:
            begin = i
        if node[i] != i - begin:
            return False
        above[i] = begin + wanted[i] if 0 <= wanted[i] < node[i] else NO_ROW
    return True


@compiled_at_once
def _renumber(kept, above, row, parent):  # type: ignore[no-untyped-def]
    count = 0
    row[len(kept)] = NO_ROW
    for i in range(len(kept)):
        row[i] = NO_ROW
        if kept[i]:
            row[i] = count
            parent[count] = row[above[i]] if above[i] >= 0 else NO_ROW
            count += 1


def without_steps(recorded: Recorded, numbers: frozenset[int]) -> Recorded:
    """The same events, but those steps are of kind ``other``: they are not iterations."""
    if not numbers:
        return recorded
    events = recorded.columns
    mask = pc.is_in(events["step"], pa.array(sorted(numbers), pa.int64()))
    kind = pc.if_else(mask, OTHER, events["kind"].cast(pa.string())).dictionary_encode()
    step = pc.if_else(mask, pa.scalar(None, pa.int64()), events["step"])
    for name, values in (("kind", kind), ("step", step)):
        events = events.set_column(events.column_names.index(name), name, values)
    return Recorded(events, recorded.parent)


def _unknown(types: list[IntArray]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for of_table in types:
        counted = pa.array(of_table).value_counts()
        found.update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
    return {number: found[number] for number in sorted(found) if number not in range(len(names.EVENT_TYPES))}
