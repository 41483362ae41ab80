"""Attack the gate with small random tables: ``python -m tests.fuzz --target gate``.

Each number is a table: recorded events, an event table, some of its columns, or a side table. Most have cells, types or
memory that cannot be. The gate must accept or refuse a table, and raises only ValueError. Tables without such damage
must pass, and those that pass must keep its promises. Some of them run through assembly and the views, whose compiled
loops follow indexes without checking them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.api import summarize
from perfkit_core.errors import PerfkitError
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.draft import EXTERNAL, LAYER, RECORDED_TYPES, RecordedEvents
from perfkit_core.trace.model import schema, side_tables
from perfkit_core.trace.model.gate import checked, checked_events, checked_side_table, checked_table
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.trace import Trace
from tests.fuzz.target import FindingError, Target

MOST_ROWS: Final = 12
_USED: Final = 0.002
"""Share of the accepted tables that run through assembly and views."""
_VARIANTS: Final = 12
_INT64: Final = (-(2**63), 1 - 2**63, -(2**62), -(2**31), -2, -1, 0, 1, 2, 11, 12, 2**31 - 1, 2**31, 2**53, 2**62,
                 2**63 - 13, 2**63 - 1)  # fmt: skip
_BYTES: Final = (b"", b"cpu", b"kernel", b"step", b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x00",
                 b"\xf4\x90\x80\x80", b"x" * 40, b"[[1, 2]]", '\u202e"'.encode())  # fmt: skip
_META: Final = TraceMeta(source="made", format="made", framework="fw")
_OPTIONAL: Final = ("category", "rank", "pid", "tid", "stream", "correlation", "step", "phase", "sequence", "bytes",
                    "copy_kind", "address", "total_bytes", "shapes", "stack", "args", EXTERNAL, LAYER)  # fmt: skip
"""Columns that recorded events may have."""
_NEEDED: Final = ("name", "kind", "start_ns", "dur_ns", "device")
_TEXTS: Final[dict[str, Sequence[str | None]]] = {
    "kind": schema.KINDS,
    "phase": (*schema.PHASES, None),
    "device": ("cpu", "cpu", "cpu", "cuda:0", "cuda:1", None),
    "name": (
        "aten::mm",
        "aten::add",
        "ProfilerStep#1",
        "cudaLaunchKernel",
        "Memcpy HtoD",
        "ncclDevKernel_AllReduce",
        "",
    ),
    "copy_kind": ("HtoD", "DtoD", None),
    "shapes": ("[[2, 3], [3, 4]]", "[]", "[[", None),
    "args": ('{"a": 1}', "{}", "null", None),
    "on": ("host", "device"),
    "": ("a", "b;c", "\u5c42", "", None),
}
_VIEWS: Final = ("overview", "steps", "operators", "kernels", "critical_path", "memory", "stack")


class Spoiler:
    """Makes the columns of one table from ``chance`` alone. ``damages`` counts what was done to them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.damages = chance, 0

    def column(self, name: str, of_type: pa.DataType, nullable: bool, rows: int, damage: float) -> pa.ChunkedArray:
        """Return a column with plausible cells or, with the probability ``damage``, one that may be impossible."""
        chance = self.chance
        if chance.random() >= damage:
            return chance.choice(_plausible(name, of_type, nullable, rows))
        self.damages += 1
        make = chance.choice(_DAMAGES)
        array = make(self, name, of_type, rows)
        return array if isinstance(array, pa.ChunkedArray) else self._in_pieces(array)

    def _in_pieces(self, array: pa.Array) -> pa.ChunkedArray:
        """Return the array in one chunk or several, some without rows, some with an offset."""
        how = self.chance.random()
        if how < 0.6:
            return pa.chunked_array([array])
        at = self.chance.randint(0, len(array))
        if how < 0.9:
            return pa.chunked_array([array.slice(0, at), array.slice(at)])
        return pa.chunked_array([array.slice(0, 0), array.slice(0, at), array.slice(at, 0), array.slice(at)])

    # ---- damages ----

    def extreme(self, name: str, of_type: pa.DataType, rows: int) -> pa.Array:
        """Some cells are integers of any size, null, or rows of the table."""
        if not pa.types.is_integer(of_type):
            return self.wrong_texts(name, of_type, rows)
        chance, bits = self.chance, of_type.bit_width
        cells: list[int | None] = [chance.randint(-1, rows) for _ in range(rows)]
        for row in range(rows):
            if chance.random() < 0.3:
                value = chance.choice(_INT64)
                cells[row] = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
            elif chance.random() < 0.05:
                cells[row] = None
        return pa.array(cells, of_type)

    def nulls(self, name: str, of_type: pa.DataType, rows: int) -> pa.ChunkedArray:
        """Any cell may be null, also where the memory of null cells is not zero."""
        column = self.chance.choice(_plausible(name, of_type, False, rows))
        mask = np.array([self.chance.random() < 0.5 for _ in range(rows)], np.bool_)
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if pa.types.is_integer(of_type):
            return pa.chunked_array([pa.array(array.to_numpy(zero_copy_only=False), of_type, mask=mask)])
        cells = [None if empty else cell for cell, empty in zip(array.to_pylist(), mask.tolist(), strict=True)]
        return pa.chunked_array([_encoded(cells, of_type)])

    def other_type(self, name: str, of_type: pa.DataType, rows: int) -> pa.Array:
        """Another type, whose values may fit."""
        return self.chance.choice(_of_other_types(rows))

    def wrong_texts(self, name: str, of_type: pa.DataType, rows: int) -> pa.Array:
        """Texts of any bytes, encoded in any way."""
        chance = self.chance
        cells = [chance.choice(_BYTES) if chance.random() < 0.9 else None for _ in range(rows)]
        array = pa.array(cells, pa.binary()).view(pa.string())
        how = chance.random()
        if how < 0.5:
            return array
        texts = pa.array(chance.sample(_BYTES, chance.randint(0, 6)), pa.binary()).view(pa.string())
        if how < 0.6:
            return (
                texts.view(pa.binary()).cast(pa.large_binary()).view(pa.large_string())[:rows]
                if rows <= len(texts)
                else array
            )
        return self._dictionary(texts, rows, inside=how < 0.9)

    def broken_codes(self, name: str, of_type: pa.DataType, rows: int) -> pa.Array:
        """Codes that are not in the dictionary, a dictionary with null or with a text twice, codes of any type."""
        words = [word for word in _TEXTS.get(name, _TEXTS[""]) if word is not None]
        texts = pa.array([*words, *self.chance.choice([[], [], [None], words[:1]])], pa.string())
        return self._dictionary(texts, rows, inside=self.chance.random() < 0.3)

    def _dictionary(self, texts: pa.Array, rows: int, inside: bool) -> pa.Array:
        chance = self.chance
        of_type = chance.choice((pa.int32(), pa.int32(), pa.int32(), pa.int8(), pa.uint8(), pa.int64(), pa.uint64()))
        codes = [chance.randrange(len(texts)) if len(texts) else 0 for _ in range(rows)]
        if not inside:
            low, high = (0, 255) if of_type in (pa.uint8(), pa.uint64()) else (-128, 127)
            for row in range(rows):
                if chance.random() < 0.3:
                    codes[row] = chance.choice((low, len(texts), high, -1 if low else 0))
        empty = np.array([chance.random() < 0.2 for _ in range(rows)], np.bool_) if chance.random() < 0.5 else None
        indices = pa.array(np.array(codes, of_type.to_pandas_dtype()), of_type, mask=empty)
        return pa.DictionaryArray.from_arrays(indices, texts, safe=False)

    def broken_memory(self, name: str, of_type: pa.DataType, rows: int) -> pa.Array:
        """Buffers that are too short, missing, or hold offsets outside of the texts; a wrong number of nulls."""
        chance = self.chance
        bits = chance.choice((None, pa.py_buffer(bytes(chance.choices((0, 255, 0x55), k=chance.choice((0, 1, 2, 2)))))))
        nulls = chance.choice((-1, -1, 0, 1, rows, rows + 1))
        offset = chance.choice((0, 0, 0, 1, 5))
        if pa.types.is_integer(of_type):
            return _of_memory(of_type, rows, [bits, pa.py_buffer(chance.randbytes(8 * (rows + offset)))], nulls, offset)
        offsets = sorted(chance.choices((0, 1, 3, 8), k=rows + 1 + offset))
        if chance.random() < 0.5:
            offsets[chance.randrange(len(offsets))] = chance.choice((-1, 9, 2**31 - 1, -(2**31), 0))
        memory = pa.py_buffer(np.array(offsets[: len(offsets) - chance.choice((0, 0, 0, 1))], np.int32).tobytes())
        data = chance.choice((pa.py_buffer(b"a\xffbcdefg"), pa.py_buffer(b"abcdefgh"), pa.py_buffer(b""), None))
        return _of_memory(pa.string(), rows, [bits, memory, data], nulls, offset)

    def wrong_length(self, name: str, of_type: pa.DataType, rows: int) -> pa.ChunkedArray:
        """Pieces of columns, whose dictionaries differ."""
        pieces: list[pa.Array] = []
        left = rows
        while left:
            count = self.chance.randint(1, left)
            pieces += self.chance.choice(_plausible(name, of_type, True, count)).chunks
            left -= count
        return pa.chunked_array(pieces, of_type)


