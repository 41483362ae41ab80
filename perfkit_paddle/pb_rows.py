"""Converts the tables of a profile protobuf into one table of recorded events, with the parents that Paddle recorded.

The rows are in this order: host events, runtime calls, device work, memory events. The artificial root of each thread
is dropped, so its children have no parent. Arguments have the keys of Paddle's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.runtime import parallel
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.schema import CPU, OTHER
from perfkit_paddle import names
from perfkit_paddle.names import Columns
from perfkit_paddle.pb_table import MISSING, OWNER, Table, operator_inputs

_SPAN: Final = ("name", "start_ns", "end_ns")
REQUIRED: Final = {
    "host": (*_SPAN, "id", "parent_id", "type", "pid", "tid"),
    "runtime": (*_SPAN, "pid", "tid", "correlation"),
    "device": (*_SPAN, "type", "device", "stream", "correlation"),
    "memory": ("start_ns", "type", "address", "pid", "tid", "bytes"),
}
"""Columns that every event must have. All versions of Paddle write them."""
_MOST_NODES: Final = 1 << 40
"""Upper bound for the number of nodes in a tree."""
_OPERATOR: Final = names.EVENT_TYPES.index("Operator")
_RUNTIME: Final = names.EVENT_TYPES.index("CudaRuntime")

_COPY_TEXTS: Final = {"copy_kind": "copy kind", "source_kind": "source kind", "target_kind": "target kind",
                      "memory_kind": "memory kind"}  # fmt: skip
_INTEGERS: Final = {"context": "context", "registers": "registers per thread", "value": "value",
                    "dynamic_shared": "dynamic shared memory", "local_per_thread": "local memory per thread",
                    "local_total": "local memory total", "queued_ns": "queued_ns",
                    "submitted_ns": "submitted_ns"}  # fmt: skip
_FLOATS: Final = {"blocks_per_sm": "blocks per SM", "warps_per_sm": "warps per SM"}
_SHAPES: Final = ("block_x", "block_y", "block_z", "grid_x", "grid_y", "grid_z", "static_shared", "occupancy")
_SPANS: Final = ("host", "runtime", "device")
"""Tables of events with a start and an end."""
_STAMPS: Final = ("queued_ns", "submitted_ns")
"""Columns with times. They are 0 if CUPTI did not record the times."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Counts of events with problems.

    - ``incomplete``: number of events that lack a required column.
    - ``reversed``: number of events that end before they start.
    - ``untimed``: number of events whose start and end are 0, which is no time. They are left out.
    - ``roots``: number of the artificial roots of threads, which are no events.
    - ``supplements``: number of events with the inputs of an operator, which become cells of the operator.
    """

    incomplete: int = 0
    reversed: int = 0
    untimed: int = 0
    roots: int = 0
    supplements: int = 0

    def __add__(self, other: Doubtful) -> Doubtful:
        return Doubtful(*(sum(pair) for pair in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Rows:
    """The recorded events, and how many events have problems."""

    recorded: RecordedEvents
    doubtful: Doubtful


def rows(tables: dict[str, Table]) -> Rows:
    """Return all events of a file. Events that lack a required column are skipped and counted."""
    complete = _CompleteRows(tables)

    def tree() -> tuple[IntArray, Columns]:
        above = _parent_rows(tables["host"])
        row, parent = _new_rows(complete.node, above)
        return complete.parents(parent, row), _supplements(tables, row, above)

    (parent, supplements), parts = parallel.both(tree, complete.parts, len(tables["host"]))
    return complete.rows(parts, supplements, parent)


def of_piece(tables: dict[str, Table], thread: int) -> Rows:
    """Return the events of some nodes of one tree. ``thread`` is the index of the tree in the file. In the result, the
    columns ``node`` and ``parent`` identify nodes by ids that are unique in the file."""
    complete = _CompleteRows(tables)
    ids = tables["host"]["id"], tables["host"]["parent_id"]
    used = [(number >= 0) & (number < _MOST_NODES) for number in ids]  # Paddle numbers nodes from 0
    node_id, parent_id = (np.where(ok, thread * _MOST_NODES + id, NO_ROW) for ok, id in zip(used, ids, strict=True))
    number = np.append(node_id, NO_ROW)
    parent = complete.parents(parent_id[complete.node], number)
    nowhere = np.full(len(tables["host"]), NO_ROW, np.int64)
    supplements = _supplements(tables, _new_rows(complete.node, nowhere)[0], nowhere)
    events = complete.rows(complete.parts(), supplements, parent)
    columns = events.recorded.columns
    node = np.full(columns.num_rows, NO_ROW, np.int64)
    node[: int(complete.node.sum())] = number[:-1][complete.node]
    for name, values in (("node", node), ("parent", parent)):
        columns = columns.append_column(name, pa.array(values, mask=values == NO_ROW))
    return replace(events, recorded=RecordedEvents(columns))


class _CompleteRows:
    """The complete rows of all tables: those with a value in each required column. ``node`` is a mask over the rows of
    the table ``host``. It selects the rows that become events: the complete rows, except the root of each thread."""

    def __init__(self, tables: dict[str, Table]) -> None:
        complete = {}
        for name, required in REQUIRED.items():
            complete[name] = np.ones(len(tables[name]), np.bool_)
            for column in required:
                complete[name] &= tables[name].present(column)
        self._incomplete = sum(int((~mask).sum()) for mask in complete.values())
        timeless = {name: (tables[name]["start_ns"] == 0) & (tables[name]["end_ns"] == 0) for name in _SPANS}
        self._untimed = sum(int((complete[name] & mask).sum()) for name, mask in timeless.items())
        for name, mask in timeless.items():
            complete[name] &= ~mask
        host = tables["host"]
        # The artificial root of a thread begins at 0 and ends at the largest uint64, which is -1 as int64.
        endless = np.flatnonzero((host["end_ns"] == -1) & (host["start_ns"] == 0))
        texts = host.take(endless).texts("name").to_pylist()
        self.node = complete["host"]
        roots = endless[[text == names.ROOT_NAME for text in texts]]
        self._roots, self._supplements = int(self.node[roots].sum()), len(tables["supplement"])
        self.node[roots] = False
        self._host = host.take(self.node)
        self._runtime, self._device, self._memory = (
            tables[name].take(complete[name]) for name in ("runtime", "device", "memory")
        )

    def parents(self, of_host: IntArray, of_owner: IntArray) -> IntArray:
        """Return the parents of all events. ``of_host`` contains the parents of host events. ``of_owner[r]`` is the
        parent of the runtime calls and memory events that Paddle stored in row ``r`` of the table ``host``."""
        none = np.full(len(self._device), NO_ROW, np.int64)
        other_parents = [of_owner[self._runtime[OWNER]], none, of_owner[self._memory[OWNER]]]
        return np.concatenate([of_host, *other_parents]) if any(map(len, other_parents)) else of_host

    def parts(self) -> list[Columns]:
        host, runtime = self._host, self._runtime
        types = np.full(len(runtime), _RUNTIME, np.int64)
        columns = {
            "correlation": runtime.integers("correlation"),
            "args": _json_objects(len(runtime), {"callback id": runtime.integers("callback")}),
        }
        return [
            names.labelled(host.texts("name"), host["type"]) | _span(host) | _thread(host),
            names.labelled(runtime.texts("name"), types) | _span(runtime) | _thread(runtime) | columns,
            _device_columns(self._device),
            _memory_columns(self._memory),
        ]

    def rows(self, parts: list[Columns], supplements: Columns, parent: IntArray) -> Rows:
        parts = [parts[0] | supplements, *parts[1:]]
        types = {name: column.type for part in parts for name, column in part.items()}
        columns = {}
        for name, kind in types.items():
            chunks: list[pa.Array] = []
            for part in parts:
                count = len(part["start_ns"])
                if count:  # adds nulls for a missing column without allocating memory, unlike pyarrow.concat_tables
                    chunks += [part[name]] if name in part else arrays.constant(None, kind, count).chunks
            columns[name] = pa.chunked_array(chunks, kind)
        spans = (self._host, self._runtime, self._device)
        return Rows(
            RecordedEvents(pa.table(columns).unify_dictionaries(), parent),
            Doubtful(
                self._incomplete,
                sum(int((span["end_ns"] < span["start_ns"]).sum()) for span in spans),
                self._untimed,
                self._roots,
                self._supplements,
            ),
        )


def _span(table: Table) -> Columns:
    start = table["start_ns"]
    duration = table["end_ns"] - start
    return {"start_ns": pa.array(start), "dur_ns": pa.array(np.maximum(duration, 0, out=duration))}


def _thread(table: Table) -> Columns:
    cpu = names.constant(CPU, len(table))
    return {"pid": table.integers("pid"), "tid": table.integers("tid"), "device": cpu}


def _device_columns(table: Table) -> Columns:
    """Return the columns of device work. For speed, rows with equal contents are converted only once."""
    texts = {column: table.texts(column) for column in (*_COPY_TEXTS, "name")}
    codes = {column: text.indices.fill_null(-1).to_numpy() for column, text in texts.items()}
    codes["name"] = np.where(table.present("bytes"), codes["name"], -1)  # only copies need it, for the copy kind
    plain = (*_INTEGERS, *_FLOATS, *_SHAPES)
    cells = np.column_stack([table[column] for column in plain] + list(codes.values()))
    distinct, row = np.unique(cells, axis=0, return_inverse=True)
    decoded = [_device_arguments(dict(zip((*plain, *codes), map(int, cell), strict=True)), texts) for cell in distinct]
    row = row.reshape(-1)
    numbers, device = np.unique(table["device"], return_inverse=True)
    columns = {
        "device": names.spread([f"{names.DEVICE_BACKEND}:{number}" for number in numbers], device),
        "stream": table.integers("stream"),
        "correlation": table.integers("correlation"),
        "bytes": table.integers("bytes"),
        "args": names.spread([args for args, _ in decoded], row).cast(pa.string()),
        "copy_kind": names.spread([kind for _, kind in decoded], row),
    }
    return names.labelled(table.texts("name"), table["type"]) | _span(table) | columns


def _device_arguments(cell: dict[str, int], texts: dict[str, pa.DictionaryArray]) -> tuple[str | None, str | None]:
    """Return the arguments (JSON) and the copy kind of one row. ``cell`` maps each column of the table to the row's
    value. A text is given by its index in the dictionary of ``texts[column]``, or -1 if there is no text."""
    text = {column: texts[column].dictionary[cell[column]].as_py() for column in texts if cell[column] >= 0}
    args: dict[str, Any] = {
        key: cell[column]
        for column, key in _INTEGERS.items()
        if cell[column] != MISSING and not (column in _STAMPS and cell[column] == 0)
    }
    if cell["grid_x"] != MISSING:
        for column, key in _FLOATS.items():
            if cell[column] != MISSING:
                args[key] = round(_float(cell[column]), 6)
        for key in ("grid", "block"):
            args[key] = [cell[f"{key}_{axis}"] for axis in "xyz"]
        if MISSING not in (cell["static_shared"], cell["dynamic_shared"]):
            args["shared memory"] = cell["static_shared"] + cell["dynamic_shared"]
        if cell["occupancy"] != MISSING:
            args["theoretical achieved occupancy %"] = round(100 * _float(cell["occupancy"]), 3)
    args |= {key: text[column] for column, key in _COPY_TEXTS.items() if text.get(column)}
    kinds = [text.get(column) for column in ("copy_kind", "source_kind", "target_kind")]
    copied = cell["value"] == MISSING and "name" in text
    kind = names.copy_kind(text["name"], *kinds) if copied else None
    return (msgspec.json.encode(args).decode() if args else None), kind


def _float(bits: int) -> float:
    value = float(np.array(bits, np.int64).astype(np.uint32).view(np.float32))
    return value if np.isfinite(value) else 0.0


def _memory_columns(table: Table) -> Columns:
    place = table.texts("place")
    places = place.dictionary.to_pylist()
    devices = [*map(names.place_device, places), CPU]  # the last item is for memory events without a place
    quoted = pa.array([msgspec.json.encode(text).decode() for text in places], pa.string())
    arguments = {
        "place": quoted.take(place.indices),
        "current_reserved": table.integers("reserved"),
        "peak_allocated": table.integers("peak_allocated"),
        "peak_reserved": table.integers("peak_reserved"),
    }
    columns = {
        "start_ns": pa.array(table["start_ns"]),
        "dur_ns": pa.array(np.zeros(len(table), np.int64)),
        "device": names.spread(devices, place.indices.fill_null(len(places)).to_numpy()),
        "bytes": table.integers("bytes"),
        "address": table.integers("address"),
        "total_bytes": table.integers("allocated"),
        "args": _json_objects(len(table), arguments),
    }
    return names.memory_labelled(table["type"]) | _thread(table) | columns


def _json_objects(count: int, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return a JSON object for each row, or null if one of its values is null. ``columns``: key → values, as JSON."""
    if not count:
        return pa.array([], pa.string())
    pieces: list[Any] = []
    for i, (key, values) in enumerate(columns.items()):
        pieces += [("{" if i == 0 else ",") + f'"{key}":', values.cast(pa.string())]
    return pc.binary_join_element_wise(*pieces, "}", "")


