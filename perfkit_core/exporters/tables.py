"""The event table as CSV for spreadsheets, and as Parquet in perfkit's own format."""

from __future__ import annotations

from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.csv

from perfkit_core.base.system.spreadsheets import texts
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import write_table

_ROWS: Final = 1 << 15


def write_csv(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write one row per event with all columns of the schema. Texts are quoted, and never formulas of a
    spreadsheet. Missing values are empty."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in trace.events.schema]
    fields = zip(trace.events.schema, types, strict=True)
    plain = pa.schema([pa.field(field.name, type_, field.nullable) for field, type_ in fields])
    with pyarrow.csv.CSVWriter(file, plain) as writer:
        for begin in range(0, len(trace), _ROWS):
            rows = trace.events.slice(begin, _ROWS).cast(plain)
            columns = [texts(c) if pa.types.is_string(c.type) else c for c in rows.columns]
            writer.write_table(pa.Table.from_arrays(columns, schema=plain))
    return "" if len(trace) else "no events were recorded"


def write_parquet(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write a Parquet file in the format of run folders."""
    write_table(trace, file)
    return "" if len(trace) else "no events were recorded"