_DAMAGES: Final = (
    Spoiler.extreme, Spoiler.extreme, Spoiler.extreme, Spoiler.nulls, Spoiler.other_type, Spoiler.wrong_texts,
    Spoiler.broken_codes, Spoiler.broken_memory, Spoiler.wrong_length,
)  # fmt: skip


def _of_memory(of_type: pa.DataType, rows: int, memory: list[pa.Buffer | None], nulls: int, offset: int) -> pa.Array:
    """Return an array with this memory, or null in each cell if Arrow itself refuses the memory."""
    try:
        return pa.Array.from_buffers(of_type, rows, memory, nulls, offset)
    except pa.ArrowInvalid:
        return pa.nulls(rows, of_type)


@functools.cache
def _plausible(name: str, of_type: pa.DataType, nullable: bool, rows: int) -> list[pa.ChunkedArray]:
    """Return some columns that the gate must accept, together with each other."""
    chance = random.Random(f"{name} {of_type} {nullable} {rows}")
    columns = []
    for _ in range(_VARIANTS):
        cells = _plausible_cells(name, of_type, rows, chance)
        if nullable and name != "device" and chance.random() < 0.3:
            cells = [None] * rows if name == "rank" else [cell if chance.random() < 0.7 else None for cell in cells]
        array = _encoded(cells, of_type)
        at = chance.randint(0, rows)
        columns.append(pa.chunked_array([array] if chance.random() < 0.7 else [array[:at], array[at:]], of_type))
    return columns


