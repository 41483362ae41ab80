"""Writing of Parquet files whose row groups are encoded on several cores. Arrow's own writer uses one core.

1. Each row group is encoded as a Parquet file in memory.
2. Its pages are appended to the output.
3. The file offsets in its footer are changed, and the footer is merged into the output's footer.

The output is the same as Arrow's, byte for byte. Arrow before version 18 also writes offsets between the pages, where
they cannot be changed. With these versions, Arrow's own writer is used.

Footers use Thrift's compact protocol with the definitions of Apache Parquet (parquet.thrift). Integers have a variable
length, and structures do not state their length. Integers can therefore be replaced without other changes."""

from __future__ import annotations

import inspect
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.base.runtime import parallel
from perfkit_core.trace.storage import checksums

_FEW_VALUES: Final = frozenset({"rank", "pid", "tid", "stream", "step"})
"""Integer columns with few distinct values. For them, dictionary encoding takes less space than delta encoding."""
_BATCH_VALUES: Final = 1 << 16


def encoding(columns: pa.Schema) -> dict[str, Any]:
    """Return options for ``pyarrow.parquet.ParquetWriter``. They keep the files small and the writing time short."""
    integers = [field.name for field in columns if pa.types.is_integer(field.type)]
    repeated = [field.name for field in columns if pa.types.is_dictionary(field.type)]
    options = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [*repeated, *(name for name in integers if name in _FEW_VALUES)],
        # Delta encoding takes little space, because times, row references and ids mostly ascend.
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in integers if name not in _FEW_VALUES},
        "write_statistics": integers,  # statistics of texts are not used, and would take a quarter of the writing time
        "write_batch_size": _BATCH_VALUES,
        "write_page_index": False,  # row groups with an index could not be merged
    }
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        # Newer versions of Arrow write pages of few rows by default, which takes longer.
        options["max_rows_per_page"] = 1 << 20
    return options


_Path = tuple[int, ...]

_GROUP: Final = (4,)
"""Path of the row groups in the footer: field 4 of FileMetaData. A path consists of the numbers of Thrift fields."""
_CHUNK: Final = (*_GROUP, 1)
_ORDINAL: Final = (*_GROUP, 7)
_OFFSETS: Final = frozenset({(*_GROUP, 5), (*_CHUNK, 2), (*_CHUNK, 3, 9), (*_CHUNK, 3, 10), (*_CHUNK, 3, 11)})
"""Paths of the footer fields that hold offsets in the file: where row groups, column chunks and pages begin."""
_UNSUPPORTED: Final = frozenset({(*_CHUNK, 3, 14), (*_CHUNK, 4), (*_CHUNK, 6)})
"""Paths of footer fields that refer to bloom filters or page indexes. :func:`relocated` supports neither of them."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = frozenset({4, 5, 6})


def relocated(footer: bytes, by: int, ordinal: int) -> bytes:
    """Return the footer (FileMetaData) of a single row group, changed for a file in which the row group begins ``by``
    bytes later and has the number ``ordinal``. Offsets of 0 mean "not present" and stay 0. Raises ValueError if the
    footer is malformed, or has a page index or a bloom filter."""
    pieces: list[bytes] = []
    copied = 0
    try:
        for path, begin, end, value in _Reader(footer).integers():
            if path in _UNSUPPORTED:
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
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def integers(self, path: _Path = ()) -> Iterator[tuple[_Path, int, int, int]]:
        """Yield (path, begin, end, value) for each integer. The path consists of the field numbers that lead to it."""
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
            yield from self.integers(path)
        elif kind in (_LIST, _SET):
            header = self._byte()
            kind = header & 15
            count = self._varint() if header >> 4 == 15 else header >> 4
            if kind in (_TRUE, _FALSE):  # each boolean in a list takes one byte
                self._at += count
                return
            for _ in range(count):
                yield from self._value(kind, path)
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):  # in Thrift, the type of a boolean states its value; footers have no maps
            raise ValueError(f"a Parquet footer with a field of the unknown type {kind}")

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
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_RELOCATABLE: Final = int(pa.__version__.partition(".")[0]) >= 18
"""Whether this version of Arrow writes the offsets of pages only to the footer."""


def write(
    table: pa.Table,
    file: BinaryIO,
    rows: int,
    options: Mapping[str, Any],
    tables: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write a table in row groups of ``rows`` rows, with options of ``pyarrow.parquet.write_table``, and with side
    ``tables`` and checksums before the footer. Raises OSError."""
    magic = checksums.MAGIC
    size = rows if _RELOCATABLE else max(len(table), 1)

    def encode(begin: int) -> memoryview:
        out = pa.BufferOutputStream()
        pq.write_table(table.slice(begin, size), out, row_group_size=rows, **options)
        return memoryview(out.getvalue())

    file.write(magic)
    footer: pq.FileMetaData | None = None
    chunks: list[int] = []
    before = 0
    # ``ahead`` limits the number of encoded groups in memory to ``parallel.threads() + 2``.
    groups = parallel.in_order(encode, range(0, max(len(table), 1), size), ahead=parallel.threads())
    for number, data in enumerate(groups):
        end = len(data) - len(magic) - 4
        begin = end - int.from_bytes(data[end : end + 4], "little")
        chunks += checksums.of_chunks(pq.read_metadata(pa.BufferReader(data)), data)
        pages, thrift = data[len(magic) : begin], bytes(data[begin:end])
        if number:
            thrift = relocated(thrift, before, number)
        group = pq.read_metadata(pa.BufferReader(magic + thrift + len(thrift).to_bytes(4, "little") + magic))
        if footer is None:
            footer = group
        else:
            footer.append_row_groups(group)
        file.write(pages)
        before += len(pages)
    assert footer is not None  # there is at least one piece
    out = pa.BufferOutputStream()
    footer.write_metadata_file(out)
    written = memoryview(out.getvalue())
    footer_bytes = bytes(written[len(magic) : -len(magic) - 4])
    file.write(checksums.end_of_file(chunks, footer_bytes, len(magic) + before, tables))


def seal(path: Path, tables: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Add side tables and checksums to a Parquet file that Arrow has written. Raises OSError."""
    magic = checksums.MAGIC
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        data = memoryview(mapping)
        with data:
            end = len(data) - len(magic) - 4
            begin = end - int.from_bytes(data[end : end + 4], "little")
            chunks = list(checksums.of_chunks(pq.read_metadata(path), data))
            rest = checksums.end_of_file(chunks, bytes(data[begin:end]), begin, tables)
        file.seek(begin)
        file.write(rest)
