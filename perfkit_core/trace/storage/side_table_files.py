"""Side tables in stored files: each is an Arrow stream before the footer, which is read when the table is first used.
The index at the end of the file says where (:mod:`perfkit_core.trace.storage.checksums`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from perfkit_core.base.system.paths import arrow_input
from perfkit_core.trace.model.gate import checked_side_table
from perfkit_core.trace.model.side_tables import ALL, Load, SideTables
from perfkit_core.trace.storage.checksums import Extent
from perfkit_core.trace.storage.stored_file import StoredFile, unreadable

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)


def encoded(tables: SideTables) -> dict[str, bytes]:
    """Return the bytes of each side table."""
    contents = {}
    for name in tables.names:
        table, sink = tables[name], pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
            stream.write_table(table)
        contents[name] = sink.getvalue().to_pybytes()
    return contents


def tables(file: StoredFile) -> SideTables:
    """Return the side tables of a stored file. Reading a table that is damaged or impossible raises SourceError. Tables
    of newer versions are left out. For a file of format 1, raises SourceError if its metadata is impossible."""
    if file.stored.schema_version == 1:
        try:
            return file.older_facts().tables()
        except ValueError as error:
            raise unreadable(file.path, f"perfkit's metadata is damaged: {error}") from None
    known: Mapping[str, Extent] = {name: extent for name, extent in file.tables.items() if name in ALL}
    return SideTables({name: _load(file, name, extent) for name, extent in known.items()})


def _load(file: StoredFile, name: str, extent: Extent) -> Load:
    def load() -> pa.Table:
        try:
            file.check_unchanged()
            with arrow_input(file.path) if file.content is None else pa.BufferReader(file.content) as opened:
                content = extent.read(opened)
            with pa.ipc.open_stream(content) as stream:
                table = stream.read_all()
            rows = None if file.stored.stage == "recorded" else file.first_row[-1]
            return checked_side_table(ALL[name], table, rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file.path, f"the side table {name}: {error}") from None

    return load
