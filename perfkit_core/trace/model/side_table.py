"""Side tables of a trace: facts about a recording that are no columns of its events, such as its collectives.

Each kind of fact declares a :class:`SideTable` in its module. :data:`perfkit_core.trace.model.side_tables.ALL` lists
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from perfkit_core.trace.model.schema import Column

ROW: Final = Column("row", pa.int64(), False, "row of the event that the facts describe; rows ascend")
RANK: Final = Column("rank", pa.int32(), True, "rank of the process; null if it is unknown")

Join = Callable[[Sequence[pa.Table]], pa.Table]


@dataclass(frozen=True, slots=True)
class SideTable:
    """The declaration of a side table.

    - ``columns``: if the first is :data:`ROW`, each row of the table describes one event.
    - ``words``: columns with only these words. ``not_negative``: columns with only numbers from 0 on.
    - ``join(tables)`` returns the table of a trace that consists of several parts. By default, the rows of all parts
      follow one another."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    not_negative: frozenset[str] = frozenset()
    join: Join = lambda tables: pa.concat_tables(tables).unify_dictionaries()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type, column.nullable) for column in self.columns])

    @property
    def describes_rows(self) -> bool:
        return self.columns[0] is ROW

    def table(self, cells: Mapping[str, Any]) -> pa.Table:
        """Return a table with the given columns, each a sequence or an Arrow array. Missing columns are null."""
        count = len(next(iter(cells.values()))) if cells else 0
        arrays = []
        for column in self.schema:
            values = cells.get(column.name)
            if values is None:
                arrays.append(pa.nulls(count, column.type))
            elif isinstance(values, (pa.Array, pa.ChunkedArray)):
                arrays.append(values.cast(column.type))
            else:
                text = pa.types.is_dictionary(column.type)
                array = pa.array(values, pa.string() if text else column.type)
                arrays.append(array.dictionary_encode() if text else array)
        return pa.table(arrays, self.schema)

    def of_structs(self, structs: Sequence[msgspec.Struct], **cells: Any) -> pa.Table:
        """Return a table with the fields of ``structs``, one row each, and other columns ``cells``."""
        names = structs[0].__struct_fields__ if structs else ()
        fields = {name: [getattr(struct, name) for struct in structs] for name in names}
        return self.table({**cells, **fields})


def structs(table: pa.Table, kind: type[Any]) -> list[Any]:
    """Return the rows of a table as structs of class ``kind``, which have fields for some of its columns."""
    names = [name for name in kind.__struct_fields__ if name in table.column_names]
    columns = [table[name].to_pylist() for name in names]
    return [kind(**dict(zip(names, cells, strict=True))) for cells in zip(*columns, strict=True)]


def rank_cells(ranks: Iterable[str]) -> list[int | None]:
    """Return ranks that are given as texts, "-" for an unknown one, as cells of the column :data:`RANK`."""
    return [None if rank == "-" else int(rank) for rank in ranks]