def _plausible_cells(name: str, of_type: pa.DataType, rows: int, chance: random.Random) -> list[Any]:
    if name == "row":
        return sorted(chance.sample(range(MOST_ROWS), rows))
    if name == "start_ns":
        return sorted(chance.choices(range(40), k=rows))
    if name == "parent":
        return [chance.randint(max(-1, row - 3), row - 1) if row else -1 for row in range(rows)]
    if name == "launched_by":  # the first event is on the host
        return [chance.choice((-1, 0)) for _ in range(rows)]
    if name == "rank":
        return [0] * rows
    if pa.types.is_boolean(of_type):
        return [chance.random() < 0.5 for _ in range(rows)]
    if pa.types.is_list(of_type):
        return [["a", ""][: chance.randint(0, 2)] for _ in range(rows)]
    if not pa.types.is_integer(of_type):
        words = [word for word in _TEXTS.get(name, _TEXTS[""]) if word is not None]
        texts = chance.choices(words, k=rows)
        return ["cpu", *texts[1:]][:rows] if name == "device" else texts
    low, high = {"dur_ns": (10, 30), "self_ns": (0, 10), "tid": (1, 2)}.get(name, (0, 7))
    return [chance.randint(low, high) for _ in range(rows)]


def _encoded(cells: Sequence[Any], of_type: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(of_type):
        return pa.array(cells, pa.string()).dictionary_encode()
    return pa.array(cells, of_type)


@functools.cache
def _of_other_types(rows: int) -> list[pa.Array]:
    numbers, texts = list(range(rows)), [str(row) for row in range(rows)]
    integers = pa.array(numbers, pa.int64())
    arrays = [
        pa.array([float("nan"), 1.5, -0.0, 1e300][:1] * rows), pa.array([0.5] * rows), pa.array([1e300] * rows),
        pa.array([float(row) for row in numbers]), pa.array(numbers, pa.float32()), pa.array(numbers, pa.uint8()),
        pa.array([2**64 - 1] * rows, pa.uint64()), pa.array(numbers, pa.int16()), pa.array([True] * rows),
        pa.nulls(rows), pa.array(texts), pa.array(texts, pa.large_string()), pa.array(texts, pa.string_view()),
        pa.array([b"\xff"] * rows, pa.binary()), pa.array([b"\xffa"] * rows, pa.binary(2)),
        pa.array([b"\xff" * 20] * rows, pa.binary_view()).view(pa.string_view()),
        pa.array(numbers, pa.timestamp("ns")), pa.array(numbers, pa.duration("s")),
        pa.array([[1]] * rows), pa.array([{"a": 1}] * rows, pa.struct([("a", pa.int64())])),
        pa.array([["a"]] * rows, pa.large_list(pa.large_string())),
        pa.array(numbers, pa.decimal128(20, 2)), integers.dictionary_encode(),
        pa.array([b"\xff"] * rows, pa.binary()).view(pa.string()).cast(pa.binary()).dictionary_encode(),
    ]  # fmt: skip
    if rows:
        arrays.append(pa.RunEndEncodedArray.from_arrays([rows], pa.array([7])))
        arrays.append(pa.DictionaryArray.from_arrays(integers, pa.array(numbers, pa.uint8()).dictionary_encode()))
        arrays.append(pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([["a"]])))
    return arrays


