"""Checksums of stored files. A changed byte is noticed, and never becomes another number.

A block directly before the Parquet footer holds CRC-32 values, as unsigned integers of 4 bytes, little endian::

    one for each column chunk, row group by row group
    one for the footer
    the number of column chunks
    one for all values above
    MARK

Parquet's own checksums do not cover the headers of pages and the footer. Other programs do not see the block, because
they find pages by their positions in the footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

MAGIC: Final = b"PAR1"
"""The first and the last bytes of a Parquet file."""
MARK: Final = b"perfkit\x01"
_END: Final = 4 + len(MAGIC)
"""Number of bytes after the footer: its length, and MAGIC."""
_FIXED: Final = 12 + len(MARK)
"""Number of bytes of a block without column chunks."""
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


def end_of_file(chunks: Iterable[int], footer: bytes) -> bytes:
    """Return everything after the pages of a file: the block of checksums, the footer, its length, and MAGIC."""
    values = [*chunks, crc(footer)]
    block = np.array([*values, len(values) - 1], "<u4").tobytes()
    block += crc(block).to_bytes(4, "little") + MARK
    return block + footer + len(footer).to_bytes(4, "little") + MAGIC


def read_end(file: pa.NativeFile) -> tuple[pq.FileMetaData, Checksums | None]:
    """Return the footer of a Parquet file, and the checksums of its column chunks, or None if it has no block. Raises
    ValueError if one of them is damaged, OSError and pyarrow.ArrowException."""
    size = file.size()
    tail = file.read_at(min(size, _TAIL), max(size - _TAIL, 0))
    length = int.from_bytes(tail[-_END:-4], "little")
    if not tail.endswith(MAGIC) or length > size - _END - len(MAGIC):
        raise ValueError("the end of the file is missing or damaged")
    needed = min(size, length + _END + _FIXED)
    if needed > len(tail):
        tail = file.read_at(needed, size - needed)
    footer = tail[len(tail) - _END - length : len(tail) - _END]
    before = tail[: len(tail) - _END - length]
    checksums = None
    if before.endswith(MARK):
        count = int.from_bytes(before[-_FIXED + 4 : -_FIXED + 8], "little")
        first = size - _END - length - _FIXED - 4 * count
        if first < 0:
            raise ValueError("the checksums are damaged")
        block = file.read_at(4 * count + 8, first)
        if crc(block) != int.from_bytes(before[-_FIXED + 8 : -len(MARK)], "little"):
            raise ValueError("the checksums are damaged")
        values = np.frombuffer(block, "<u4")
        if crc(footer) != values[-2]:
            raise ValueError("the footer is damaged")
        checksums = values[:-2]
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + tail[len(tail) - _END :]))
    if checksums is not None and len(checksums) != metadata.num_row_groups * metadata.num_columns:
        raise ValueError("the checksums are damaged")
    return metadata, checksums
