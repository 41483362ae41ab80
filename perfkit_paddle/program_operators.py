"""Arguments of the operators that Paddle recorded while a PIR program ran.

Paddle records the names of these operators, but not their arguments. The arguments follow from the program and from the
shapes of the feeds. A recorded operator is found in the program by its name, and by its position among the operators
with this name.

Several threads may run independent operators in any order. Such operators are distinguished by their times. An operator
begins after all operators that make its inputs, directly or indirectly, have ended. So a recorded operator can be an
operator of the program only if, for each name, enough recorded operators ended before it and enough began after it."""

from __future__ import annotations

import enum
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.operators.names import family
from perfkit_core.plugins.flops.registry import UNUSED
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.meta import Finding
from perfkit_paddle import findings, names
from perfkit_paddle.operator_names import NAMESPACE, operator_formula, operator_name
from perfkit_paddle.program_shapes import Places, Program, ProgramOperator, Shapes, Sizes, flat

MOST: Final = 1000
"""Number of operators of a name up to which their times are compared, in about 0.1 s."""
MOST_OPERATORS: Final = 20_000
"""Number of operators of a program up to which they are told apart. Counting takes about 1 s and 50 MB then, once for
each program, and grows with the square of the number."""
UNCERTAIN: Final = -1
_ONES: Final = np.array([byte.bit_count() for byte in range(256)], np.uint8)


class Order:
    """The order that a program demands. ``names[n]`` are the indices of the operators with name ``n``."""

    def __init__(self, program: Program) -> None:
        self.names: dict[str, list[int]] = {}
        for number, operator in enumerate(program.operators):
            self.names.setdefault(operator.name, []).append(number)
        self._column = {name: column for column, name in enumerate(self.names)}
        maker = {
            tensor: number for number, operator in enumerate(program.operators) for tensor in flat(operator.results)
        }
        self._makers = [
            {maker[item] for item in flat(operator.inputs) if item in maker} for operator in program.operators
        ]

    @functools.cached_property
    def _counts(self) -> tuple[IntArray, IntArray]:
        """How many operators of each name must run before and after each operator, shape (operators, names)."""
        users: list[set[int]] = [set() for _ in self._makers]
        for number, sources in enumerate(self._makers):
            for source in sources:
                users[source].add(number)
        order = range(len(users))
        return self._reached(order, self._makers), self._reached(order[::-1], users)

    def _reached(self, order: Sequence[int], direct: Sequence[set[int]]) -> IntArray:
        """Count the operators that ``direct`` leads to, directly or indirectly, by name. Operators come in ``order``
        after those that they lead to."""
        # Each operator is a bit. The bits of a name begin with a byte, so that they are counted in whole bytes.
        sizes = [-(-len(numbers) // 8) for numbers in self.names.values()]
        first = np.cumsum([0, *sizes[:-1]])
        bits = [(0, 0)] * len(direct)
        for begin, numbers in zip(first.tolist(), self.names.values(), strict=True):
            for nth, number in enumerate(numbers):
                bits[number] = begin + nth // 8, 1 << nth % 8
        reached = np.zeros((len(direct), sum(sizes)), np.uint8)
        for number in order:
            row = reached[number]
            for source in direct[number]:
                row |= reached[source]
                byte, bit = bits[source]
                row[byte] |= bit
        return np.stack([np.add.reduceat(_ONES[row], first, dtype=np.int32) for row in reached])

    def distinguished(
        self, name: str, alike: Sequence[int], times: Mapping[str, tuple[IntArray, IntArray]]
    ) -> list[int]:
        """Return the kind of each recorded operator of a name, by time, or :data:`UNCERTAIN`.

        - ``alike``: the kind of each operator of this name in the program. Equal operators have the same kind, 0, 1, …
        - ``times``: start and end in ns of the recorded operators of each name, sorted by start. Names are left out if
          the program has another number of operators with this name."""
        kinds = np.array(alike)
        if len(kinds) > MOST or len(self._makers) > MOST_OPERATORS:
            return [UNCERTAIN] * len(kinds)
        before, after = (counts[self.names[name]] for counts in self._counts)
        start, end = times[name]
        possible = np.ones((len(kinds), len(kinds)), np.bool_)
        for other, (starts, ends) in times.items():
            ended = np.searchsorted(np.sort(ends), start, "right")
            begun = len(starts) - np.searchsorted(starts, end, "left")
            possible &= before[:, self._column[other]] <= ended[:, None]
            possible &= after[:, self._column[other]] <= begun[:, None]
        counts = np.bincount(kinds)
        of_kind = np.stack([possible[:, kinds == kind].any(1) for kind in range(len(counts))], 1)
        _exclude(of_kind, counts)
        recorded_kinds: list[int] = np.where(of_kind.sum(1) == 1, of_kind.argmax(1), UNCERTAIN).tolist()
        return recorded_kinds


_ORDERS: Final[WeakKeyDictionary[Program, Order]] = WeakKeyDictionary()


def order_of(program: Program) -> Order:
    """Return the order of a program. It is kept as long as the program, which may run in many recorded cycles."""
    if program not in _ORDERS:
        _ORDERS[program] = Order(program)
    return _ORDERS[program]


def _exclude(possible: BoolArray, counts: IntArray) -> None:
    """Remove kinds whose operators are all found, and keep only the kind that needs an event, until nothing changes.
    ``possible`` has the shape (events, kinds); there are ``counts[kind]`` operators of a kind."""
    before = -1
    while before != possible.sum():
        before = possible.sum()
        single = possible.sum(1) == 1
        complete = (possible & single[:, None]).sum(0) == counts
        possible[np.ix_(~single, complete)] = False
        for kind in np.flatnonzero(possible.sum(0) == counts):
            rows = possible[:, kind].copy()
            possible[rows] = False
            possible[rows, kind] = True


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
