"""FLOPs and bytes of each operator of a trace, from its recorded arguments.

An operator counts if its arguments determine its FLOPs (:mod:`perfkit_core.plugins.flops`). Operators inside a counted
operator are a part of it and do not count again. Not counted are

- wrappers: operators that only call others, such as autograd nodes,
- logical operators, whose recorded shapes are not those of the tensors that are computed (:func:`_logical`),
- operators that were stopped before they computed (:func:`_stopped`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.operators.names import is_product
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.plugins.flops.arguments import Work
from perfkit_core.plugins.flops.registry import WRAPPER, OperatorFormula, by_canonical_name
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import BACKWARD, FORWARD, OPERATOR_KINDS, RUNTIME
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select

_VALUES: Final = r'"Concrete Inputs": ?(?P<values>\[(?:"(?:[^"\\]|\\.)*"(?:, ?)?)*\])'
"""The argument of an event that holds the values of an operator's arguments, as a JSON list of texts."""
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The counted operators. All arrays have the shape (operators,)."""

    row: IntArray
    distinct: IntArray  # index into ``works``
    works: tuple[Work, ...]  # distinct combinations of operator and arguments
    products: (
        IntArray  # rows of all operators whose FLOPs of matrix products are known, also of those that do not count
    )

    def of(self, mask: BoolArray) -> OperatorWork:
        return replace(self, row=self.row[mask], distinct=self.distinct[mask])

    @property
    def matrix(self) -> BoolArray:
        """Mask of the operators whose FLOPs are those of matrix products. Shape (operators,)."""
        return self.values("matrix").astype(np.bool_)

    def values(self, of: str, missing: int = UNKNOWN) -> IntArray:
        """Return a number of each operator's work, ``missing`` where it is unknown. Shape (operators,)."""
        numbers = [getattr(work, of) for work in self.works]
        return np.array([missing if number is None else number for number in numbers], np.int64)[self.distinct]


@once
def operator_work(trace: Trace) -> OperatorWork:
    """Return the operators whose arguments determine their FLOPs, without those inside another one."""
    rows, formula, formulas = _candidates(trace)
    values = np.full(len(rows), -1, np.int64)
    needy = np.flatnonzero(np.array([item.needs_values for item in formulas], np.bool_)[formula]) if len(rows) else rows
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
    has_work = np.array([work is not None for work in works], np.bool_)[distinct] if works else np.zeros(0, np.bool_)
    number = np.cumsum([work is not None for work in works]) - 1
    chosen = number[distinct[has_work]].astype(np.int64) if works else np.empty(0, np.int64)
    work = OperatorWork(rows[has_work], chosen, tuple(work for work in works if work is not None), rows[:0])
    work = replace(work, products=work.row[work.matrix])
    work = work.of(~_stopped(trace, work.row))
    work = work.of(~_logical(trace, work.row, work.values("flops"), work.matrix, rows[~has_work]))
    return work.of(~nesting.lies_in(trace.ints("parent"), select.marked(trace, work.row))[work.row])


def repeated(trace: Trace, rows: IntArray) -> tuple[BoolArray, IntArray]:
    """Return the mask of the operators ``rows`` that repeat an operator of the forward pass of the same step, and a
    number that operators of the same rank, step, name and shapes share. Both have the shape (len(rows),). Operators
    that repeat another run in the backward pass and take part in a backward graph of their own."""
    keys = (*(trace.ints(name)[rows] for name in ("rank", "step")),
            *(trace.codes(name).codes[rows] for name in ("name", "shapes")))  # fmt: skip
    code, first = groupby.distinct(keys, len(rows))
    in_forward = groupby.sums(code, len(first), trace.rows("phase", FORWARD)[rows]) > 0
    return trace.rows("phase", BACKWARD)[rows] & (trace.ints("sequence")[rows] >= 0) & in_forward[code], code


