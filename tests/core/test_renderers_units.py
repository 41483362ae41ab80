"""Headings, units and numbers are told by a column's name and its magnitudes."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.renderers.units import columns, label, visible


def shown(**values: object) -> list[tuple[str, tuple[str, ...]]]:
    return [(column.label, column.cells) for column in columns(pd.DataFrame(values))]


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("self_cpu_ns", "Self CPU"), ("total_bytes", "Total"), ("bytes", "Size"), ("ratio", "Share"),
        ("dur_ns", "Duration"),
        ("bytes_per_s", "Bandwidth"), ("op_name", "Op name"), ("calls", "Calls"), ("columns", "Columns"),
    ],
)  # fmt: skip
def test_headings(name: str, heading: str) -> None:
    assert label(name) == heading


def test_the_unit_is_that_of_the_median() -> None:
    assert shown(a_ns=[1, 2_000_000, 3_000_000_000]) == [("A (ms)", ("1e-06", "2.000", "3000.000"))]
    assert shown(bytes=[3 * 2**20, None]) == [("Size (MiB)", ("3.000", "-"))]
    assert shown(a_ratio=[0.12345, 1]) == [("A (%)", ("12.35", "100.00"))]
    assert shown(bytes_per_s=[2**30]) == [("Bandwidth (GiB/s)", ("1.000",))]


def test_columns_of_one_table_share_a_unit_where_that_reads_well() -> None:
    units = [heading for heading, _ in shown(a_ns=[5_000_000], b_ns=[500_000], c_ns=[7_000_000], d_ns=[50], e_ns=[0])]
    assert units == ["A (ms)", "B (ms)", "C (ms)", "D (ns)", "E (ms)"] or units[3:] == ["D (ns)", "E (µs)"]


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
