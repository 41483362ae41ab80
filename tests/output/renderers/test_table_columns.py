"""Bars in table cells show shares, or else times or sizes relative to the largest value of the column."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit_core.output.renderers.table_columns import columns
from perfkit_core.trace.model.columns import START


def bars(table: dict[str, list[object]]) -> dict[str, tuple[float | None, ...]]:
    return {column.name: column.shares for column in columns(pd.DataFrame(table), [START]) if column.shares is not None}


def test_shares_are_of_the_whole_and_the_only_bars() -> None:
    table = {"name": ["a", "b", "c"], "total_ns": [1, 3, 4], "ratio": [0.125, 0.375, 0.5]}
    assert bars(table) == {"ratio": (0.125, 0.375, 0.5)}


def test_without_shares_bars_relate_times_to_the_largest() -> None:
    table = {"step": [0, 1, 2], "bytes": [9, 1, 1], "start_ns": [0, 5, 9], "dur_ns": [2, 4, None], "x_ns": [1, 2, 3]}
    assert bars(table) == {"dur_ns": (0.5, 1.0, None)}


def test_without_times_sizes_are() -> None:
    assert bars({"name": ["a", "b", "c"], "calls": [1, 2, 3], "bytes": [2, 8, 0]}) == {"bytes": (0.25, 1.0, 0.0)}


@pytest.mark.parametrize("values", [[1, 2], [3, 3, 3], [-1, 0, 1], [0, 0, 0]])
def test_what_cannot_be_compared_has_none(values: list[object]) -> None:
    assert bars({"dur_ns": values}) == {}
