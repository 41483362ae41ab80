"""Tests of the heat map of ranks in a browser: it shows the numbers of the table, and marks the stragglers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.cli.main import main
from perfkit_core.output.report.pictures import with_ranks
from perfkit_core.trace.model.report_data import Section


@pytest.fixture
def show(show_page: Callable[..., Any]) -> Callable[[int, int], Any]:
    """Return a function that opens a page with a number of ranks and steps. Steps take 1.3 ms on rank 1, and 1 ms on
    the other ranks."""

    def show(ranks: int, steps: int) -> Any:
        rank, step = np.repeat(np.arange(ranks), steps), np.tile(np.arange(steps), ranks)
        own = np.where(rank == 1, 1_300_000, 1_000_000) + step
        table = pd.DataFrame({"rank": rank, "step": step, "dur_ns": 2_000_000, "dur_over_median_ns": 0})
        table = table.assign(own_time_ns=own, own_time_over_median_ns=own - 1_000_000 - step, device_compute_ns=own)
        table = table.assign(exposed_communication_ns=2_000_000 - own)
        return show_page(with_ranks(Section("ranks", "Ranks side by side", table), {}), ready=".chart")

    return show


def _rows(page: Any) -> Any:
    return page.locator(".chart .yaxislayer-above text")


def test_a_real_job_names_and_marks_its_straggler(opened: Callable[[Path], Any], traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    files = sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))
    assert main(["report", *map(str, files), "--workers", "2", "-o", str(file)]) == 0
    page = opened(file)
    section = page.locator("section", has=page.locator("h2", has_text="Ranks side by side"))
    section.scroll_into_view_if_needed()
    expect(section.locator(".line").first).to_contain_text("Rank 7 keeps the other ranks waiting")
    expect(_rows(section)).to_have_text(["0", "1", "2", "3", "4", "5", "6", "▶ 7"])
    expect(section.locator(".chart .hm image")).to_have_count(1)
    cells = section.locator(".chart .heatmap-label").all_text_contents()
    assert "11.1" in cells, "exposed communication of rank 1: 11.056 ms"


def test_the_number_of_the_map_is_chosen(show: Callable[..., Any]) -> None:
    page = show(4, 3)
    expect(page.locator(".chart .heatmap-label")).to_have_text(["1.00"] * 3 + ["1.30"] * 3 + ["1.00"] * 6)
    page.get_by_label("numbers shown").select_option("Exposed communication")
    expect(page.locator(".chart .heatmap-label")).to_have_text(["1,000"] * 3 + ["700"] * 3 + ["1,000"] * 6)


def test_tooltips_show_rank_step_and_time(show: Callable[..., Any]) -> None:
    page = show(2, 2)
    box = page.locator(".chart .hm image").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.75)
    page.mouse.move(box["x"] + box["width"] * 0.75 + 2, box["y"] + box["height"] * 0.75)
    expect(page.locator(".chart .hoverlayer")).to_contain_text("Rank 1, Step 1")


@pytest.mark.parametrize(("ranks", "steps"), [(64, 100), (1000, 3)])
def test_many_ranks_fit_and_the_slow_one_is_named(show: Callable[..., Any], ranks: int, steps: int) -> None:
    page = show(ranks, steps)
    expect(page.locator(".line")).to_have_count(1)
    expect(page.locator(".line")).to_contain_text("Rank 1 is slower than the other ranks")
    labels = _rows(page).all_text_contents()
    assert "▶ 1" in labels
    assert len(labels) <= 34
    assert page.locator(".chart").evaluate("(chart) => chart.clientHeight") <= 900
    assert page.evaluate("document.documentElement.scrollWidth") <= 1300
