"""Timelines and Parquet files as perfkit writes them, with one thing changed that cannot be.

The functions change a content that perfkit exported, because these formats are perfkit's own.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.trace.storage import checksums

Timeline = dict[str, Any]
Change = Callable[[Timeline], None]
GONE: Final = object()


def rows(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the events of a timeline that are rows of the event table."""
    return [event for event in timeline["traceEvents"] if "row" in event.get("args", {})]


def cell(key: str, value: Any, at: float | None = None) -> Change:
    """Return a change of an argument of all rows, or of the one at this share of them. A function gets the row. GONE
    removes the argument."""

    def change(timeline: Timeline) -> None:
        events = rows(timeline)
        for event in events if at is None else [events[int(at * (len(events) - 1))]]:
            _set(event["args"], key, value(event["args"]["row"], len(events)) if callable(value) else value)

    return change


def field(key: str, value: Any, at: float | None = None) -> Change:
    """Return a change of a field of all rows, such as their names, or of one row."""

    def change(timeline: Timeline) -> None:
        events = rows(timeline)
        for event in events if at is None else [events[int(at * (len(events) - 1))]]:
            _set(event, key, value)

    return change


def lane(key: str, value: Any, number: int = 0) -> Change:
    """Return a change of the description of a thread or stream."""
    return lambda timeline: _set(timeline["perfkit"]["lanes"][number], key, value)


def lanes(value: Any) -> Change:
    """Return a change of all descriptions. A number keeps so many of them."""

    def change(timeline: Timeline) -> None:
        kept = timeline["perfkit"]["lanes"]
        _set(timeline["perfkit"], "lanes", kept[:value] if isinstance(value, int) else value)

    return change


def nothing(timeline: Timeline) -> None:
    """Keep a timeline as it is."""


def smallest(timeline: Timeline) -> None:
    """Keep the first nine rows. The last is the parent of all."""
    timeline["traceEvents"] = rows(timeline)[:9]
    cell("parent", 8)(timeline)


def _set(target: dict[str, Any], key: str, value: Any) -> None:
    if value is GONE:
        target.pop(key, None)
    else:
        target[key] = value


REPORTED: Final[dict[str, Change]] = {
    "lastparent": cell("parent", lambda row, count: count - 1),
    "min": smallest,
    "selfparent": cell("parent", lambda row, count: row),
    "kindunknown": cell("kind", "zzz"),
    "phase": cell("phase", "zzz"),
    "namenull": field("name", GONE),
    "lanes0": lanes(0),
    "rank": lane("rank", 2**62),
}
"""The reported changes. Those of ``parent`` may also be repaired: it follows from the times."""
DERIVED: Final[dict[str, Change]] = {
    "parent-beyond": cell("parent", 10**6), "parent-huge": cell("parent", 2**62, 0.5),
    "parent-negative": cell("parent", -7), "parent-self-once": cell("parent", lambda row, count: row, 0.7),
    "parent-cycle": cell("parent", lambda row, count: row ^ 1), "launched-beyond": cell("launched_by", 10**7),
    "launched-self": cell("launched_by", lambda row, count: row),
    "launched-last": cell("launched_by", lambda row, count: count - 1),
    "parent-text": cell("parent", "x", 0.5), "parent-fraction": cell("parent", 1.5),
    "step-huge": cell("step", 2**62), "step-negative": cell("step", -(2**40), 0.9),
}  # fmt: skip
"""Changes of what follows from other fields: an error, or the same tables as without the change."""
IMPOSSIBLE: Final[dict[str, Change]] = {
    "kind-once": cell("kind", "zzz", 0.5), "kind-null": cell("kind", None), "kind-number": cell("kind", 5, 0.2),
    "phase-once": cell("phase", "zzz", 0.9), "phase-number": cell("phase", 7), "name-null": field("name", None, 0.5),
    "name-list": field("name", ["a"], 0.1), "lanes-one-less": lanes(1), "lanes-null": lanes(None),
    "lanes-text": lanes("x"),
    "rank-negative": lane("rank", -3), "rank-32-bits": lane("rank", 2**31, 1), "rank-text": lane("rank", "zero"),
    "row-twice": cell("row", 3),
    "row-beyond": cell("row", 10**9, 1.0), "bytes-huge": cell("bytes", 2**80, 0.3), "start-text": field("ts", "x", 0.4),
    "duration-negative": field("dur", -5.0, 0.4), "pid-text": lane("pid", "x"),
}  # fmt: skip
"""Changes of recorded fields: an error, or an account of what was left out."""


def changed(timeline: Timeline, change: Change) -> Timeline:
    """Return a copy of a timeline with a change."""
    result = copy.deepcopy(timeline)
    change(result)
    return result


def text_columns(path: Path) -> list[str]:
    """Return the columns of a Parquet file with texts that are stored as indices of a dictionary."""
    table = pq.read_table(path)
    return [
        name
        for name in table.column_names
        if pa.types.is_dictionary(table[name].type) and table[name].null_count < len(table)
    ]


def short_dictionary(path: Path, column: str, beyond: int, target: Path) -> None:
    """Write a Parquet file of perfkit again, with valid checksums and a dictionary that is too short: the index of a
    row in the middle is ``beyond`` after the last entry. 0 writes a sound file."""
    table = pq.read_table(path)
    place = table.column_names.index(column)
    array = table[column].combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    size = len(array.dictionary)
    entries = pa.concat_arrays(
        [array.dictionary, pa.array([f"{number}" for number in range(beyond)], array.dictionary.type)]
    )
    recorded = np.flatnonzero(array.indices.is_valid().to_numpy(zero_copy_only=False))
    indices = array.indices.fill_null(0).to_numpy().copy()
    if beyond:
        indices[recorded[len(recorded) // 2]] = size - 1 + beyond
    missing = ~array.indices.is_valid().to_numpy(zero_copy_only=False)
    changed = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32(), mask=missing), entries)
    table = table.set_column(place, table.schema.field(place), changed)
    stored = io.BytesIO()
    pq.write_table(table, stored, compression="none", write_statistics=False, dictionary_pagesize_limit=1 << 30)
    data = bytearray(stored.getvalue())
    footer = pq.read_metadata(io.BytesIO(data))
    if beyond:
        _shorten(data, footer.row_group(0).column(place).dictionary_page_offset, size)
    length = int.from_bytes(data[-8:-4], "little")
    chunks = checksums.of_chunks(footer, memoryview(data))
    target.write_bytes(bytes(data[: -8 - length]) + checksums.end_of_file(chunks, bytes(data[-8 - length : -8])))


def _shorten(data: bytearray, at: int, size: int) -> None:
    """Write another number of values to the header of a dictionary page. The header is a struct of Thrift's compact
    protocol: three integers (type and two sizes), then a struct that begins with the number of values."""
    for _ in range(3):
        at += 1
        while data[at] & 0x80:
            at += 1
        at += 1
    assert data[at : at + 2] == b"\x4c\x15", "no header of a dictionary page"
    at += 2
    end = at
    while data[end] & 0x80:
        end += 1
    value = size << 1  # zigzag
    for position in range(at, end + 1):  # in as many bytes as before: the lengths of pages stay
        data[position] = value & 0x7F | (0x80 if position < end else 0)
        value >>= 7
    assert value == 0
