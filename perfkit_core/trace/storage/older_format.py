"""Reading of what older versions of perfkit wrote. Files of format 1 have no side tables: descriptions of collectives
and server steps are members of ``args``, and other facts are metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.trace.model import (
    account,
    collective,
    compiled_graph,
    frame_samples,
    serving_step,
    timed_steps,
)
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.compiled_graph import CompiledGraph
from perfkit_core.trace.model.event_columns import Columns
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.gate import checked_side_table
from perfkit_core.trace.model.serving_step import ServingStep
from perfkit_core.trace.model.side_table import SideTable
from perfkit_core.trace.model.side_tables import SideTables
from perfkit_core.trace.model.timed_steps import TimedSteps

_FACTS: Final[dict[str, tuple[SideTable, type[Any]]]] = {
    "collective": (collective.TABLE, Collective),
    "perfkit.serving": (serving_step.TABLE, ServingStep),
}
"""Members of ``args`` that older versions added: the side table and the class of each."""
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OlderFacts(msgspec.Struct, frozen=True):
    """Fields of the metadata that became side tables."""

    account: tuple[ReadEvents, ...] = ()
    samples: dict[str, FrameSamples] = {}
    timed: dict[str, TimedSteps] = {}
    compiled: tuple[CompiledGraph, ...] = ()

    def tables(self) -> SideTables:
        """Return the side tables. Raises ValueError for numbers that do not fit."""
        try:
            tables = {
                account.TABLE.name: account.to_table(self.account),
                frame_samples.TABLE.name: frame_samples.to_table(self.samples),
                compiled_graph.TABLE.name: compiled_graph.to_table(self.compiled),
            }
            clocks = {timed_steps.STEP_CLOCK.name: timed_steps.to_table(self.timed)} if self.timed else {}
        except (pa.ArrowException, OverflowError) as error:
            raise ValueError(f"a number in the metadata is too large: {error}") from None
        return SideTables({name: table for name, table in tables.items() if len(table)} | clocks)


@dataclass(frozen=True, slots=True)
class OlderColumns(Columns):
    """The columns of an event table of format 1, with ``args`` as they were recorded."""

    columns: Columns

    @property
    def num_rows(self) -> int:
        return self.columns.num_rows

    def has_values(self, name: str) -> bool:
        return self.columns.has_values(name)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return self._recorded(name, self.columns.chunks(name))

    def between(self, name: str, first: int, end: int) -> Iterator[pa.Array]:
        return self._recorded(name, self.columns.between(name, first, end))

    def magnitude(self, name: str) -> int:
        return self.columns.magnitude(name)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        cells = self.columns.pick(name, rows)
        return without_facts(pa.chunked_array([cells]))[0].combine_chunks() if name == "args" else cells

    def table(self) -> pa.Table:
        table = self.columns.table()
        at = table.schema.get_field_index("args")
        return table.set_column(at, table.schema.field(at), without_facts(table["args"])[0])

    def facts(self) -> SideTables:
        """Return the side tables of collectives and server steps, which are read from ``args`` when one is used."""

        def load(declared: SideTable) -> pa.Table:
            args = pa.chunked_array(list(self.columns.chunks("args")), pa.string())
            return without_facts(args)[1].get(declared.name, declared.table({}))

        if not self.columns.has_values("args"):
            return SideTables()
        return SideTables({declared.name: lambda declared=declared: load(declared) for declared, _ in _FACTS.values()})  # type: ignore[misc]

    @staticmethod
    def _recorded(name: str, chunks: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for chunk in chunks:
            yield from without_facts(pa.chunked_array([chunk]))[0].chunks if name == "args" else [chunk]


def without_facts(args: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, pa.Table]]:
    """Return recorded arguments without the members that older versions added, and the side tables of these."""
    described: dict[str, tuple[list[int], list[Any]]] = {}
    chunks, first = [], 0
    for chunk in args.chunks:
        masks = [pc.match_substring(chunk, f'"{key}":') for key in _FACTS]
        rows = np.flatnonzero(np.asarray(pc.fill_null(pc.or_(*masks), False)))
        texts = []
        for row, text in zip(rows.tolist(), chunk.take(pa.array(rows)).to_pylist(), strict=True):
            rest, facts = _separated(text)
            texts.append(rest)
            for name, fact in facts.items():
                lists = described.setdefault(name, ([], []))
                lists[0].append(first + row)
                lists[1].append(fact)
        if len(rows):
            mask = np.zeros(len(chunk), np.bool_)
            mask[rows] = True
            chunk = pc.replace_with_mask(chunk, pa.array(mask), pa.array(texts, chunk.type))
        chunks.append(chunk)
        first += len(chunk)
    tables = {}
    for declared, _ in _FACTS.values():
        if declared.name in described:
            rows_described, structs = described[declared.name]
            tables[declared.name] = checked_side_table(
                declared, declared.of_structs(structs, row=rows_described), len(args)
            )
    return pa.chunked_array(chunks, args.type), tables


def _separated(text: str) -> tuple[str | None, dict[str, Any]]:
    """Return arguments without added members (None if there are no others), and the facts by side table."""
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except _UNDECODABLE:
        return text, {}
    facts = {}
    for key, (declared, kind) in _FACTS.items():
        # a framework may use the same key for a value of its own
        with contextlib.suppress(*_UNDECODABLE):
            fact = msgspec.json.decode(members[key], type=kind) if key in members else None
            if isinstance(fact, ServingStep) and not fact.plausible:
                fact = None
            if fact is not None:
                facts[declared.name] = fact
                del members[key]
    if not facts:
        return text, {}
    return msgspec.json.encode(members).decode() if members else None, facts
