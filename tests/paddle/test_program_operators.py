"""Recorded operators and operators of programs: order, numbers and times, on programs made by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_paddle import program_operators
from perfkit_paddle.program_operators import UNCERTAIN, Run, described, order_of
from perfkit_paddle.program_shapes import Program, ProgramOperator, Value

SIZES = [(4, 6), (6, 8), (8, 10), (6, 3), (3, 10), (4, 8), (4, 10), (4, 3), (4, 10)]
"""Shapes of x, four weights, and the results of the products."""


def product(a: int, b: int, result: int) -> ProgramOperator:
    return ProgramOperator("matmul", (a, b), (result,), {"transpose_x": False, "transpose_y": False})


def two_branches(equal: bool = False) -> Program:
    """Two branches of two products each. Either branch may run first."""
    sizes = [*SIZES[:3], SIZES[1], SIZES[2], *SIZES[5:7], *SIZES[5:7]] if equal else SIZES
    values = tuple(Value(shape, "float32") for shape in sizes)
    branches = product(0, 1, 5), product(5, 2, 6), product(0, 3, 7), product(7, 4, 8)
    return Program(branches, values)


def events(*operators: tuple[str, int] | tuple[str, int, int], category: str = "Operator") -> RecordedEvents:
    """Return operators with these names, starts, and ends, which are 5 ns later by default."""
    starts = [operator[1] for operator in operators]
    ends = [operator[2] if len(operator) == 3 else operator[1] + 5 for operator in operators]
    columns = {
        "name": pa.array([operator[0] for operator in operators]).dictionary_encode(),
        "category": pa.array([category] * len(operators)),
        "start_ns": pa.array(starts, pa.int64()),
        "dur_ns": pa.array(np.array(ends) - starts, pa.int64()),
    }
    return RecordedEvents(pa.table(columns))


def shapes(recorded: RecordedEvents) -> list[Any]:
    return recorded.columns["shapes"].to_pylist() if "shapes" in recorded.columns.column_names else []


FOUR = events(("pd_op.matmul", 10), ("pd_op.matmul", 20), ("pd_op.matmul", 30), ("pd_op.matmul", 40))


def run(program: Program, in_order: bool, start_ns: int = 0, end_ns: int = 100) -> Run:
    return Run(start_ns, end_ns, program, (), in_order)


VALUES = two_branches().values
ONE = Program((product(0, 1, 5),), VALUES)
CHAIN = Program((product(0, 1, 5), product(5, 2, 6)), VALUES)
MATMUL = "pd_op.matmul"
DESCRIBED: dict[str, tuple[RecordedEvents, list[Run], list[str | None]]] = {
    "the order of the program is certain": (
        FOUR, [run(two_branches(), True)],
        ["[[4,6],[6,8]]", "[[4,8],[8,10]]", "[[4,6],[6,3]]", "[[4,3],[3,10]]"],
    ),
    "the order within a chain is certain": (
        events((MATMUL, 10), (MATMUL, 20)), [run(CHAIN, False)], ["[[4,6],[6,8]]", "[[4,8],[8,10]]"],
    ),
    "of operators that run at once, one began too early for the others": (
        events((MATMUL, 10, 20), (MATMUL, 12, 14), (MATMUL, 25, 30)),
        [run(Program((product(0, 1, 5), product(5, 2, 6), product(0, 3, 7)), VALUES), False)],
        [None, None, "[[4,8],[8,10]]"],
    ),
    "another number of operators gives no arguments": (
        events((MATMUL, 10), (MATMUL, 20), (MATMUL, 30)), [run(two_branches(), True)], [],
    ),
    "only operators within a run count": (
        events((MATMUL, 10), (MATMUL, 150), ("matmul", 160), (MATMUL, 300)),
        [run(ONE, True, 0, 100), run(ONE, True, 140, 155)],
        ["[[4,6],[6,8]]", "[[4,6],[6,8]]", None, None],
    ),
    "details of operators do not count": (events((MATMUL, 10), category="OperatorInner"), [run(ONE, True)], []),
    "runs at the same time give no arguments": (
        events((MATMUL, 10), (MATMUL, 60), (MATMUL, 130)),
        [run(ONE, True, 120, 140), run(ONE, True, 0, 50), run(ONE, True, 40, 100)],
        [None, None, "[[4,6],[6,8]]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_operators_get_the_arguments_of_the_program(name: str) -> None:
    recorded, runs, expected = DESCRIBED[name]
    found, quality = described(recorded, runs)
    assert shapes(found) == expected
    assert not quality or None in expected


def test_branches_that_may_run_in_any_order_are_unknown() -> None:
    found, quality = described(FOUR, [run(two_branches(), False)])
    assert shapes(found) == []
    assert [finding.code for finding in quality] == ["operators-without-shapes"]
    assert "4 matrix products" in str(quality[0].text)


def test_threads_run_random_programs() -> None:
    """Random programs on two threads: no operator gets the arguments of another one, and many get their own."""
    generator = np.random.default_rng(0)
    total = known = 0
    for _ in range(200):
        count = 12
        inputs = [
            sorted({int(generator.integers(-1, number)) for _ in range(int(generator.integers(1, 3)))})
            for number in range(count)
        ]
        names = [str(generator.choice(["relu", "tanh", "add"])) for _ in range(count)]
        values = tuple(Value((2 + int(generator.integers(0, 4)),), "float32") for _ in range(count + 1))
        program = Program(
            tuple(
                ProgramOperator(names[number], tuple(each + 1 for each in inputs[number]), (number + 1,))
                for number in range(count)
            ),
            values,
        )
        truth = [json.dumps([values[each + 1].sizes for each in one], separators=(",", ":")) for one in inputs]
        ended: dict[int, int] = {-1: 0}
        free, spans = [0, 0], []
        while len(ended) <= count:
            ready = [
                number for number in range(count) if number not in ended and all(e in ended for e in inputs[number])
            ]
            number, thread = int(generator.choice(ready)), int(free[1] < free[0])
            begin = max(free[thread], *(ended[each] for each in inputs[number])) + int(generator.integers(1, 4))
            free[thread] = ended[number] = begin + int(generator.integers(1, 9))
            spans.append((f"pd_op.{names[number]}", begin, ended[number], number))
        recorded = events(*(span[:3] for span in spans))
        given = shapes(described(recorded, [run(program, False, 0, 1000)])[0]) or [None] * count
        for found, (_, _, _, number) in zip(given, spans, strict=True):
            assert found in (None, truth[number])
            total, known = total + 1, known + (found is not None)
    assert known > total / 4


def test_the_order_that_a_program_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs of two names, with more operators than a byte has bits. Before an operator run the makers of its
    inputs, and the operators before these. The expected numbers are counted with sets."""
    generator = np.random.default_rng(1)
    count = 40
    for _ in range(20):
        sources = [{int(generator.integers(-1, number)) for _ in range(2)} - {-1} for number in range(count)]
        names = [str(generator.choice(["relu", "tanh"])) for _ in range(count)]
        operators = zip(names, sources, range(count), strict=True)
        order = order_of(Program(tuple(ProgramOperator(name, tuple(used), (n,)) for name, used, n in operators), ()))
        before: list[set[int]] = []
        for used in sources:
            before.append(used.union(*(before[source] for source in used)))
        after = [{later for later in range(count) if number in before[later]} for number in range(count)]
        for counts, expected in zip(order._counts, (before, after), strict=True):
            for column, name in enumerate(order.names):
                assert counts[:, column].tolist() == [sum(names[each] == name for each in one) for one in expected]
    chain = Program(tuple(ProgramOperator("relu", (n,), (n + 1,)) for n in range(count)), ())
    order, times = order_of(chain), {"relu": (np.arange(count), np.arange(count) + 1)}
    assert order.distinguished("relu", range(count), times) == list(range(count))
    monkeypatch.setattr(program_operators, "MOST_OPERATORS", count - 1)
    assert order.distinguished("relu", range(count), times) == [UNCERTAIN] * count


def test_the_order_is_counted_once_and_only_if_it_is_needed() -> None:
    program = two_branches()
    described(FOUR, [run(program, True)])
    assert "_counts" not in vars(order_of(program))
    described(FOUR, [run(program, False)])
    counts = order_of(program)._counts
    described(FOUR, [run(program, False)])
    assert order_of(program)._counts is counts


def test_operators_of_unknown_sizes_are_reported() -> None:
    values = (Value((-1, 6), "float32"), Value((6, 8), "float32"), Value((-1, 8), "float32"))
    program = Program((product(0, 1, 2),), values)
    found, quality = described(events(("pd_op.matmul", 10)), [run(program, True)])
    assert shapes(found) == []
    assert "fixed sizes" in str(quality[0].text)


def test_recorded_shapes_stay() -> None:
    recorded = events(("pd_op.matmul", 10), ("pd_op.matmul", 20))
    columns = recorded.columns.append_column("shapes", pa.array(["[[1,1],[1,1]]", None]).dictionary_encode())
    chain = Program((product(0, 1, 5), product(5, 2, 6)), two_branches().values)
    assert shapes(described(RecordedEvents(columns), [run(chain, True)])[0]) == ["[[1,1],[1,1]]", "[[4,8],[8,10]]"]
