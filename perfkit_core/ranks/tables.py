"""Tables among plain data: DataFrames as Arrow streams in MessagePack."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

_TABLE: Final = 1
"""Code of the extension."""
_OBJECTS: Final = b"perfkit.objects"
"""Key of the stream's metadata: names of the columns of texts, as JSON."""


def to_extension(value: Any) -> Any:
    """What MessagePack does not know: a DataFrame, numbers of numpy, NA. Raises NotImplementedError for all else."""
    if isinstance(value, pd.DataFrame):
        return msgspec.msgpack.Ext(_TABLE, _stream(value))
    if isinstance(value, np.generic):
        return value.item()
    if value is pd.NA:
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be stored in a partial")


def from_extension(code: int, data: memoryview) -> Any:
    """The inverse. Raises ValueError for what is none."""
    if code != _TABLE:
        raise ValueError(f"unknown content {code}")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            found = stream.read_all()
        found.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"damaged table: {error}") from None
    return _frame(found)


def _stream(table: pd.DataFrame) -> bytes:
    objects = [str(name) for name, kind in table.dtypes.items() if kind == np.dtype(object)]
    found = pa.Table.from_pandas(table, preserve_index=False)
    found = found.replace_schema_metadata({**(found.schema.metadata or {}), _OBJECTS: msgspec.json.encode(objects)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(found)
    return bytes(sink.getvalue())


def _frame(found: pa.Table) -> pd.DataFrame:
    table: pd.DataFrame = found.to_pandas()
    for name in msgspec.json.decode((found.schema.metadata or {}).get(_OBJECTS, b"[]"), type=list[str]):
        column = table[name].astype(object)
        table[name] = column.where(column.notna(), pd.NA)
    return table
