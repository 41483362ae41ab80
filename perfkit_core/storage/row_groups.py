"""A table as one Parquet file, its row groups encoded on several cores: Arrow's writer uses one.

Each row group is encoded as a file of its own, in memory; its pages go behind those of the groups before, and its
footer, moved there, into the one footer of all. The file is, byte for byte, the one that Arrow writes alone.

Arrow before 18 repeats parts of the footer between the pages, where nobody moves them: it writes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core import at_once
from perfkit_core.storage.relocation import relocated

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

    return at_once.in_order(encode, range(0, len(table), rows), ahead=at_once.threads())


def _taken_apart(file: pa.Buffer) -> tuple[memoryview, bytes]:
    """The pages of a file, and its footer."""
    data = memoryview(file)
    end = len(data) - len(_MAGIC) - 4
    begin = end - int.from_bytes(data[end : end + 4], "little")
    return data[len(_MAGIC) : begin], bytes(data[begin:end])


def _footer(thrift: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(_MAGIC + thrift + len(thrift).to_bytes(4, "little") + _MAGIC))
