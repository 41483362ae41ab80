"""Create large stored runs for benchmarks: the events of a stored trace, repeated one after the other in time.

``python benchmarks/stored_runs.py TRACE OUT EVENTS`` writes a run folder OUT with one file of at least EVENTS events.
TRACE is any file or folder that perfkit reads. The copies have different times, steps, correlation ids and sequence
numbers. Row numbers, such as ``parent``, refer to rows of the same copy. The program needs memory for one copy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core import load
from perfkit_core.base.algorithms.arrays import IntArray, nullable
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import ROW_REFERENCES
from perfkit_core.trace.model.meta import StoredFinding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import SUFFIX
from perfkit_core.trace.storage.stored_file import KEY, Stored
from perfkit_core.trace.storage.writer import encoding

_COUNTED = ("step", "correlation", "sequence")
_ROW_GROUP = 1 << 18


def copies(trace: Trace, count: int) -> Iterator[pa.Table]:
    """Yield the event table of each copy."""
    period = int(trace.end_ns.max() - trace.ints("start_ns").min()) + 1
    numbers = [name for name in _COUNTED if trace.has_values(name)]
    distance = {name: int(trace.ints(name).max()) + 1 for name in numbers}
    for index in range(count):
        moved = {name: nullable(_shifted(trace.ints(name), index * distance[name])) for name in numbers}
        start = pa.array(trace.ints("start_ns") + index * period)
        events = trace.with_columns(start_ns=start, **moved).events
        for name in ROW_REFERENCES:  # rows of the whole table
            rows = pa.array(_shifted(trace.ints(name), index * len(trace)))
            events = events.set_column(events.schema.get_field_index(name), events.schema.field(name), rows)
        yield events.unify_dictionaries()


def _shifted(values: IntArray, by: int) -> IntArray:
    """Add ``by`` to the values. Negative values mean "none" and stay unchanged."""
    return np.where(values >= 0, values + by, -1)


def make(trace: Trace, folder: Path, events: int) -> Path:
    """Write the run unless it exists. Return its folder."""
    file = folder / f"rank00000-cycle00000{SUFFIX}"
    if file.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    count = -(-events // len(trace))
    start, end = int(trace.ints("start_ns").min()), int(trace.end_ns.max())
    meta = msgspec.structs.replace(trace.meta, window_ns=(start, start + count * (end - start + 1)), recording="large")
    empty = tuple(name for name in schema.COLUMN_NAMES if not trace.has_values(name))
    quality = tuple(map(StoredFinding.of, trace.quality))
    stored = Stored(schema_version=schema.SCHEMA_VERSION, meta=meta, quality=quality, empty=empty)
    temporary = file.with_suffix(".tmp")
    with pq.ParquetWriter(temporary, schema.SCHEMA, **encoding(schema.SCHEMA)) as writer:
        for table in copies(trace, count):
            writer.write_table(table, row_group_size=_ROW_GROUP)
        writer.add_key_value_metadata({KEY: stored.json()})
    temporary.replace(file)
    return folder


if __name__ == "__main__":
    make(load(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