@once
def recomputed(trace: Trace) -> BoolArray:
    """Return the mask of the operators that compute a part of the forward pass again in the backward pass, as with
    activation checkpointing, and of the events in them, shape (rows,). If most operators with a backward graph of their
    own repeat nothing, gradients of gradients are computed, and nothing is computed again."""
    mask, rows = np.zeros(len(trace), np.bool_), np.flatnonzero(trace.host & trace.operators & ~_wraps(trace))
    again = repeated(trace, rows)[0]
    if 2 * again.sum() > (trace.rows("phase", BACKWARD) & (trace.ints("sequence") >= 0))[rows].sum():
        mask[rows] = again
    return mask | nesting.lies_in(trace.ints("parent"), mask) if mask.any() else mask


def _stopped(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the operators ``rows`` that were stopped before they computed. Activation checkpointing stops
    the repeated forward pass when it has the last tensor that the backward pass needs, which is an input of an operator
    that is already recorded. Such an operator contains no call of those in the operator of the forward pass."""
    again, code = repeated(trace, rows)
    if not again.any():
        return again
    of_event = np.full(len(trace) + 1, NO_ROW, np.int64)
    of_event[rows] = np.arange(len(rows))
    parent = of_event[trace.ints("parent")]
    inside = np.flatnonzero((parent != NO_ROW) & trace.rows("kind", *OPERATOR_KINDS, RUNTIME))
    parent, forward = parent[inside], trace.rows("phase", FORWARD)[rows]
    # A call inside an operator, by the number of the operator and the name of the call.
    call, first = groupby.distinct((code[parent], trace.codes("name").codes[inside]), len(inside))
    in_forward = groupby.sums(call, len(first), forward[parent]) > 0
    computes = groupby.sums(parent, len(rows), in_forward[call]) > 0
    return again & ~computes & (groupby.sums(code, len(rows), forward & computes) > 0)[code]


def _logical(trace: Trace, rows: IntArray, flops: IntArray, matrix: BoolArray, unknown: IntArray) -> BoolArray:
    """Return the mask of the operators ``rows`` whose shapes are not those of the tensors that are computed, shape
    (len(rows),). Such an operator calls the operators that compute: inside ``vmap``, shapes lack the mapped dimension;
    a distributed tensor has the shape of all its shards.

    It is recognised by the FLOPs of the operators inside. One of them has more FLOPs. Or they do the same with other
    FLOPs: those with matrix products in an operator with matrix products (``matrix``), else those of the same name.
    Fewer FLOPs say nothing if an operator inside is one of the ``unknown``, whose FLOPs are not known.
    """
    position = np.full(len(trace) + 1, NO_ROW, np.int64)
    position[rows] = np.arange(len(rows))
    above = position[nesting.nearest_above(trace.ints("parent"), select.marked(trace, rows))[rows]]
    logical = np.zeros(len(rows), np.bool_)
    if (above == NO_ROW).all():
        return logical
    name = trace.codes("name").codes[rows]
    alike = (above != NO_ROW) & (name == name[above])
    incomplete = nesting.holds(trace.ints("parent"), select.marked(trace, unknown))[rows]
    _find_logical(above, flops, matrix, alike, incomplete, np.zeros((4, len(rows)), np.int64), logical)
    return logical


@compiled
def _find_logical(
    above: IntArray, flops: IntArray, matrix: BoolArray, alike: BoolArray, incomplete: BoolArray,
    inside: Out[Annotated[IntArray, 2]], logical: Out[BoolArray],
) -> None:  # fmt: skip
    """Set the mask ``logical``. ``above`` is the position of the operator around each operator, -1 if none, and
    ``alike`` says whether both have the same name. The rows of ``inside`` are FLOPs inside each operator: of operators
    with the same name, of matrix products, of all operators, and the most FLOPs of an operator."""
    for i in range(len(above) - 1, -1, -1):  # operators inside an operator come after it
        same = inside[1, i] if matrix[i] else inside[0, i]
        logical[i] = inside[3, i] > flops[i] or same > flops[i] or (0 < same < flops[i] and not incomplete[i])
        p = above[i]
        if p < 0:
            continue
        total = inside[2, i] if logical[i] else flops[i]
        products = inside[1, i] if logical[i] else flops[i] if matrix[i] else 0
        if alike[i]:
            inside[0, p] += total
        inside[1, p] += products
        inside[2, p] += total
        inside[3, p] = max(inside[3, p], inside[3, i] if logical[i] else flops[i])


@once
def uncounted(trace: Trace) -> BoolArray:
    """Return the mask of the operators that compute matrix products but whose FLOPs are unknown, because they have no
    formula or no recorded arguments. Of nested ones, only the outermost is in the mask. Shape (rows,)."""
    canonical, parent = trace.codes("op_name"), trace.ints("parent")
    products = canonical.lookup(np.array([is_product(name) for name in canonical.values], np.bool_), False)
    counted = select.marked(trace, operator_work(trace).products)
    covered = counted | nesting.lies_in(parent, counted) | nesting.holds(parent, counted)
    mask: BoolArray = trace.operators & products & ~_wraps(trace) & ~covered
    return mask & ~nesting.lies_in(parent, mask)


def _candidates(trace: Trace) -> tuple[IntArray, IntArray, list[OperatorFormula]]:
    """Return the rows of operators with recorded shapes and a formula, the index of each one's formula, and the list of
    formulas."""
    names, canonical = trace.codes("name"), trace.codes("op_name")
    rows = np.flatnonzero(trace.operators & (trace.codes("shapes").codes >= 0))
    if not len(rows):
        return rows, rows, []
    formulas: dict[OperatorFormula, int] = {}

    def numbers(keys: list[OperatorFormula | None]) -> IntArray:
        return np.array([NO_ROW if key is None else formulas.setdefault(key, len(formulas)) for key in keys], np.int64)

    native = names.lookup(numbers(_of_names(trace)), NO_ROW)[rows]
    by_family = canonical.lookup(numbers([by_canonical_name(name) for name in canonical.values]), NO_ROW)[rows]
    formula = np.where(native == NO_ROW, by_family, native)
    computes = (formula != NO_ROW) & (formula != formulas.get(WRAPPER, NO_ROW))
    return rows[computes], formula[computes], list(formulas)


def _wraps(trace: Trace) -> BoolArray:
    wrappers = np.array([formula == WRAPPER for formula in _of_names(trace)], np.bool_)
    return trace.codes("name").lookup(wrappers, False)


def _of_names(trace: Trace) -> list[OperatorFormula | None]:
    """Return the adapter's formula for each name of an event."""
    of_name = get_plugins().framework(trace.meta.framework).operator_formulas()
    names = trace.codes("name").values
    return [of_name(name) if of_name else None for name in names]


def _recorded_values(trace: Trace, rows: IntArray) -> pa.DictionaryArray:
    values = pc.struct_field(pc.extract_regex(trace.pick("args", rows).cast(pa.string()), _VALUES), "values")
    return values.dictionary_encode()


@once
def operator_flops(trace: Trace, matrix_only: bool = False) -> IntArray:
    """Return the FLOPs of each operator, -1 where they are unknown. Shape (rows,). If no arguments were recorded, they
    are those that the framework counted. ``matrix_only``: 0 for operators without matrix products."""
    work = operator_work(trace)
    if not len(work.row):
        flops = trace.ints("flops", UNKNOWN)
        rows = np.flatnonzero(flops > 0)
        rows = rows[~_logical(trace, rows, flops[rows], np.zeros(len(rows), np.bool_), rows[:0])]
        counted = select.marked(trace, rows)
        return np.where((flops <= 0) | (counted & ~nesting.lies_in(trace.ints("parent"), counted)), flops, UNKNOWN)
    flops = np.full(len(trace), UNKNOWN, np.int64)
    flops[work.row] = np.where(work.matrix | (not matrix_only), work.values("flops"), 0)
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
