"""How are the columns of a stored file encoded? As was measured to be small and fast to write.

A table as one Parquet file, its row groups encoded on several cores: Arrow's writer uses one.

Each row group is encoded as a file of its own, in memory; its pages go behind those of the groups before, and its
footer, moved there, into the one footer of all. The file is, byte for byte, the one that Arrow writes alone.

Arrow before 18 repeats parts of the footer between the pages, where nobody moves them: it writes alone.

How does the footer of a Parquet file read when its row groups stand elsewhere, behind those of another file?

Footers are written in Thrift's compact protocol, by the definitions of Apache Parquet (parquet.thrift): numbers of
variable length and no lengths of whole structures, so that numbers can be replaced where they stand.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.runtime import parallel

_FEW_VALUES: Final = frozenset({"rank", "pid", "tid", "stream", "step"})
"""Integers that repeat: a dictionary is smaller than differences."""
_VALUES_AT_ONCE: Final = 1 << 16


def encoding(columns: pa.Schema) -> dict[str, Any]:
    """Options of ``pyarrow.parquet.write_table`` and ``ParquetWriter``.

    Integers as differences (times, row references and ids mostly grow), repeated texts by dictionary, other texts as
    they are. Only integers have statistics: of texts they cost a quarter of the time to write and nobody asks for the
    first name in the alphabet.
    """
    integers = [field.name for field in columns if pa.types.is_integer(field.type)]
    repeated = [field.name for field in columns if pa.types.is_dictionary(field.type)]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [*repeated, *(name for name in integers if name in _FEW_VALUES)],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in integers if name not in _FEW_VALUES},
        "write_statistics": integers,
        "write_batch_size": _VALUES_AT_ONCE,
        "write_page_index": False,  # row groups that are written apart could not be put together (row_groups.py)
        **_pages(),
    }


@functools.cache
def _pages() -> dict[str, int]:
    """Pages as large as their bytes allow: those of few rows, which newer Arrows write, are slower for everybody."""
    limited = "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters
    return {"max_rows_per_page": 1 << 20} if limited else {}


_Path = tuple[int, ...]

_GROUP: Final = (4,)
"""Where a footer holds its row groups: field 4 of FileMetaData. Elements of a list add nothing to a path."""
_CHUNK: Final = (*_GROUP, 1)
_ORDINAL: Final = (*_GROUP, 7)
_OFFSETS: Final = frozenset({(*_GROUP, 5), (*_CHUNK, 2), (*_CHUNK, 3, 9), (*_CHUNK, 3, 10), (*_CHUNK, 3, 11)})
"""Positions in the file: of a row group; of a column chunk, its data, index and dictionary page."""
_ELSEWHERE: Final = frozenset({(*_CHUNK, 3, 14), (*_CHUNK, 4), (*_CHUNK, 6)})
"""Positions of bloom filters and page indexes, which stand behind all row groups, and hold positions themselves."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = frozenset({4, 5, 6})


def relocated(footer: bytes, by: int, ordinal: int) -> bytes:
    """The footer (FileMetaData) of a file of one row group that stands ``by`` bytes further on, as number ``ordinal``.

    Positions of 0 mean that there is none. Raises ValueError where the bytes are no footer, and for a file with a page
    index or a bloom filter.
    """
    pieces: list[bytes] = []
    copied = 0
    try:
        for path, begin, end, value in _Reader(footer).integers():
            if path in _ELSEWHERE:
                raise ValueError("a Parquet file with a page index or a bloom filter")
            if path in _OFFSETS and value:
                pieces += footer[copied:begin], _zigzag(value + by)
                copied = end
            elif path == _ORDINAL:
                pieces += footer[copied:begin], _zigzag(ordinal)
                copied = end
    except IndexError:
        raise ValueError("a Parquet footer that ends too early") from None
    return b"".join((*pieces, footer[copied:]))


class _Reader:
    """Goes through a structure of Thrift's compact protocol once."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def integers(self) -> Iterator[tuple[_Path, int, int, int]]:
        """Each integer: the numbers of the fields that lead to it, where it begins and ends, its value."""
        yield from self._struct(())

    def _struct(self, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self._integer()
            yield from self._value(header & 15, (*path, field))

    def _value(self, kind: int, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        if kind in _INTEGERS:
            begin = self._at
            value = self._integer()
            yield path, begin, self._at, value
        elif kind == _STRUCT:
            yield from self._struct(path)
        elif kind in (_LIST, _SET):
            yield from self._elements(path)
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):  # whose value is the kind; no footer has maps
            raise ValueError(f"a Parquet footer with a field of the unknown type {kind}")

    def _elements(self, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        header = self._byte()
        kind = header & 15
        count = self._varint() if header >> 4 == 15 else header >> 4
        if kind in (_TRUE, _FALSE):  # in a list each takes a byte
            self._at += count
            return
        for _ in range(count):
            yield from self._value(kind, path)

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _zigzag(value: int) -> bytes:
    """An integer as it is written."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)


_MAGIC: Final = b"PAR1"
_APART: Final = int(pa.__version__.partition(".")[0]) >= 18
"""Whether a footer is all that tells where pages stand."""


def write(table: pa.Table, file: BinaryIO, rows: int, options: Mapping[str, Any]) -> None:
    """Write a table in groups of so many rows, with the options of ``pyarrow.parquet.write_table``. Raises OSError."""
    if len(table) <= rows or not _APART:
        pq.write_table(table, file, row_group_size=rows, **options)
        return
    footer: pq.FileMetaData | None = None
    file.write(_MAGIC)
    before = 0
    for number, encoded in enumerate(_encoded(table, rows, options)):
        pages, own = _taken_apart(encoded)
        found = _footer(relocated(own, before, number))
        if footer is None:
            footer = found
        else:
            footer.append_row_groups(found)
        file.write(pages)
        before += len(pages)
    assert footer is not None  # there is one group at least
    end = pa.BufferOutputStream()
    footer.write_metadata_file(end)
    file.write(end.getvalue()[len(_MAGIC) :])


def _encoded(table: pa.Table, rows: int, options: Mapping[str, Any]) -> Iterator[pa.Buffer]:
    """Each row group as a file. No more are held than threads are at work, and two."""

    def encode(begin: int) -> pa.Buffer:
        out = pa.BufferOutputStream()
        pq.write_table(table.slice(begin, rows), out, row_group_size=rows, **options)
        return out.getvalue()

    return parallel.in_order(encode, range(0, len(table), rows), ahead=parallel.threads())


def _taken_apart(file: pa.Buffer) -> tuple[memoryview, bytes]:
    """The pages of a file, and its footer."""
    data = memoryview(file)
    end = len(data) - len(_MAGIC) - 4
    begin = end - int.from_bytes(data[end : end + 4], "little")
    return data[len(_MAGIC) : begin], bytes(data[begin:end])


def _footer(thrift: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(_MAGIC + thrift + len(thrift).to_bytes(4, "little") + _MAGIC))
