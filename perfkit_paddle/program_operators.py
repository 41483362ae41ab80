"""Arguments of the operators that Paddle recorded while a PIR program ran.

Paddle records the names of these operators, but not their arguments. The arguments follow from the program and from the
shapes of the feeds. A recorded operator is found in the program by its name, and by its position among the operators
with this name. Threads may run independent operators in any order (:mod:`perfkit_paddle.program_order`)."""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.operators.names import family
from perfkit_core.plugins.flops.registry import UNUSED
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.meta import Finding
from perfkit_paddle import findings, names
from perfkit_paddle.operator_formulas import NAMESPACE, operator_formula
from perfkit_paddle.operator_names import operator_name
from perfkit_paddle.program_order import order_of
from perfkit_paddle.program_shapes import Places, Program, ProgramOperator, Shapes, Sizes, flat

_OPERATOR: Final = names.EVENT_TYPES[0]
_PRODUCTS: Final = ("matmul", "conv", "attention", "rnn")
"""Families of operators with matrix products."""
_LONGEST: Final = 16
"""Number of values of the longest list that is stored."""


class Arguments(NamedTuple):
    """The arguments of an operator, as in the columns of the event table. ``args`` has their values as JSON."""

    shapes: str
    dtypes: str
    args: str


class Unknown(enum.Enum):
    """Why an operator's arguments are unknown: the shape of an input is, or it may be one of several operators."""

    SIZES = "sizes"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a program. ``in_order``: the executor ran the operators in the order of the program."""

    start_ns: int
    end_ns: int
    program: Program
    feeds: tuple[tuple[str, Sizes], ...]
    in_order: bool


def arguments(program: Program, feeds: Mapping[str, Sizes]) -> list[Arguments | None]:
    """Return the arguments of each operator of a program in a run. None if the shape of an input is unknown.

    The values are those of the inputs, the shapes of the results (``False`` if a result is not computed), and the
    attributes."""
    run = Shapes(program, feeds)
    results: list[Arguments | None] = []
    for operator in program.operators:
        if any(run.sizes[tensor] is None for tensor in flat(_needed(operator))):
            results.append(None)
            continue
        inputs = [_input(program, run, operand) for operand in operator.inputs]
        values = [value for _, _, value in inputs]
        values += [_result(run, operand) for operand in operator.results]
        values += map(_text, operator.attributes.values())
        parts = [shape for shape, _, _ in inputs], [dtype for _, dtype, _ in inputs], {"Concrete Inputs": values}
        results.append(Arguments(*(msgspec.json.encode(part).decode() for part in parts)))
    return results


def _needed(operator: ProgramOperator) -> Sequence[Places]:
    """Return the inputs whose shapes must be known: those that have a role in the operator's formula."""
    formula = operator_formula(NAMESPACE + operator.name)
    if formula is None:
        return operator.inputs
    return [operand for operand, role in zip(operator.inputs, formula.roles, strict=False) if role != UNUSED]


def _input(program: Program, run: Shapes, operand: Places) -> tuple[Any, str, str]:
    """Return shape, type and value of an input. An input with a value in the program has only a value, and an input of
    unknown shape has nothing."""
    if any(run.sizes[tensor] is None for tensor in flat((operand,))):
        return [], "", ""
    if isinstance(operand, int) and program.values[operand].constant is not None:
        return [], "", _text(program.values[operand].constant)
    sizes = [list(run.sizes[tensor] or ()) for tensor in flat((operand,))]
    dtype = next((program.values[tensor].dtype for tensor in flat((operand,))), "")
    return (sizes if isinstance(operand, tuple) else sizes[0] if sizes else []), dtype, ""


def _result(run: Shapes, result: Places) -> str:
    if result is None:
        return "False"
    sizes = run.sizes[result] if isinstance(result, int) else None
    return "" if sizes is None else _text(sizes)


def _text(value: Any) -> str:
    """Return a value as in torch's recordings: a list in brackets, numbers and texts as they are, "" for others."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text, value))}]" if len(value) <= _LONGEST else ""
    return str(value) if isinstance(value, (bool, int, float, str)) else ""


def described(recorded: RecordedEvents, runs: Sequence[Run]) -> tuple[RecordedEvents, tuple[Finding, ...]]:
    """Add the arguments to the operators that ran in ``runs``. Also return warnings if matrix products lack them."""
    columns = recorded.columns
    code = np.full(columns.num_rows, -1, np.int64)
    texts: dict[Arguments, int] = {}
    unknown: Counter[Unknown] = Counter()
    for row, operator in _matched(columns, runs):
        if isinstance(operator, Unknown):
            unknown[operator] += family(operator_name(columns["name"][row].as_py())) in _PRODUCTS
        else:
            code[row] = texts.setdefault(operator, len(texts))
    if texts:
        indices = pa.array(code, mask=code < 0)
        for number, name in enumerate(Arguments._fields):
            added = pa.array([operator[number] for operator in texts], pa.string()).take(indices)
            if name in columns.column_names:
                old = columns[name].cast(pa.string()).combine_chunks()
                index = columns.column_names.index(name)
                columns = columns.set_column(index, name, pc.coalesce(old, added))
            else:
                columns = columns.append_column(name, added)
    quality = tuple(findings.unknown_arguments(reason.value, unknown[reason]) for reason in Unknown if unknown[reason])
    return replace(recorded, columns=columns), quality


def _matched(columns: pa.Table, runs: Sequence[Run]) -> Iterator[tuple[int, Arguments | Unknown]]:
    """Yield the row and the arguments of each operator that has a counterpart in its program. Operators of a name count
    only if a run has as many of them as the program."""
    if not runs:
        return
    rows = np.flatnonzero(pc.equal(columns["category"].cast(pa.string()), _OPERATOR).fill_null(False).to_numpy())
    start = columns["start_ns"].to_numpy()[rows]
    by_time = np.argsort(start, kind="stable")
    rows, start = rows[by_time], start[by_time]
    end = start + columns["dur_ns"].to_numpy()[rows]
    texts = columns["name"].take(pa.array(rows)).to_pylist()
    of_programs: dict[Any, list[Arguments | None]] = {}
    for run in _without_overlap(runs):
        program = run.program
        of_program = of_programs.setdefault((id(program), run.feeds), [])
        if not of_program:
            of_program += arguments(program, dict(run.feeds))
        order = order_of(program)
        first, last = np.searchsorted(start, (run.start_ns, run.end_ns))
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(texts[first:last], int(first)):
            positions.setdefault(name.removeprefix(NAMESPACE).rstrip("_"), []).append(position)
        positions = {name: at for name, at in positions.items() if len(at) == len(order.names.get(name, ()))}
        times = {name: (start[at], end[at]) for name, at in positions.items()}
        for name, at in positions.items():
            operators = [of_program[number] or Unknown.SIZES for number in order.names[name]]
            kinds = {operator: kind for kind, operator in enumerate(dict.fromkeys(operators))}
            if len(kinds) > 1 and not run.in_order:
                distinct = [*kinds, Unknown.ORDER]
                operators = [distinct[kind] for kind in order.distinguished(name, [kinds[o] for o in operators], times)]
            yield from zip(rows[at].tolist(), operators, strict=True)


def _without_overlap(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield the runs that do not overlap another run in time."""
    runs = sorted(runs, key=lambda run: run.start_ns)
    ended = list(itertools.accumulate((run.end_ns for run in runs), max, initial=0))
    for number, run in enumerate(runs):
        following = runs[number + 1].start_ns if number + 1 < len(runs) else run.end_ns
        if ended[number] <= run.start_ns and run.end_ns <= following:
            yield run