class GateTables(Target):
    """Tables in memory. An input is the number of a table."""

    name = "gate"

    @property
    def seeds(self) -> Sequence[bytes]:
        return [str(number).encode() for number in range(40)]

    def make(self, chance: random.Random) -> bytes:
        return str(chance.getrandbits(48)).encode()

    def run(self, data: bytes) -> bool:
        number = int(data)
        chance = random.Random(number)
        kind = chance.random()
        way = (
            _recorded if kind < 0.35 else _event_table if kind < 0.5 else _some_columns if kind < 0.75 else _side_table
        )
        spoiler = Spoiler(chance)
        passed, use, promise = way(spoiler)
        try:
            table = passed()
        except ValueError as error:
            if not spoiler.damages:
                raise FindingError(f"table {number} is refused: {error}") from error
            return False
        if chance.random() < 0.1:
            _keeps(promise(table), f"table {number}")
        if chance.random() < _USED:
            with contextlib.suppress(PerfkitError):
                use(table, chance)
        return True


def _as_table(columns: dict[str, pa.ChunkedArray], spoiler: Spoiler) -> pa.Table:
    """Return a table of the columns, in rare cases with a column twice or with metadata."""
    table, how = pa.table(columns), spoiler.chance.random()
    if how < 0.01 and columns:
        spoiler.damages += 1
        table = table.append_column(spoiler.chance.choice(table.column_names), table[0])
    return table.replace_schema_metadata({"perfkit": "{"}) if how > 0.99 else table


_Way = tuple[Callable[[], pa.Table], Callable[[pa.Table, random.Random], object], Callable[[pa.Table], bool]]


def _size_and_damage(chance: random.Random, columns: int) -> tuple[int, float]:
    """Return a number of rows, and the probability of damage for each of the columns."""
    return chance.randint(0, MOST_ROWS), chance.choice((0, 1, 1, 2, 4)) / columns


def _recorded(spoiler: Spoiler) -> _Way:
    chance = spoiler.chance
    names = [*_NEEDED, *chance.sample(_OPTIONAL, chance.randint(0, 6))]
    rows, damage = _size_and_damage(chance, len(names))
    columns = {
        name: spoiler.column(name, RECORDED_TYPES[name], name not in _NEEDED[:-1], rows, damage) for name in names
    }
    if chance.random() < damage / 4:
        spoiler.damages += 1
        del columns[chance.choice(_NEEDED)]
    parent = None
    if chance.random() < 0.3:
        parent = np.array([chance.randint(-1, row - 1) for row in range(rows)], np.int64)
        if chance.random() < 0.5:  # circles, and rows that do not exist
            spoiler.damages += 1
            cells = [chance.randint(-1, rows - 1) for _ in range(rows + chance.choice((0, 0, 0, 1)))]
            outside = (-2, rows, *_INT64)
            parent = np.array([chance.choice(outside) if chance.random() < 0.1 else cell for cell in cells], np.int64)

    def use(table: pa.Table, chance: random.Random) -> None:
        _summarize(assemble(RecordedEvents(table, parent), _META, rank=chance.choice((None, 0))), chance)

    return (
        lambda: checked_events(_as_table(columns, spoiler), RECORDED_TYPES, parent),
        use,
        lambda table: _sound(table, set(_NEEDED[:-1])),
    )


def _event_table(spoiler: Spoiler) -> _Way:
    chance = spoiler.chance
    rows, damage = _size_and_damage(chance, len(schema.SCHEMA))
    columns = {f.name: spoiler.column(f.name, f.type, f.nullable, rows, damage) for f in schema.SCHEMA}
    ranks = chance.choice((None, (0,)))
    return (
        lambda: checked_table(_as_table(columns, spoiler), ranks),
        lambda table, chance: _summarize(Trace(table, _META), chance),
        lambda table: _sound(table, _REQUIRED) and _sorted(table),
    )


