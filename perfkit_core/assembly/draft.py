"""The event table before it is worked out: the columns that a source recorded, and what stands in for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, constant
from perfkit_core.model import schema
from perfkit_core.model.column_sources import ROW_REFERENCES, Columns

EXTERNAL: Final = "external"
"""An id that an operator shares with its launches and device work."""
LAYER: Final = "layer"
"""What the call of a layer adds to the path of the calls around it."""
RECORDED_TYPES: Final[Mapping[str, pa.DataType]] = {
    **{column.name: column.type for column in schema.COLUMNS},
    EXTERNAL: pa.int64(),
    LAYER: schema.SCHEMA.field("module").type,
}
"""Columns that a source may record."""


@dataclass(frozen=True, slots=True)
class DraftColumns(Columns):
    """``held`` by name; every other column is null, row references -1, and the rank ``rank``."""

    count: int
    held: Mapping[str, pa.ChunkedArray]
    rank: int | None

    @property
    def num_rows(self) -> int:
        return self.count

    def known(self, name: str) -> bool:
        return name in self.held or self._stand_in(name) is not None

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return iter(self.column(name).chunks)

    def column(self, name: str) -> pa.ChunkedArray:
        held = self.held.get(name)
        return constant(self._stand_in(name), RECORDED_TYPES[name], self.count) if held is None else held

    def _stand_in(self, name: str) -> int | None:
        if name == "rank":
            return self.rank
        return NO_ROW if name in ROW_REFERENCES else None
