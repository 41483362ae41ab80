"""Stored files in which a text column has fewer texts than its numbers refer to, with correct checksums."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.trace.storage import writer
from perfkit_core.trace.storage.stored_file import KEY


def shorten(source: Path, path: Path, name: str, beyond: int, row: int = 7) -> None:
    """Copy a stored file. In the copy, the cell of the column ``name`` in one row refers to a text that is ``beyond``
    places behind the last one (1: directly behind it). The file does not say which columns are empty."""
    table, stored = pq.read_table(source), msgspec.json.decode(pq.read_metadata(source).metadata[KEY])
    texts = table[name].cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
    indices = texts.indices.to_numpy().copy()
    indices[row] = len(texts.dictionary) - 1 + beyond
    longer = pa.concat_arrays([texts.dictionary, pa.array([f"more {i}" for i in range(beyond)])])
    column = pa.DictionaryArray.from_arrays(pa.array(indices), longer)
    if pa.types.is_string(table.schema.field(name).type):  # Arrow writes only the texts that are used
        column, beyond = column.cast(pa.string()), 1
    table = table.set_column(table.column_names.index(name), name, column)
    table = table.replace_schema_metadata({KEY: msgspec.json.encode(stored | {"empty": None})})
    options = writer.encoding(table.schema) | {"use_dictionary": [name], "dictionary_pagesize_limit": 1 << 30}
    with path.open("wb") as file:
        writer.write(table, file, len(table), options)
    data = bytearray(path.read_bytes())
    _lower_count(data, pq.read_metadata(path).row_group(0).column(table.column_names.index(name)), beyond)
    path.write_bytes(data)
    writer.seal(path)


def _lower_count(data: bytearray, chunk: pq.ColumnChunkMetaData, by: int) -> None:
    """Lower the number of texts that the header of the dictionary page states. In Thrift's compact protocol, it is
    field 1 of the structure in field 7. All fields before it are integers."""
    at, field = chunk.dictionary_page_offset, 0
    while field < 7:
        field, at = field + (data[at] >> 4), at + 1
        while field < 7 and data[at] & 0x80:
            at += 1
        at += field < 7
    begin = end = at + 1  # behind the head of field 1
    while data[end] & 0x80:
        end += 1
    encoded = data[begin : end + 1]
    count = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded)) // 2 - by
    assert count > 0
    more = np.array([0x80] * (len(encoded) - 1) + [0])  # the number keeps its length
    data[begin : end + 1] = bytes((2 * count >> 7 * place & 0x7F) | int(bit) for place, bit in enumerate(more))
