"""FLOPs and bytes of each operator of a trace, from its recorded arguments.

An operator counts if its arguments determine its FLOPs (:mod:`perfkit_core.flops`). Operators inside a counted operator
are a part of it and do not count again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.flops.registry import OperatorFormula, by_canonical_name
from perfkit_core.flops.work import Work
from perfkit_core.model.cache import once
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.manager import get_plugins

_VALUES: Final = r'"Concrete Inputs": ?(?P<values>\[(?:"(?:[^"\\]|\\.)*"(?:, ?)?)*\])'
"""The argument of an event that holds the values of an operator's arguments, as a JSON list of texts."""
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The counted operators. All arrays have the shape (operators,)."""

    row: IntArray
    distinct: IntArray  # index into ``works``
    works: tuple[Work, ...]  # distinct combinations of operator and arguments

    def values(self, of: str, missing: int = UNKNOWN) -> IntArray:
        """Return a number of each operator's work, ``missing`` where it is unknown. Shape (operators,)."""
        numbers = [getattr(work, of) for work in self.works]
        return np.array([missing if number is None else number for number in numbers], np.int64)[self.distinct]


@once
def operator_work(trace: Trace) -> OperatorWork:
    """Return the operators whose arguments determine their FLOPs, without those inside another one."""
    rows, formula, formulas = _candidates(trace)
    values = np.full(len(rows), -1, np.int64)
    needy = np.flatnonzero(np.array([one.needs_values for one in formulas], np.bool_)[formula]) if len(rows) else rows
    texts: list[str | None] = []
    if len(needy):
        recorded = _recorded_values(trace, rows[needy])
        values[needy], texts = recorded.indices.fill_null(-1).to_numpy(), recorded.dictionary.to_pylist()
    shapes, dtypes = trace.codes("shapes"), trace.codes("dtypes")
    keys = (formula, shapes.codes[rows], dtypes.codes[rows], values)
    distinct, first = groupby.distinct(keys, len(rows))
    works: list[Work | None] = []
    for item in first.tolist():
        shape, dtype = (codes.codes[rows[item]] for codes in (shapes, dtypes))
        works.append(
            formulas[formula[item]].work(
                shapes.values[shape],
                dtypes.values[dtype] if dtype >= 0 else None,
                texts[values[item]] if values[item] >= 0 else None,
            )
        )
    known = np.array([work is not None for work in works], np.bool_)[distinct] if works else np.zeros(0, np.bool_)
    counted = np.zeros(len(trace), np.bool_)
    counted[rows[known]] = True
    inside = nesting.lies_in(trace.ints("parent"), counted)
    kept = known & ~inside[rows]
    number = np.cumsum([work is not None for work in works]) - 1
    chosen = number[distinct[kept]].astype(np.int64) if works else np.empty(0, np.int64)
    return OperatorWork(rows[kept], chosen, tuple(work for work in works if work is not None))


def _candidates(trace: Trace) -> tuple[IntArray, IntArray, list[OperatorFormula]]:
    """Return the rows of operators with recorded shapes and a formula, the index of each one's formula, and the list of
    formulas."""
    names, canonical = trace.codes("name"), trace.codes("op_name")
    rows = np.flatnonzero(trace.operators & (trace.codes("shapes").codes >= 0))
    if not len(rows):
        return rows, rows, []
    of_name = get_plugins().operator_formulas(trace.meta.framework)
    formulas: dict[OperatorFormula, int] = {}

    def numbers(found: list[OperatorFormula | None]) -> IntArray:
        return np.array([NO_ROW if one is None else formulas.setdefault(one, len(formulas)) for one in found], np.int64)

    native = names.lookup(numbers([of_name(name) if of_name else None for name in names.values]), NO_ROW)[rows]
    by_family = canonical.lookup(numbers([by_canonical_name(name) for name in canonical.values]), NO_ROW)[rows]
    formula = np.where(native == NO_ROW, by_family, native)
    return rows[formula != NO_ROW], formula[formula != NO_ROW], list(formulas)


def _recorded_values(trace: Trace, rows: IntArray) -> pa.DictionaryArray:
    found = pc.struct_field(pc.extract_regex(trace.pick("args", rows).cast(pa.string()), _VALUES), "values")
    return found.dictionary_encode()


@once
def operator_flops(trace: Trace, matrix_only: bool = False) -> IntArray:
    """Return the FLOPs of each operator, -1 where they are unknown. Shape (rows,). If no arguments were recorded, they
    are those that the framework counted. ``matrix_only``: 0 for operators without matrix products."""
    work = operator_work(trace)
    if not len(work.row):
        return trace.ints("flops", UNKNOWN)
    flops = np.full(len(trace), UNKNOWN, np.int64)
    matrix = np.array([one.matrix for one in work.works], np.bool_)[work.distinct]
    flops[work.row] = np.where(matrix | (not matrix_only), work.values("flops"), 0)
    return flops


@once
def counted_operator(trace: Trace) -> IntArray:
    """Return the index in :func:`operator_work` of the counted operator around each event, which may be the event
    itself; -1 if none. Shape (rows,)."""
    work = operator_work(trace)
    counted = np.zeros(len(trace), np.bool_)
    counted[work.row] = True
    index = np.full(len(trace) + 1, NO_ROW, np.int64)
    index[work.row] = np.arange(len(work.row))
    return index[nesting.nearest_on_path(trace.ints("parent"), counted)]