def _supplements(tables: dict[str, Table], row: IntArray, parent: IntArray) -> Columns:
    """Return the inputs of operators (shapes, stack, args) as columns for all host events. Paddle records the inputs in
    an event inside the operator (``infer_shape``). In the result, they are in the row of the operator.

    - ``row``: row of ``host`` → row of the result.
    - ``parent``: row of ``host`` → row of the parent in ``host``. Without a parent, inputs stay in their event."""
    table, types = tables["supplement"], tables["host"]["type"]
    if not len(table):
        return {}
    operator = nesting.nearest_on_path(parent, types == _OPERATOR)
    owner = np.where(operator[table[OWNER]] == NO_ROW, table[OWNER], operator[table[OWNER]])
    at = row[owner]
    count = int(row.max(initial=-1)) + 1
    columns: dict[str, list[str | None]] = {name: [None] * count for name in ("shapes", "stack", "args")}
    for index in np.flatnonzero(at != NO_ROW)[::-1]:  # backwards: an operator's first input is stored last, and stays
        for name, value in operator_inputs(table, int(index)).items():
            columns[name][int(at[index])] = value
    return {name: pa.array(values, pa.string()).dictionary_encode() for name, values in columns.items()} | {
        "args": pa.array(columns["args"], pa.string())
    }


