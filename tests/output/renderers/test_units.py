"""Headings, units and numbers of columns, including columns without a declaration."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.compare.report import COLUMNS
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.table_columns import columns, without_units
from perfkit_core.trace.model.columns import CALLS, duration, size
from perfkit_core.trace.model.columns import heading as words_of


def shown(**values: object) -> list[tuple[str, tuple[str, ...]]]:
    return [(column.label, column.cells) for column in columns(pd.DataFrame(values))]


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


def test_the_unit_is_that_of_the_median() -> None:
    assert shown(a_ns=[1, 2_000_000, 3_000_000_000]) == [("A (ms)", ("<0.001", "2.000", "3,000.000"))]
    assert shown(bytes=[3 * 2**20, None]) == [("Size (MiB)", ("3.00", "-"))]
    assert shown(a_ratio=[0.12345, 1]) == [("A (%)", ("12.3", "100.0"))]
    assert shown(flops=[41_048_899_584], self_flops=[0]) == [
        ("FLOPs (GFLOP)", ("41.0",)),
        ("Self FLOPs (GFLOP)", ("0",)),
    ]
    assert shown(bytes_per_s=[2**30]) == [("Bandwidth (GiB/s)", ("1.00",))]


def test_columns_of_one_table_share_a_unit_where_that_reads_well() -> None:
    units = [heading for heading, _ in shown(a_ns=[5_000_000], b_ns=[500_000], c_ns=[7_000_000], d_ns=[50], e_ns=[0])]
    assert units == ["A (ms)", "B (ms)", "C (ms)", "D (ns)", "E (ms)"]


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
    found = [(column.label, column.cells[0]) for column in columns(pd.DataFrame(values), COLUMNS)]
    assert [float(cell) for _, cell in found] == pytest.approx([125.415, 2, 0.123, 0.028], rel=0.005)
    assert {heading.partition("(")[2] for heading, _ in found} == {"ms)"}


def test_a_column_that_would_be_lost_in_the_unit_of_the_others() -> None:
    assert shown(total_ns=[125_415_476, 90_000_000], min_ns=[280, 1_230], max_ns=[2_300, 20_000_000]) == [
        ("Total (ms)", ("125.4", "90.0")),
        ("Min (ns)", ("280", "1,230")),
        ("Max (ms)", ("0.002", "20.000")),
    ]


def test_columns_of_several_runs_have_one_unit() -> None:
    table = pd.DataFrame({"slow_ns": [2_135_840], "total paddle_ns": [125_415_476], "b_ns": [28_000]})
    runs = [
        duration(name, name.removesuffix("_ns"), quantity="run", heading="proper") for name in map(str, table.columns)
    ]
    found = [(column.label, column.cells) for column in columns(table, runs)]
    assert found == [("slow (ms)", ("2.136",)), ("total paddle (ms)", ("125.415",)), ("b (ms)", ("0.028",))]


def test_one_large_number_moves_its_quantity_to_a_larger_unit() -> None:
    assert shown(max_ns=[5_000, 6_000, 125_415_476], min_ns=[4_000, 5_000, 20_000_000]) == [
        ("Max (ms)", ("0.005", "0.006", "125.415")),
        ("Min (ms)", ("0.004", "0.005", "20.000")),
    ]


def test_sizes_and_times_of_a_place_are_told_apart() -> None:
    table = pd.DataFrame({"self_cpu_ns": [5], "self_cpu_ratio": [0.5], "self_cpu_bytes": [2**20]})
    headings = [column.label for column in columns(table, [size("self_cpu_bytes", "Self CPU memory")])]
    assert headings == ["Self CPU (ns)", "Self CPU (%)", "Self CPU memory (MiB)"]


def test_the_terms_of_a_difference_have_the_same_decimals() -> None:
    base, other, difference = [92_010_000, 17_110_000], [99_262_000, 20_586_000], [7_252_000, 3_476_000]
    values = {"base_ns": base, "other_ns": other, "difference_ns": difference, "base_calls": [53, 2],
              "other_calls": [53, 0.67], "max_ns": base}  # fmt: skip
    assert [(column.label, column.cells) for column in columns(pd.DataFrame(values), COLUMNS)] == [
        ("Base (ms)", ("92.01", "17.11")),
        ("Other (ms)", ("99.26", "20.59")),
        ("Difference (ms)", ("7.25", "3.48")),
        ("Base calls", ("53.00", "2.00")),
        ("Other calls", ("53.00", "0.67")),
        ("Max (ms)", ("92.0", "17.1")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ({"a_ratio": [0.0, 5e-7, -5e-7, 0.0001, 0.00004]}, ("0", "<0.01", ">-0.01", "0.01", "<0.01")),
        ({"a_bytes": [2**20, -31, 31, 2**11, 0]}, ("1.000", ">-0.001", "<0.001", "0.002", "0")),
    ],
)
def test_a_number_below_the_unit_is_not_zero_or_an_exponent(values: dict[str, object], cells: tuple[str, ...]) -> None:
    """The unit is MiB, like the unit of the column next to it."""
    table = shown(**values) if "a_ratio" in values else shown(**values, total_a_bytes=[2**30, *[2**21] * 4])
    assert table[0][1] == cells


def test_zero_is_not_unknown() -> None:
    assert shown(a_ns=pd.array([0, None, 5], "Int64")) == [("A (ns)", ("0", "-", "5"))]


def test_plain_numbers_are_separated_unless_they_name_a_thing() -> None:
    values = {"calls": [1234567], "factor": [1.23456], "line": pd.array([1234], "Int64"), "worst_step": [12345]}
    assert [(column.label, column.cells) for column in columns(pd.DataFrame(values), [CALLS])] == [
        ("Calls", ("1,234,567",)),
        ("Factor", ("1.23",)),
        ("Line", ("1234",)),
        ("Worst step", ("12345",)),
    ]


def test_a_unit_that_was_asked_for_has_the_decimals_it_needs() -> None:
    (column,) = columns(pd.DataFrame({"a_ns": [82_000, 1_686_000_000]}), unit="s")
    assert (column.label, column.cells) == ("A (s)", ("0.0000820", "1.6860000"))


def test_columns_without_values_are_left_out() -> None:
    assert shown(name=["a"], op_name=[None]) == [("Name", ("a",))]


@pytest.mark.parametrize("character", ["\x1b", "\n", "\x00", "\u202e", "\u2066", "\u2028", "\x85", "\u200f"])
def test_control_characters_are_escaped(character: str) -> None:
    assert visible(f"a{character}b").isprintable()


def test_other_languages_are_left_alone() -> None:
    assert visible("核 ядро µs é") == "核 ядро µs é"


def test_a_message_has_a_size_and_is_no_memory() -> None:
    sizes = [size("message_bytes", "Message", heading="size"), size("allocated_bytes", "Allocated")]
    assert without_units(sizes, []) == ["Message size", "Allocated memory"]