def _some_columns(spoiler: Spoiler) -> _Way:
    chance = spoiler.chance
    fields = pa.schema([schema.SCHEMA.field(name) for name in chance.sample(schema.COLUMN_NAMES, chance.randint(1, 4))])
    rows, damage = _size_and_damage(chance, len(fields))
    columns = {f.name: spoiler.column(f.name, f.type, f.nullable, rows, damage) for f in fields}
    first = chance.choice((0, 0, 3))
    end = chance.choice((None, first + rows, first + rows + 5))
    return (
        lambda: checked(_as_table(columns, spoiler), fields, None, first, end),
        lambda table, _: [table[name].unique() for name in table.column_names],
        lambda table: _sound(table, _REQUIRED, first, end),
    )


def _side_table(spoiler: Spoiler) -> _Way:
    chance = spoiler.chance
    declared = chance.choice(list(side_tables.ALL.values()))
    rows, damage = _size_and_damage(chance, len(declared.columns))
    columns = {}
    for column in declared.columns:
        words = declared.words.get(column.name)
        name = f"{declared.name}.{column.name}" if words else column.name
        if words and name not in _TEXTS:
            _TEXTS[name] = tuple(sorted(words))
        columns[column.name] = spoiler.column(name, column.type, column.nullable, rows, damage)
    count = chance.choice((None, MOST_ROWS))

    def sound(table: pa.Table) -> bool:
        rows = table.to_pylist()
        at = [row["row"] for row in rows] if declared.describes_rows else []
        return (
            table.schema.equals(declared.schema)
            and all(row[f.name] is not None for f in declared.schema if not f.nullable for row in rows)
            and all(row[name] in (None, *words) for name, words in declared.words.items() for row in rows)
            and all((row[name] or 0) >= 0 for name in declared.not_negative for row in rows)
            and len(pa.concat_tables([table]).unify_dictionaries()) == len(rows)
            and at == sorted(set(at))
            and all(0 <= row < (count or 2**63) for row in at)
        )

    def use(table: pa.Table, chance: random.Random) -> None:
        cells = _plausible_table(MOST_ROWS)
        _summarize(Trace(cells, _META).with_tables(**{declared.name: table}), chance)

    return lambda: checked_side_table(declared, _as_table(columns, spoiler), count), use, sound


def _plausible_table(rows: int) -> pa.Table:
    return pa.table({f.name: _plausible(f.name, f.type, f.nullable, rows)[0] for f in schema.SCHEMA})


_REQUIRED: Final = {field.name for field in schema.SCHEMA if not field.nullable}


def _sound(table: pa.Table, required: set[str], first: int = 0, end: int | None = None) -> bool:
    """Return whether a slow look at each cell finds what :func:`checked` promises."""
    end = first + len(table) if end is None else end
    for name in table.column_names:
        for chunk in table[name].chunks:
            chunk.validate(full=chunk.type in (pa.string(), pa.large_string(), pa.string_view()))
        cells = table[name].to_pylist()
        if name in required and None in cells:
            return False
        words = {"kind": schema.KINDS, "phase": schema.PHASES}.get(name)
        if words and not {*cells} <= {None, *words}:
            return False
        if name in ("dur_ns", "self_ns", "rank") and any((cell or 0) < 0 for cell in cells):
            return False
        if name == "parent" and any(not -1 <= cell < first + row for row, cell in enumerate(cells)):
            return False
        if name == "launched_by" and any(not -1 <= cell < end for cell in cells):
            return False
    if {"launched_by", "device"} <= set(table.column_names) and first == 0 and end == len(table):
        device = table["device"].to_pylist()
        return all(row < 0 or device[row] == "cpu" for row in table["launched_by"].to_pylist())
    return True


def _sorted(table: pa.Table) -> bool:
    rows = table.select(["rank", "start_ns", "dur_ns", "self_ns"]).to_pylist()
    ranks = [row["rank"] for row in rows]
    return (
        all(row["start_ns"] + row["dur_ns"] < 2**63 and (row["self_ns"] or 0) <= row["dur_ns"] for row in rows)
        and len(dict.fromkeys(ranks))
        == sum(rank != before for rank, before in zip(ranks, [object(), *ranks], strict=False))
        and all(b["start_ns"] >= a["start_ns"] for a, b in itertools.pairwise(rows) if a["rank"] == b["rank"])
    )


def _keeps(promise: bool, what: str) -> None:
    if not promise:
        raise FindingError(f"{what} is accepted, but the gate refuses such tables")


def _summarize(trace: Trace, chance: random.Random) -> None:
    for view in chance.sample(_VIEWS, 2):
        summarize(trace, view)
