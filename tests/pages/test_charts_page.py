"""Pictures as a reader uses them: they are drawn, open by a click, change their sizes by choice; names are text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

import perfkit_core
from perfkit_core.renderers.html import render
from perfkit_core.report.model import Chart, Report, Section, Source
from perfkit_core.report.page import run_report

HOSTILE = "<b>bold</b></script><img src=x onerror=1>"
TREE = pd.DataFrame(
    {
        "depth": [0, 1, 1, 0],
        "name": ["model", HOSTILE, "inner linear", "loader"],
        "total_cpu_ns": [9_000_000, 5_000_000, 3_000_000, 4_000_000],
        "total_device_ns": [1_000_000, 0, 1_000_000, 0],
    }
)
SIZES = ("total_cpu_ns", "total_device_ns")


@pytest.fixture
def show(opened: Callable[[Path], Any], tmp_path: Path) -> Callable[[Chart, pd.DataFrame], Any]:
    def show(chart: Chart, table: pd.DataFrame) -> Any:
        file = tmp_path / "page.html"
        section = Section("s", "Layers", table, chart=chart)
        file.write_text(render(Report("Report", (Source("run", "run"),), (section,))), encoding="utf-8")
        page = opened(file)
        page.wait_for_selector(".chart[data-ready]")
        return page

    return show


@pytest.mark.parametrize("kind", ["icicle", "sunburst"])
def test_a_click_opens_a_box_and_names_are_text(show: Callable[..., Any], kind: str) -> None:
    page = show(Chart(kind, "name", SIZES), TREE)
    expect(page.locator(".chart .slice", has_text="loader")).to_have_count(1)
    assert page.locator(".chart b, .chart img").count() == 0
    page.locator(".chart .slice", has_text="model").locator("path").first.click()
    expect(page.locator(".chart .slice", has_text="loader")).to_have_count(0)


def test_the_size_of_boxes_is_chosen(show: Callable[..., Any]) -> None:
    page = show(Chart("icicle", "name", SIZES), TREE)
    expect(page.locator(".chart .slice", has_text="loader")).to_have_count(1)
    page.get_by_label("size of the boxes").select_option("Total device")
    expect(page.locator(".chart .slice", has_text="loader")).to_have_count(0)


def test_finding_colours_the_boxes_of_a_name(show: Callable[..., Any]) -> None:
    page = show(Chart("icicle", "name", SIZES), TREE)
    box = page.locator(".chart .slice", has_text="inner linear").locator("path").first
    before = box.evaluate("(path) => path.style.fill")
    page.get_by_label("colour the boxes of this name").fill("LINEAR")
    expect(box).not_to_have_css("fill", before)


def test_a_ranking_has_the_largest_first(show: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": [f"kernel {i}" for i in range(40)], "total_device_ns": [i * 1000 for i in range(40)]})
    page = show(Chart("ranking", "name", ("total_device_ns",)), table)
    labels = page.locator(".chart .yaxislayer-above text").all_text_contents()
    assert labels == [f"kernel {i}" for i in range(39, 24, -1)]


def test_shares_are_of_the_whole(show: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": ["compute", "idle", "none"], "total_ns": [750, 250, 0]})
    page = show(Chart("share", "name", ("total_ns",)), table)
    assert page.locator(".chart .bartext").all_text_contents() == ["75 %", "25 %"]


@pytest.mark.parametrize("file", ["torch/h100-vit.json.gz", "paddle/cpu-3.3.1/cnn_small/cycle0.pb"])
def test_every_picture_of_a_real_report_is_drawn(
    opened: Callable[[Path], Any], traces: Path, tmp_path: Path, file: str
) -> None:
    page_file = tmp_path / "page.html"
    page_file.write_text(render(run_report(perfkit_core.load(traces / file))), encoding="utf-8")
    page = opened(page_file)
    charts = page.locator(".chart")
    assert charts.count() >= 4
    for index in range(charts.count()):
        charts.nth(index).scroll_into_view_if_needed()
        expect(charts.nth(index).locator(".main-svg").first).to_be_visible()
