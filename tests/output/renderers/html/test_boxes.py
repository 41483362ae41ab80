"""The drawn rows of a tree and their sizes, compared with values worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.renderers.html import charts
from perfkit_core.trace.model.report_data import Chart, Section

CHART = Chart("icicle", "name", ("total_cpu_ns", "total_device_ns"))


def tree(*rows: tuple[int, str, int, int | None]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["depth", "name", "total_cpu_ns", "total_device_ns"])
    return table.astype({"total_device_ns": "Int64"})


def drawing(*rows: tuple[int, str, int, int | None]) -> tuple[Section, Chart]:
    return Section("tree", "Tree", tree(*rows), chart=CHART), CHART


def test_boxes_have_the_sizes_of_the_table() -> None:
    drawn = charts.hierarchy(*drawing((0, "a", 90, None), (1, "b", 50, 4), (1, "c", 30, None), (0, "d", 7, 1)))
    assert drawn is not None
    assert drawn["labels"] == ["a", "b", "c", "d"]
    assert drawn["parents"] == [-1, 0, 0, -1]
    assert drawn["unit"] == "ns"
    cpu, device = drawn["weights"]
    assert cpu["sizes"] == cpu["values"] == [90, 50, 30, 7]
    assert device["values"] == [0, 4, 0, 1]
    assert device["sizes"] == [4, 4, 0, 1], "no box is less than what is inside"


def test_an_empty_weight_is_not_offered() -> None:
    drawn = charts.hierarchy(*drawing((0, "a", 90, None), (1, "b", 50, 0)))
    assert drawn is not None
    assert [weight["name"] for weight in drawn["weights"]] == ["Total CPU"]
    assert charts.hierarchy(*drawing((0, "a", 0, None))) is None


def test_of_many_rows_the_largest_are_drawn_with_all_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MOST_NODES", 3)
    rows = [(0, "a", 100, 0), (1, "small", 1, 0), (1, "b", 60, 0), (2, "c", 55, 0), (2, "tiny", 2, 0), (0, "d", 5, 0)]
    drawn = charts.hierarchy(*drawing(*rows))
    assert drawn is not None
    assert (drawn["labels"], drawn["parents"], drawn["left_out"]) == (["a", "b", "c"], [-1, 0, 1], 3)
