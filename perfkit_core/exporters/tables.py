"""The event table itself: CSV for spreadsheets, Parquet as perfkit stores it, so that perfkit reads it too."""

from __future__ import annotations

from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.csv

from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.storage.store import write_table

_ROWS: Final = 1 << 15


def write_csv(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """One row an event, the columns of the schema; text is quoted, what is unknown is empty."""
    plain = pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in trace.events.schema])
    with pyarrow.csv.CSVWriter(file, plain) as writer:
        for begin in range(0, len(trace), _ROWS):
            writer.write_table(trace.events.slice(begin, _ROWS).cast(plain))
    return "" if len(trace) else "no events were recorded"


def write_parquet(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """The format of a run folder's files."""
    write_table(trace, file)
    return "" if len(trace) else "no events were recorded"


def _plain(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found
