"""The tables of a profile protobuf as one table of recorded events, with the parents that Paddle recorded.

Parts in this order: host events, runtime calls, device work, memory events. The artificial root of each thread is left
out; its children have no parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.assemble import Recorded
from perfkit_core.schema import CPU, NO_ROW, OTHER
from perfkit_paddle import labels, names, pb_args
from perfkit_paddle.pb_schema import OWNER
from perfkit_paddle.pb_table import IntArray, Table

BoolArray = npt.NDArray[np.bool_]

_SPAN: Final = ("name", "start_ns", "end_ns")
REQUIRED: Final = {
    "host": (*_SPAN, "id", "parent_id", "type", "pid", "tid"),
    "runtime": (*_SPAN, "pid", "tid", "correlation"),
    "device": (*_SPAN, "type", "device", "stream", "correlation"),
    "memory": ("start_ns", "type", "address", "pid", "tid", "bytes"),
}
"""Without these an event cannot be used. All Paddle versions write them."""

_RUNTIME_TYPE: Final = names.EVENT_TYPES.index("CudaRuntime")


@dataclass(frozen=True, slots=True)
class Rows:
    """Recorded events, and how many could not be used or had an end before their start."""

    recorded: Recorded
    incomplete: int
    reversed: int
    unknown: dict[int, int]


def rows(tables: dict[str, Table]) -> Rows:
    """All events of a file. Incomplete ones are left out and counted."""
    whole = {name: _whole(tables[name], columns) for name, columns in REQUIRED.items()}
    kept = {name: tables[name].take(mask) for name, mask in whole.items()}
    root = _roots(kept["host"])
    row = _new_rows(whole["host"], root)
    count = {name: len(table) for name, table in kept.items()} | {"host": int((~root).sum())}
    parts = [
        _host(kept["host"].take(~root), pb_args.supplements(tables, row, _parent_rows(tables["host"]))),
        _runtime(kept["runtime"]),
        _device(kept["device"]),
        _memory(kept["memory"]),
    ]
    parent = [
        _at(row, _parent_rows(tables["host"])[whole["host"]][~root]),
        _at(row, kept["runtime"][OWNER]),
        np.full(count["device"], NO_ROW, np.int64),
        _at(row, kept["memory"][OWNER]),
    ]
    table = pa.concat_tables([pa.table(part) for part in parts], promote_options="default").unify_dictionaries()
    spans = [kept["host"].take(~root), kept["runtime"], kept["device"]]
    return Rows(
        Recorded(table.combine_chunks(), np.concatenate(parent)),
        sum(int((~mask).sum()) for mask in whole.values()),
        sum(int((span["end_ns"] < span["start_ns"]).sum()) for span in spans),
        _unknown([spans[0]["type"], spans[2]["type"]]),
    )


def _whole(table: Table, columns: tuple[str, ...]) -> BoolArray:
    mask = np.ones(len(table), np.bool_)
    for column in columns:
        mask &= table.known(column)
    return mask


def _roots(host: Table) -> BoolArray:
    """The artificial node above each thread: without parent, from 0 to the end of time."""
    name = host.texts("name")
    code = name.dictionary.to_pylist().index(names.ROOT_NAME) if names.ROOT_NAME in name.dictionary.to_pylist() else -1
    return np.asarray((name.indices.to_numpy() == code) & (host["end_ns"] == -1) & (host["start_ns"] == 0))


def _new_rows(whole: BoolArray, root: BoolArray) -> IntArray:
    """Row in the result of each host row of the file, NO_ROW where it was left out; one more cell for NO_ROW itself."""
    used = whole.copy()
    used[np.flatnonzero(whole)[root]] = False
    row = np.full(len(whole) + 1, NO_ROW, np.int64)
    row[:-1][used] = np.arange(int(used.sum()))
    return row


def _at(row: IntArray, index: IntArray) -> IntArray:
    return row[index]


def _parent_rows(host: Table) -> IntArray:
    """Row of each host node's parent in the same thread, NO_ROW where there is none."""
    ids, code = np.unique(np.concatenate([host["id"], host["parent_id"]]), return_inverse=True)
    key = np.tile(host[OWNER], 2) * (len(ids) + 1) + code
    own, wanted = key[: len(host)], key[len(host) :]
    order = np.argsort(own, kind="stable")
    position = np.minimum(np.searchsorted(own[order], wanted), max(len(host) - 1, 0))
    if not len(host):
        return np.empty(0, np.int64)
    found = order[position]
    return np.where((own[found] == wanted) & (found < np.arange(len(host))), found, NO_ROW)


def _span(table: Table) -> labels.Columns:
    start = table["start_ns"]
    return {"start_ns": pa.array(start), "dur_ns": pa.array(np.maximum(table["end_ns"] - start, 0))}


def _thread(table: Table) -> labels.Columns:
    cpu = labels.constant(CPU, len(table))
    return {"pid": table.integers("pid"), "tid": table.integers("tid"), "device": cpu}


def _host(table: Table, supplements: labels.Columns) -> labels.Columns:
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | _thread(table) | supplements


def _runtime(table: Table) -> labels.Columns:
    types = np.full(len(table), _RUNTIME_TYPE, np.int64)
    own = {"correlation": table.integers("correlation"), "args": pb_args.runtime(table)}
    return labels.labelled(table.texts("name"), types) | _span(table) | _thread(table) | own


def _device(table: Table) -> labels.Columns:
    numbers, row = np.unique(table["device"], return_inverse=True)
    own = {
        "device": labels.spread([f"{names.DEVICE_BACKEND}:{number}" for number in numbers], row),
        "stream": table.integers("stream"),
        "correlation": table.integers("correlation"),
        "bytes": table.integers("bytes"),
    }
    return labels.labelled(table.texts("name"), table["type"]) | _span(table) | own | pb_args.device(table)


def _memory(table: Table) -> labels.Columns:
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
    numbers, counts = np.unique(np.concatenate(types), return_counts=True)
    known = range(len(names.EVENT_TYPES))
    return {int(n): int(c) for n, c in zip(numbers, counts, strict=True) if int(n) not in known}
