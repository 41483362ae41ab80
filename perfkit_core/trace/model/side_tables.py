"""The side tables of a trace, by name. A stored trace reads each from its file when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.trace.model import (
    account,
    collective,
    compiled_graph,
    device_task,
    frame_samples,
    serving_step,
    timed_steps,
)
from perfkit_core.trace.model.side_table import ROW, SideTable

COLLECTIVES: Final = collective.TABLE.name
SERVER_STEPS: Final = serving_step.TABLE.name
FRAME_SAMPLES: Final = frame_samples.TABLE.name
STEP_CLOCK: Final = timed_steps.STEP_CLOCK.name
COMPILED_GRAPHS: Final = compiled_graph.TABLE.name
ACCOUNT: Final = account.TABLE.name
DEVICE_TASKS: Final = device_task.TABLE.name
AWAITED_RANKS: Final = collective.AWAITED.name
ALL: Final[Mapping[str, SideTable]] = {
    table.name: table
    for table in (
        collective.TABLE,
        collective.AWAITED,
        serving_step.TABLE,
        frame_samples.TABLE,
        timed_steps.STEP_CLOCK,
        compiled_graph.TABLE,
        account.TABLE,
        device_task.TABLE,
    )
}

Load = Callable[[], pa.Table]


class SideTables:
    """Side tables by name. A table that is not given is empty. Objects are not changed; several threads may use one."""

    __slots__ = ("_tables",)

    def __init__(self, tables: Mapping[str, pa.Table | Load] | None = None) -> None:
        self._tables = dict(tables or {})

    def __getitem__(self, name: str) -> pa.Table:
        table = self._tables.get(name)
        if table is None:
            return ALL[name].schema.empty_table()
        if not isinstance(table, pa.Table):
            table = self._tables[name] = table()
        return table

    def __reduce__(self) -> tuple[type[SideTables], tuple[dict[str, pa.Table]]]:
        return SideTables, ({name: self[name] for name in self._tables},)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables that may have rows."""
        return tuple(self._tables)

    def replaced(self, tables: SideTables | Mapping[str, pa.Table | Load]) -> SideTables:
        """Return the tables in which some are replaced."""
        return SideTables({**self._tables, **(tables._tables if isinstance(tables, SideTables) else tables)})

    def load_all(self) -> None:
        """Read all tables. Raises SourceError if one is damaged."""
        for name in self._tables:
            self[name]

    def without(self, *names: str) -> SideTables:
        return SideTables({name: table for name, table in self._tables.items() if name not in names})

    def renumbered(self, new_row: Callable[[IntArray], IntArray]) -> SideTables:
        """Return the tables for events in another order. ``new_row`` maps rows to new rows; facts about a row that has
        no new row (-1) are left out."""
        return SideTables(
            {
                name: self._deferred(name, new_row) if ALL[name].describes_rows else table
                for name, table in self._tables.items()
            }
        )

    def _deferred(self, name: str, new_row: Callable[[IntArray], IntArray]) -> Load:
        return lambda: renumbered(self[name], new_row)


def renumbered(table: pa.Table, new_row: Callable[[IntArray], IntArray]) -> pa.Table:
    """Return a table with the new rows of its events, in ascending order, as :meth:`SideTables.renumbered` does."""
    rows = new_row(table[ROW.name].to_numpy())
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    if len(order) < len(rows) or (order != np.arange(len(order))).any():
        table, rows = table.take(pa.array(order)), rows[order]
    return table.set_column(0, table.schema.field(0), pa.array(rows, pa.int64()))


def joined(parts: Sequence[SideTables], first_row: Sequence[int]) -> SideTables:
    """Return the tables of a trace that consists of several parts. Part i begins at row ``first_row[i]``."""

    def load(name: str) -> pa.Table:
        tables = [part[name] for part in parts]
        if ALL[name].describes_rows:
            tables = [renumbered(table, lambda rows, by=by: rows + by)  # type: ignore[misc]
                      for table, by in zip(tables, first_row, strict=True)]  # fmt: skip
        tables = [table for table in tables if len(table)] or tables[:1]
        return ALL[name].join(tables) if len(tables) > 1 else tables[0]

    names = dict.fromkeys(name for part in parts for name in part.names)
    return SideTables({name: lambda name=name: load(name) for name in names})  # type: ignore[misc]