def _new_rows(node: BoolArray, above: IntArray) -> tuple[IntArray, IntArray]:
    """Return the new row number of each row of the table ``host`` (NO_ROW if it is dropped), and the parent of each new
    row. The first array ends with an additional NO_ROW. Therefore the index NO_ROW (-1) gives NO_ROW."""
    row, parent = np.empty(len(node) + 1, np.int64), np.empty(int(node.sum()), np.int64)
    _renumber(node, above, row, parent)
    return row, parent


def _parent_rows(host: Table) -> IntArray:
    """Return the row of each host event's parent, or NO_ROW. A parent must be an earlier row of the same thread."""
    thread, node, parent_id = host[OWNER], host["id"], host["parent_id"]
    count = len(host)
    above = np.empty(count, np.int64)
    if _find_by_position(thread, node, parent_id, above):
        return above
    ids, code = np.unique(np.concatenate([node, parent_id]), return_inverse=True)
    key = np.tile(thread, 2) * (len(ids) + 1) + code
    order = np.argsort(key[:count], kind="stable")
    nearest = order[np.minimum(np.searchsorted(key[:count][order], key[count:]), count - 1)]
    return np.where((key[nearest] == key[count:]) & (nearest < np.arange(count)), nearest, NO_ROW)


@compiled
def _find_by_position(thread: IntArray, node: IntArray, parent_id: IntArray, above: Out[IntArray]) -> bool:
    """Set ``above`` to the parents' rows. Return False if the nodes of a thread are not numbered from 0."""
    begin = 0
    for i in range(len(node)):
        if i > 0 and thread[i] != thread[i - 1]:
            begin = i
        if node[i] != i - begin:
            return False
        above[i] = begin + parent_id[i] if 0 <= parent_id[i] < node[i] else NO_ROW
    return True


@compiled
def _renumber(mask: BoolArray, above: IntArray, row: Out[IntArray], parent: Out[IntArray]) -> None:
    count = 0
    row[len(mask)] = NO_ROW
    for i in range(len(mask)):
        row[i] = NO_ROW
        if mask[i]:
            row[i] = count
            parent[count] = row[above[i]] if above[i] >= 0 else NO_ROW
            count += 1


def without_steps(recorded: RecordedEvents, numbers: frozenset[int]) -> RecordedEvents:
    """Turn the steps with these numbers into events of the kind ``other`` without a step number."""
    if not numbers:
        return recorded
    events = recorded.columns
    mask = pc.is_in(events["step"], pa.array(sorted(numbers), pa.int64()))
    kind = pc.if_else(mask, OTHER, events["kind"].cast(pa.string())).dictionary_encode()
    step = pc.if_else(mask, pa.scalar(None, pa.int64()), events["step"])
    for name, values in (("kind", kind), ("step", step)):
        events = events.set_column(events.column_names.index(name), name, values)
    return replace(recorded, columns=events)
