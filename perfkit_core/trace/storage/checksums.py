"""Checksums of stored files. A changed byte is noticed, and never becomes another number.

A block directly before the Parquet footer holds CRC-32 values, as unsigned integers of 4 bytes, little endian::

    one for each column chunk, row group by row group
    one for the footer
    one for the index of the side tables, and its length in bytes
    the number of column chunks
    one for all values above
    MARK

The index is directly before the block, and the side tables are before the index. Files of format 1 have no side tables:
their block has no values for the index, and ends with OLDER_MARK.

Parquet's own checksums do not cover the headers of pages and the footer. Other programs do not see the block, because
they find pages by their positions in the footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from perfkit_core.base.system.outside_text import decode_json

MAGIC: Final = b"PAR1"
"""The first and the last bytes of a Parquet file."""
MARK: Final = b"perfkit\x02"
OLDER_MARK: Final = b"perfkit\x01"
_END: Final = 4 + len(MAGIC)
"""Number of bytes after the footer: its length, and MAGIC."""
_VALUES: Final = {MARK: 5, OLDER_MARK: 3}
"""Number of values in a block without column chunks."""
_TAIL: Final = 1 << 16
"""Number of bytes at the end of a file that are read first. Most footers are shorter."""

Checksums = npt.NDArray[np.uint32]


def crc(data: Any) -> int:
    return int(isal_zlib.crc32(data))


def extent(footer: pq.FileMetaData, group: int, column: int) -> tuple[int, int]:
    """Return offset and size of a column chunk in the file, in bytes."""
    chunk = footer.row_group(group).column(column)
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    return begin, chunk.total_compressed_size


def of_chunks(footer: pq.FileMetaData, data: memoryview) -> Iterator[int]:
    """Yield the checksum of each column chunk in the bytes of a Parquet file."""
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            begin, size = extent(footer, group, column)
            yield crc(data[begin : begin + size])


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """Where the bytes of a side table are in the file, and their checksum."""

    begin: int
    size: int
    crc: int

    def read(self, file: pa.NativeFile) -> pa.Buffer:
        """Return the bytes. Raises ValueError if they are damaged."""
        content = file.read_buffer(self.size) if file.seek(self.begin) == self.begin else b""
        if crc(content) != self.crc:
            raise ValueError("a side table is damaged")
        return content


class End(NamedTuple):
    """The footer of a file, the checksums of its column chunks (None if it has none), and its side tables by name."""

    footer: pq.FileMetaData
    chunks: Checksums | None
    tables: Mapping[str, Extent]


def end_of_file(
    chunks: Iterable[int], footer: bytes, begin: int = 0, tables: Mapping[str, bytes] = MappingProxyType({})
) -> bytes:
    """Return everything after the pages of a file, which end at byte ``begin``: the side tables, their index, the block
    of checksums, the footer, its length, and MAGIC."""
    extents = {}
    for name, content in tables.items():
        extents[name] = Extent(begin, len(content), crc(content))
        begin += len(content)
    index = msgspec.json.encode(extents)
    values = [*chunks, crc(footer), crc(index), len(index)]
    block = np.array([*values, len(values) - 3], "<u4").tobytes()
    block += crc(block).to_bytes(4, "little") + MARK
    return b"".join((*tables.values(), index, block, footer, len(footer).to_bytes(4, "little"), MAGIC))


def read_end(file: pa.NativeFile) -> End:
    """Return what is at the end of a Parquet file. Raises ValueError if a part of it is damaged, OSError and
    pyarrow.ArrowException."""
    size = file.size()
    tail = file.read_at(min(size, _TAIL), max(size - _TAIL, 0))
    length = int.from_bytes(tail[-_END:-4], "little")
    if not tail.endswith(MAGIC) or length > size - _END - len(MAGIC):
        raise ValueError("the end of the file is missing or damaged")
    needed = min(size, length + _END + 4 * _VALUES[MARK] + len(MARK))
    if needed > len(tail):
        tail = file.read_at(needed, size - needed)
    footer = tail[len(tail) - _END - length : len(tail) - _END]
    before = tail[: len(tail) - _END - length]
    chunks, tables = None, {}
    mark = bytes(before[-len(MARK) :])
    if mark in _VALUES:
        fixed = 4 * _VALUES[mark]
        count = int.from_bytes(before[-len(MARK) - 8 :][:4], "little")
        first = size - _END - length - len(MARK) - fixed - 4 * count
        if first < 0:
            raise ValueError("the checksums are damaged")
        block = file.read_at(4 * count + fixed - 4, first)
        if crc(block) != int.from_bytes(before[-len(MARK) - 4 :][:4], "little"):
            raise ValueError("the checksums are damaged")
        values = np.frombuffer(block, "<u4")
        chunks, values = values[:count], values[count:]
        if crc(footer) != values[0]:
            raise ValueError("the footer is damaged")
        if mark == MARK:
            index = file.read_at(int(values[2]), max(first - int(values[2]), 0))
            if crc(index) != values[1]:
                raise ValueError("the index of the side tables is damaged")
            tables = decode_json(index, dict[str, Extent])
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + tail[len(tail) - _END :]))
    if chunks is not None and len(chunks) != metadata.num_row_groups * metadata.num_columns:
        raise ValueError("the checksums are damaged")
    return End(metadata, chunks, tables)
