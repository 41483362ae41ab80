"""Headings, units and numbers of columns, including columns without a declaration."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest

from perfkit_core.compare.report import COLUMNS
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.table_columns import columns, without_units
from perfkit_core.trace.model.columns import CALLS, Column, duration, size
from perfkit_core.trace.model.columns import heading as words_of
from tests.support.golden import check_golden

RUNS = {"slow_ns": [2_135_840], "total paddle_ns": [125_415_476], "b_ns": [28_000]}
TABLES: dict[str, tuple[dict[str, Sequence[object]], Sequence[Column]]] = {
    "the unit is that of the median": ({"a_ns": [1, 2_000_000, 3_000_000_000]}, ()),
    "sizes": ({"bytes": [3 * 2**20, None]}, ()),
    "shares": ({"a_ratio": [0.12345, 1]}, ()),
    "operations": ({"flops": [41_048_899_584], "self_flops": [0]}, ()),
    "rates": ({"bytes_per_s": [2**30]}, ()),
    "columns share a unit where that reads well": (
        {"a_ns": [5_000_000], "b_ns": [500_000], "c_ns": [7_000_000], "d_ns": [50], "e_ns": [0]}, (),
    ),
    "a column that would be lost in the unit of the others": (
        {"total_ns": [125_415_476, 90_000_000], "min_ns": [280, 1_230], "max_ns": [2_300, 20_000_000]}, (),
    ),
    "one large number moves its quantity to a larger unit": (
        {"max_ns": [5_000, 6_000, 125_415_476], "min_ns": [4_000, 5_000, 20_000_000]}, (),
    ),
    "columns of several runs have one unit": (
        RUNS, [duration(name, name.removesuffix("_ns"), quantity="run", heading="proper") for name in RUNS],
    ),
    "sizes and times of a place": (
        {"self_cpu_ns": [5], "self_cpu_ratio": [0.5], "self_cpu_bytes": [2**20]},
        [size("self_cpu_bytes", "Self CPU memory")],
    ),
    "the terms of a difference have the same decimals": (
        {"base_ns": [92_010_000, 17_110_000], "other_ns": [99_262_000, 20_586_000],
         "difference_ns": [7_252_000, 3_476_000], "base_calls": [53, 2], "other_calls": [53, 0.67],
         "max_ns": [92_010_000, 17_110_000]}, COLUMNS,
    ),
    "a share below the unit is not zero or an exponent": ({"a_ratio": [0.0, 5e-7, -5e-7, 0.0001, 0.00004]}, ()),
    "a size below the unit of the column next to it": (
        {"a_bytes": [2**20, -31, 31, 2**11, 0], "total_a_bytes": [2**30, *[2**21] * 4]}, (),
    ),
    "zero is not unknown": ({"a_ns": pd.array([0, None, 5], "Int64")}, ()),
    "plain numbers are separated unless they name a thing": (
        {"calls": [1234567], "factor": [1.23456], "line": pd.array([1234], "Int64"), "worst_step": [12345]}, [CALLS],
    ),
    "columns without values are left out": ({"name": ["a"], "op_name": [None]}, ()),
}  # fmt: skip


def test_units_and_cells_are_the_golden_ones() -> None:
    lines = []
    for title, (values, declared) in TABLES.items():
        lines.append(f"# {title}")
        lines += [f"{name} = {', '.join(map(str, cells))}" for name, cells in values.items()]
        lines += [f"  {each.label}: {'  '.join(each.cells)}" for each in columns(pd.DataFrame(values), declared)]
    check_golden("output/units.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("self_cpu_ns", "Self CPU"), ("total_bytes", "Total"), ("bytes", "Size"), ("ratio", "Share"),
        ("dur_ns", "Duration"), ("self_cpu_bytes", "Self CPU"), ("allocated_bytes", "Allocated"),
        ("bytes_per_s", "Bandwidth"), ("flops", "FLOPs"), ("self_flops", "Self FLOPs"), ("op_name", "Op name"),
        ("calls", "Calls"), ("columns", "Columns"),
    ],
)  # fmt: skip
def test_headings(name: str, heading: str) -> None:
    assert words_of(name) == heading


@pytest.mark.parametrize(
    "names",
    [
        ("total_cpu_ns", "avg_cpu_ns", "min_cpu_ns", "self_cpu_ns"),
        ("max_ns", "avg_ns", "min_ns", "total_ns"),
        ("base_cpu_ns", "other_cpu_ns", "difference_cpu_ns", "self_cpu_ns"),
        ("base_ns", "difference_ns", "count_effect_ns", "per_call_effect_ns"),
        ("time_so_far_ns", "difference_ns", "other_ns", "total_ns"),
        ("difference_ns", "low_ns", "high_ns", "noise_ns"),
        ("dur_ns", "median_ns", "min_ns", "max_ns"),
    ],
)
def test_compared_columns_share_the_unit_of_the_larger(names: tuple[str, ...]) -> None:
    values = dict(zip(names, ([125_415_476], [2_000_000], [123_000], [28_000]), strict=True))
    shown = [(column.label, column.cells[0]) for column in columns(pd.DataFrame(values), COLUMNS)]
    assert [float(cell) for _, cell in shown] == pytest.approx([125.415, 2, 0.123, 0.028], rel=0.005)
    assert {heading.partition("(")[2] for heading, _ in shown} == {"ms)"}


def test_a_unit_that_was_asked_for_has_the_decimals_it_needs() -> None:
    (column,) = columns(pd.DataFrame({"a_ns": [82_000, 1_686_000_000]}), unit="s")
    assert (column.label, column.cells) == ("A (s)", ("0.0000820", "1.6860000"))


@pytest.mark.parametrize("character", ["\x1b", "\n", "\x00", "\u202e", "\u2066", "\u2028", "\x85", "\u200f"])
def test_control_characters_are_escaped(character: str) -> None:
    assert visible(f"a{character}b").isprintable()


def test_other_languages_are_left_alone() -> None:
    assert visible("核 ядро µs é") == "核 ядро µs é"


def test_a_message_has_a_size_and_is_no_memory() -> None:
    sizes = [size("message_bytes", "Message", heading="size"), size("allocated_bytes", "Allocated")]
    assert without_units(sizes, []) == ["Message size", "Allocated memory"]
