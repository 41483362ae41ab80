"""Recorded operators and operators of programs: order, numbers and times, on programs made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.assembly.draft import Recorded
from perfkit_paddle.program_operators import Run, Unknown, arguments, described, in_turn
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


def events(*operators: tuple[str, int], category: str = "Operator") -> Recorded:
    names, starts = zip(*operators, strict=True)
    columns = {"name": pa.array(names).dictionary_encode(), "category": pa.array([category] * len(names))}
    return Recorded(pa.table(columns | {"start_ns": pa.array(starts, pa.int64())}))


def shapes(recorded: Recorded) -> list[Any]:
    return recorded.columns["shapes"].to_pylist() if "shapes" in recorded.columns.column_names else []


FOUR = events(("pd_op.matmul", 10), ("pd_op.matmul", 20), ("pd_op.matmul", 30), ("pd_op.matmul", 40))


def run(program: Program, in_order: bool, start_ns: int = 0, end_ns: int = 100) -> Run:
    return Run(start_ns, end_ns, program, (), in_order)


def test_operators_in_the_order_of_the_program() -> None:
    found, quality = described(FOUR, [run(two_branches(), True)])
    assert shapes(found) == ["[[4,6],[6,8]]", "[[4,8],[8,10]]", "[[4,6],[6,3]]", "[[4,3],[3,10]]"]
    assert not quality


def test_branches_that_may_run_in_any_order_are_unknown() -> None:
    found, quality = described(FOUR, [run(two_branches(), False)])
    assert shapes(found) == []
    assert [finding.code for finding in quality] == ["operators-without-shapes"]
    assert "4 matrix products" in str(quality[0].text)


def test_the_order_within_a_chain_is_certain() -> None:
    chain = Program((product(0, 1, 5), product(5, 2, 6)), two_branches().values)
    found, quality = described(events(("pd_op.matmul", 10), ("pd_op.matmul", 20)), [run(chain, False)])
    assert shapes(found) == ["[[4,6],[6,8]]", "[[4,8],[8,10]]"]
    assert not quality


@pytest.mark.parametrize("later", [False, True])
def test_equal_operators_need_no_order(later: bool) -> None:
    """Two equal products, and one that needs both (or neither)."""
    values = tuple(Value(shape, "float32") for shape in [(4, 6), (6, 6), (6, 6), (4, 6), (4, 6), (4, 4)])
    last = ProgramOperator("matmul", (3, 4) if later else (0, 0), (5,), {"transpose_x": False, "transpose_y": True})
    program = Program((product(0, 1, 3), product(0, 2, 4), last), values)
    turns = in_turn(program, arguments(program, {}), False)["matmul"]
    given = [turn if isinstance(turn, Unknown) else turn.shapes for turn in turns]
    known = ["[[4,6],[6,6]]", "[[4,6],[6,6]]", "[[4,6],[4,6]]"]
    assert given == (known if later else [Unknown.ORDER] * 3)


def test_certain_orders_are_those_of_all_possible_orders() -> None:
    """On random programs of single inputs: an operator is certain if all orders have it at the same place."""
    generator = np.random.default_rng(0)
    for _ in range(60):
        count = 6
        makers = [int(generator.integers(-1, number)) for number in range(count)]
        names = [str(generator.choice(["relu", "tanh"])) for _ in range(count)]
        values = tuple(Value((2 + number,), "float32") for number in range(count + 1))
        operators = tuple(
            ProgramOperator(names[number], (makers[number] + 1,), (number + 1,)) for number in range(count)
        )
        program = Program(operators, values)
        turns = in_turn(program, arguments(program, {}), False)
        for name in set(names):
            places = [number for number in range(count) if names[number] == name]
            at: list[set[int]] = [set() for _ in places]
            for order in orders(makers, []):
                for place, number in enumerate([number for number in order if names[number] == name]):
                    at[place].add(makers[number])
            for place, turn in enumerate(turns[name]):
                assert isinstance(turn, Unknown) or len(at[place]) == 1


def orders(makers: list[int], done: list[int]) -> Any:
    if len(done) == len(makers):
        yield done
    for number, maker in enumerate(makers):
        if number not in done and (maker < 0 or maker in done):
            yield from orders(makers, [*done, number])


def test_another_number_of_operators_gives_no_arguments() -> None:
    three = events(("pd_op.matmul", 10), ("pd_op.matmul", 20), ("pd_op.matmul", 30))
    found, quality = described(three, [run(two_branches(), True)])
    assert (shapes(found), quality) == ([], ())


def test_only_operators_within_a_run_count() -> None:
    program = Program((product(0, 1, 5),), two_branches().values)
    recorded = events(("pd_op.matmul", 10), ("pd_op.matmul", 150), ("matmul", 160), ("pd_op.matmul", 300))
    runs = [run(program, True, 0, 100), run(program, True, 140, 155)]
    assert shapes(described(recorded, runs)[0]) == ["[[4,6],[6,8]]", "[[4,6],[6,8]]", None, None]
    details = events(("pd_op.matmul", 10), category="OperatorInner")
    assert shapes(described(details, runs)[0]) == []


def test_runs_at_the_same_time_give_no_arguments() -> None:
    program = Program((product(0, 1, 5),), two_branches().values)
    recorded = events(("pd_op.matmul", 10), ("pd_op.matmul", 60), ("pd_op.matmul", 130))
    runs = [run(program, True, 120, 140), run(program, True, 0, 50), run(program, True, 40, 100)]
    assert shapes(described(recorded, runs)[0]) == [None, None, "[[4,6],[6,8]]"]


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
    assert shapes(described(Recorded(columns), [run(chain, True)])[0]) == ["[[1,1],[1,1]]", "[[4,8],[8,10]]"]
