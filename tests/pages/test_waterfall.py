"""Test of the waterfall chart of a comparison in a browser: its bars lead from the base to the other step time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from perfkit_core.compare.report import COLUMNS
from perfkit_core.trace.model.report_data import Chart, Section

TABLE = pd.DataFrame(
    {
        "name": ["base", "<b>matmul</b>", "copy", "other"],
        "difference_ns": pd.array([pd.NA, 200_000, -50_000, pd.NA], "Int64"),
        "time_so_far_ns": [1_000_000, 1_200_000, 1_150_000, 1_150_000],
    }
)
_LEVELS = "chart => chart.calcdata[0].map((bar) => [bar.s1, Boolean(bar.isSum)])"


def test_bars_lead_from_total_to_total(show_page: Callable[..., Any]) -> None:
    chart = Chart("waterfall", "name", ("difference_ns", "time_so_far_ns"))
    section = Section("waterfall", "From base to other", TABLE, chart=chart, columns=COLUMNS)
    page = show_page(section, ready=".chart")
    assert page.locator(".chart .waterfalllayer .point").count() == 4
    assert page.locator(".chart b").count() == 0
    drawn = page.eval_on_selector(".chart", _LEVELS)
    assert [round(level[0], 6) for level in drawn] == [1, 1.2, 1.15, 1.15]
    assert [level[1] for level in drawn] == [True, False, False, True]
    texts = page.locator(".chart .waterfalllayer .point text").all_text_contents()
    assert texts == ["1.00", "+0.200", "-0.0500", "1.15"]
    low, high = page.eval_on_selector(".chart", "chart => chart._fullLayout.xaxis.range")
    assert 0 < low < 1
    assert high > 1.2
