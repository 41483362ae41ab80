"""The sentences on the memory at the peak, computed from the table of the view."""

from __future__ import annotations

import pandas as pd

from perfkit_core.output.report.headline import alive_at_peak
from tests.support.rendered import rendered


def rows(*cells: tuple[int | None, str, str, int, float]) -> pd.DataFrame:
    table = pd.DataFrame(cells, columns=["rank", "device", "name", "bytes", "ratio"])
    return table.astype({"rank": "Int64"})


def test_the_largest_of_the_fullest_device_come_first() -> None:
    table = rows(
        (None, "cpu", "fw::empty", 10, 1.0), (None, "cuda:0", "fw::linear", 700, 0.7),
        (None, "cuda:0", "fw::relu", 295, 0.295), (None, "cuda:0", "fw::tiny", 5, 0.005),
    )  # fmt: skip
    assert list(rendered(alive_at_peak(table))) == [
        "Memory at the peak of cuda:0: fw::linear 70%, fw::relu 29.5%.",
        "Memory at the peak of cpu: fw::empty 100%.",
    ]


def test_ranks_are_told_apart() -> None:
    table = rows((0, "cuda:0", "a", 10, 1.0), (1, "cuda:0", "b", 20, 1.0))
    assert list(rendered(alive_at_peak(table))) == [
        "Memory at the peak of rank 1, cuda:0: b 100%.",
        "Memory at the peak of rank 0, cuda:0: a 100%.",
    ]


def test_without_memory_there_are_no_sentences() -> None:
    assert list(rendered(alive_at_peak(rows()))) == []
