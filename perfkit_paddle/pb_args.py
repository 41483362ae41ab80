"""What a profile protobuf holds beside times and names: launch shapes, copies, memory peaks, operator inputs.

Arguments have the keys of Paddle's JSON, so that a run means the same from either file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW
from perfkit_paddle import names
from perfkit_paddle import names as labels
from perfkit_paddle.inputs import decode_inputs
from perfkit_paddle.pb_schema import MISSING, OWNER
from perfkit_paddle.pb_table import IntArray, Table

_OPERATOR: Final = names.EVENT_TYPES.index("Operator")
_COPY_TEXTS: Final = {"copy_kind": "copy kind", "source_kind": "source kind", "target_kind": "target kind",
                      "memory_kind": "memory kind"}  # fmt: skip
_INTEGERS: Final = {"context": "context", "registers": "registers per thread", "value": "value",
                    "dynamic_shared": "dynamic shared memory", "local_per_thread": "local memory per thread",
                    "local_total": "local memory total", "queued_ns": "queued_ns",
                    "submitted_ns": "submitted_ns"}  # fmt: skip
_FLOATS: Final = {"blocks_per_sm": "blocks per SM", "warps_per_sm": "warps per SM"}
_SHAPES: Final = ("block_x", "block_y", "block_z", "grid_x", "grid_y", "grid_z", "static_shared", "occupancy")


def runtime(table: Table) -> pa.Array:
    """The args column of runtime calls."""
    return _joined(len(table), {"callback id": table.integers("callback")})


def memory(table: Table) -> pa.Array:
    """The args column of memory events."""
    keys = {"current_reserved": "reserved", "peak_allocated": "peak_allocated", "peak_reserved": "peak_reserved"}
    place = table.texts("place")
    quoted = pa.array([msgspec.json.encode(text).decode() for text in place.dictionary.to_pylist()], pa.string())
    columns = {"place": quoted.take(place.indices)} | {key: table.integers(c) for key, c in keys.items()}
    return _joined(len(table), columns)


def _joined(count: int, columns: Mapping[str, pa.Array]) -> pa.Array:
    """JSON objects of ready values, null where a value is; without a loop over rows."""
    if not count:
        return pa.array([], pa.string())
    pieces: list[Any] = []
    for i, (key, values) in enumerate(columns.items()):
        pieces += [("{" if i == 0 else ",") + f'"{key}":', values.cast(pa.string())]
    return pc.binary_join_element_wise(*pieces, "}", "")


def device(table: Table) -> labels.Columns:
    """The columns args and copy_kind of device work: made once for each distinct content."""
    texts = {column: table.texts(column) for column in (*_COPY_TEXTS, "name")}
    codes = {column: text.indices.fill_null(-1).to_numpy() for column, text in texts.items()}
    codes["name"] = np.where(table.known("bytes"), codes["name"], -1)  # kernels: the name is in no argument
    plain = (*_INTEGERS, *_FLOATS, *_SHAPES)
    cells = np.column_stack([table[column] for column in plain] + list(codes.values()))
    distinct, row = np.unique(cells, axis=0, return_inverse=True)
    found = [_device_row(dict(zip((*plain, *codes), map(int, cell), strict=True)), texts) for cell in distinct]
    row = row.reshape(-1)
    return {
        "args": labels.spread([args for args, _ in found], row).cast(pa.string()),
        "copy_kind": labels.spread([kind for _, kind in found], row),
    }


def _device_row(cell: dict[str, int], texts: dict[str, pa.DictionaryArray]) -> tuple[str | None, str | None]:
    text = {column: texts[column].dictionary[cell[column]].as_py() for column in texts if cell[column] >= 0}
    args: dict[str, Any] = {key: cell[column] for column, key in _INTEGERS.items() if _told(cell, column)}
    if cell["grid_x"] != MISSING:
        args |= _launch(cell)
    args |= {key: text[column] for column, key in _COPY_TEXTS.items() if text.get(column)}
    kinds = [text.get(column) for column in ("copy_kind", "source_kind", "target_kind")]
    copied = cell["value"] == MISSING and "name" in text
    kind = names.copy_kind(text["name"], *kinds) if copied else None
    return (msgspec.json.encode(args).decode() if args else None), kind


def _told(cell: dict[str, int], column: str) -> bool:
    """Time stamps that CUPTI was not asked for are 0."""
    return cell[column] != MISSING and not (column in ("queued_ns", "submitted_ns") and cell[column] == 0)


def _launch(cell: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: round(_float(cell[column]), 6) for column, key in _FLOATS.items() if cell[column] != MISSING
    }
    for key in ("grid", "block"):
        found[key] = [cell[f"{key}_{axis}"] for axis in "xyz"]
    if MISSING not in (cell["static_shared"], cell["dynamic_shared"]):
        found["shared memory"] = cell["static_shared"] + cell["dynamic_shared"]
    if cell["occupancy"] != MISSING:
        found["theoretical achieved occupancy %"] = round(100 * _float(cell["occupancy"]), 3)
    return found


def _float(bits: int) -> float:
    value = float(np.array(bits, np.int64).astype(np.uint32).view(np.float32))
    return value if np.isfinite(value) else 0.0


def supplements(tables: dict[str, Table], row: IntArray, parent: IntArray) -> labels.Columns:
    """Columns shapes, stack and args of host events (``row[r]`` of the result, for row r of the file).

    Paddle hangs an operator's inputs on a part of it (``infer_shape``): they are given to the operator itself.
    """
    table, types = tables["supplement"], tables["host"]["type"]
    if not len(table):
        return {}
    operator = nesting.nearest_on_path(parent, types == _OPERATOR)
    owner = np.where(operator[table[OWNER]] == NO_ROW, table[OWNER], operator[table[OWNER]])
    at = row[owner]
    count = int(row.max(initial=-1)) + 1
    columns: dict[str, list[str | None]] = {name: [None] * count for name in ("shapes", "stack", "args")}
    for index in np.flatnonzero(at != NO_ROW)[::-1]:  # backwards: the first one wins
        for name, value in decode_inputs(table, int(index)).items():
            columns[name][int(at[index])] = value
    return {name: pa.array(values, pa.string()).dictionary_encode() for name, values in columns.items()} | {
        "args": pa.array(columns["args"], pa.string())
    }
