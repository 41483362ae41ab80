"""Headings, units and numbers are told by a column's name and its magnitudes."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import columns
from perfkit_core.renderers.headings import label, without_units


def shown(**values: object) -> list[tuple[str, tuple[str, ...]]]:
    return [(column.label, column.cells) for column in columns(pd.DataFrame(values))]


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("self_cpu_ns", "Self CPU"), ("total_bytes", "Total"), ("bytes", "Size"), ("ratio", "Share"),
        ("dur_ns", "Duration"), ("self_cpu_bytes", "Self CPU memory"), ("allocated_bytes", "Allocated"),
        ("bytes_per_s", "Bandwidth"), ("flops", "FLOPs"), ("self_flops", "Self FLOPs"), ("op_name", "Op name"),
        ("calls", "Calls"), ("columns", "Columns"), ("occurrence", "Operators"),
    ],
)  # fmt: skip
def test_headings(name: str, heading: str) -> None:
    assert label(name) == heading


def test_the_unit_is_that_of_the_median() -> None:
    assert shown(a_ns=[1, 2_000_000, 3_000_000_000]) == [("A (ms)", ("0.000001", "2.000", "3000.000"))]
    assert shown(bytes=[3 * 2**20, None]) == [("Size (MiB)", ("3.000", "-"))]
    assert shown(a_ratio=[0.12345, 1]) == [("A (%)", ("12.35", "100.00"))]
    assert shown(flops=[41_048_899_584], self_flops=[0]) == [
        ("FLOPs (GFLOP)", ("41.049",)),
        ("Self FLOPs (GFLOP)", ("0",)),
    ]
    assert shown(bytes_per_s=[2**30]) == [("Bandwidth (GiB/s)", ("1.000",))]


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
def test_what_compares_has_one_unit_that_of_the_larger(names: tuple[str, ...]) -> None:
    values = dict(zip(names, ([125_415_476], [2_000_000], [1_230], [280]), strict=True))
    assert [cells for _, (cells,) in shown(**values)] == ["125.415", "2.000", "0.00123", "0.000280"]
    assert {heading.partition("(")[2] for heading, _ in shown(**values)} == {"ms)"}


def test_columns_of_several_runs_have_one_unit() -> None:
    table = pd.DataFrame({"slow_ns": [2_135_840], "total paddle_ns": [125_415_476], "b_ns": [280]})
    headings = {str(name): str(name).removesuffix("_ns") for name in table.columns}
    found = [(column.label, column.cells) for column in columns(table, headings=headings)]
    assert found == [("slow (ms)", ("2.136",)), ("total paddle (ms)", ("125.415",)), ("b (ms)", ("0.000280",))]


def test_one_large_number_moves_its_quantity_to_a_larger_unit() -> None:
    assert shown(max_ns=[5_000, 6_000, 125_415_476], min_ns=[1, 2, 3]) == [
        ("Max (ms)", ("0.00500", "0.00600", "125.415")),
        ("Min (ms)", ("0.000001", "0.000002", "0.000003")),
    ]


def test_sizes_and_times_of_a_place_are_told_apart() -> None:
    headings = [heading for heading, _ in shown(self_cpu_ns=[5], self_cpu_ratio=[0.5], self_cpu_bytes=[2**20])]
    assert headings == ["Self CPU (ns)", "Self CPU (%)", "Self CPU memory (MiB)"]


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ({"a_ratio": [0.0, 5e-7, -5e-7, 0.0001, 0.00004]}, ("0", "<0.01", ">-0.01", "0.01", "<0.01")),
        ({"a_bytes": [2**20, -31, 31, 2**11, 0]}, ("1.000", ">-0.001", "<0.001", "0.002", "0")),
    ],
)
def test_a_number_below_the_unit_is_not_zero_or_an_exponent(values: dict[str, object], cells: tuple[str, ...]) -> None:
    """Bytes in MiB: the median of 31, 31, 2 KiB and 1 MiB is about 1 KiB, but 1 MiB reads as 1024 KiB."""
    table = shown(**values) if "a_ratio" in values else shown(**values, total_a_bytes=[2**30, *[2**21] * 4])
    assert table[0][1] == cells


def test_zero_is_not_unknown() -> None:
    assert shown(a_ns=pd.array([0, None, 5], "Int64")) == [("A (ns)", ("0", "-", "5"))]


def test_plain_numbers_stay_as_they_are() -> None:
    assert shown(calls=[1234567], factor=[1.23456], step=pd.array([7], "Int64")) == [
        ("Calls", ("1234567",)),
        ("Factor", ("1.235",)),
        ("Step", ("7",)),
    ]


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    assert shown(name=["a"], op_name=[None]) == [("Name", ("a",))]


@pytest.mark.parametrize("character", ["\x1b", "\n", "\x00", "\u202e", "\u2066", "\u2028", "\x85", "\u200f"])
def test_characters_that_steer_are_written_out(character: str) -> None:
    assert visible(f"a{character}b").isprintable()


def test_other_languages_are_left_alone() -> None:
    assert visible("核 ядро µs é") == "核 ядро µs é"


def test_a_message_has_a_size_and_is_no_memory() -> None:
    assert without_units(["message_bytes", "allocated_bytes"], []) == ["Message size", "Allocated memory"]
