"""Tests of charts in a browser: they are drawn, open with a click, and show the selected size; names are text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.trace.model.report_data import Chart, Section

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
def show(show_page: Callable[..., Any]) -> Callable[[Chart, pd.DataFrame], Any]:
    return lambda chart, table: show_page(Section("s", "Layers", table, chart=chart), ready=".chart")


def test_a_chart_is_as_wide_as_its_place(show: Callable[..., Any]) -> None:
    """A chart follows its place also if only the place changes, not the window."""
    page = show(Chart("icicle", "name", SIZES), TREE)
    page.locator("main").evaluate("(main) => { main.style.width = '500px'; }")
    width = page.locator(".chart").evaluate("(chart) => chart.clientWidth")
    assert width <= 500
    expect(page.locator(".chart .main-svg").first).to_have_attribute("width", str(width))


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
    page.get_by_label("highlight boxes whose name contains this text").fill("LINEAR")
    expect(box).not_to_have_css("fill", before)


def test_a_ranking_has_the_largest_first(show: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": [f"kernel {i}" for i in range(40)], "total_device_ns": [i * 1000 for i in range(40)]})
    page = show(Chart("ranking", "name", ("total_device_ns",)), table)
    labels = page.locator(".chart .yaxislayer-above text").all_text_contents()
    assert labels == [f"kernel {i}" for i in range(39, 24, -1)]


def test_shares_are_of_the_whole(show: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": ["compute", "idle", "none"], "total_ns": [750, 250, 0]})
    page = show(Chart("share", "name", ("total_ns",)), table)
    assert page.locator(".chart .bartext").all_text_contents() == ["75%", "25%"]


FAMILIES = pd.DataFrame(
    {
        "depth": [0, 1, 1, 0, 1],
        "name": ["matmul", HOSTILE, "fw::linear", "copy", "fw::to"],
        "device_ns": [9_000_000, 6_000_000, 3_000_000, 4_000_000, 4_000_000],
        "self_cpu_ns": [1_000_000, 0, 1_000_000, 2_000_000, 2_000_000],
    }
)


def _bars(page: Any) -> Any:
    return page.locator(".chart .yaxislayer-above text")


def _click_first_bar(page: Any) -> None:
    box = page.locator(".chart .bars .point path").first.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + 21, box["y"] + box["height"] / 2)


def test_a_click_on_the_bar_of_a_family_opens_its_operators(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns", "self_cpu_ns")), FAMILIES)
    expect(_bars(page)).to_have_text(["matmul", "copy"])
    _click_first_bar(page)
    expect(_bars(page)).to_have_text([HOSTILE, "fw::linear"])
    assert page.locator(".chart b, .chart img").count() == 0
    _click_first_bar(page)
    expect(_bars(page)).to_have_text([HOSTILE, "fw::linear"])
    page.get_by_role("button", name="Back").click()
    expect(_bars(page)).to_have_text(["matmul", "copy"])
    expect(page.get_by_role("button", name="Back")).to_be_disabled()


def test_families_open_by_keys(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns", "self_cpu_ns")), FAMILIES)
    opener = page.get_by_label("open", exact=True)
    assert opener.locator("option").all_text_contents() == ["all", "matmul", "copy"]
    opener.focus()
    page.keyboard.press("ArrowDown")
    expect(_bars(page)).to_have_text([HOSTILE, "fw::linear"])
    page.keyboard.press("Escape")
    expect(_bars(page)).to_have_text(["matmul", "copy"])


def test_bars_are_of_the_size_that_is_chosen(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns", "self_cpu_ns")), FAMILIES)
    page.get_by_label("size of the boxes").select_option("Self CPU")
    expect(_bars(page)).to_have_text(["copy", "matmul"])


def _rings(page: Any) -> None:
    """Show the contents of matmul as a sunburst."""
    page.get_by_label("open", exact=True).select_option("matmul")
    page.get_by_label("chart type").select_option("rings")
    expect(page.locator(".chart .slice", has_text="fw::linear")).to_have_count(1)
    expect(page.locator(".chart .slice", has_text="copy")).to_have_count(0)


def test_bars_become_rings_and_stay_open(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns", "self_cpu_ns")), FAMILIES)
    url, page = page.url, page.context.new_page()  # another tab, because the script stays in it
    page.add_init_script("Math.random = () => 0.5")  # so that plotly gives the outer ring the id 800000
    page.goto(url)
    page.wait_for_selector(".chart[data-ready]")
    _rings(page)
    page.locator(".chart .slice", has_text="matmul").locator("path").first.click()
    expect(page.locator(".chart .slice", has_text="copy")).to_have_count(1)
    expect(page.get_by_label("open", exact=True)).to_have_value("-1")


def test_an_empty_ring_does_not_open(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns", "self_cpu_ns")), FAMILIES)
    _rings(page)
    opened = page.get_by_label("open", exact=True).input_value()
    page.evaluate("document.querySelector('.chart').on('plotly_sunburstclick', () => { document.title = 'clicked'; })")
    page.locator(".chart .slice", has_text="fw::linear").locator("path").first.click()
    expect(page).to_have_title("clicked")
    expect(page.get_by_label("open", exact=True)).to_have_value(opened)


def test_tooltips_have_complete_names(show: Callable[..., Any]) -> None:
    name = "void kernel<" + "long_argument, " * 30 + "end_of_the_name>(Params)"
    table = pd.DataFrame({"name": [name, "other"], "total_device_ns": [2000, 1000]})
    page = show(Chart("ranking", "name", ("total_device_ns",)), table)
    assert all(len(label) < 60 for label in _bars(page).all_text_contents())
    box = page.locator(".chart .bars .point path").first.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    expect(page.locator(".chart .hoverlayer")).to_contain_text("end_of_the_name>(Params)")


@pytest.mark.parametrize(("count", "bars"), [(1, 1), (2, 2), (100, 100), (5000, 0)])
def test_any_number_of_steps_is_a_picture(show: Callable[..., Any], count: int, bars: int) -> None:
    table = pd.DataFrame({"step": range(count), "forward_ns": 2_000_000, "other_ns": 1_000_000})
    page = show(Chart("bar", "step", ("forward_ns", "other_ns")), table)
    expect(page.locator(".chart .bars .point")).to_have_count(2 * bars)
    expect(page.locator(".chart .scatterlayer .fills path")).to_have_count(0 if bars else 2)
    assert 1 <= page.locator(".chart .xaxislayer-above text").count() <= 25


def test_all_pictures_are_drawn_before_printing(show_page: Callable[..., Any]) -> None:
    table = pd.DataFrame({"name": ["a", "b"], "total_device_ns": [2000, 1000]})
    sections = [
        Section(f"s{at}", "Kernels", table, chart=Chart("ranking", "name", ("total_device_ns",))) for at in range(12)
    ]
    page = show_page(*sections)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".chart[data-ready]")
    assert page.locator(".chart[data-ready]").count() < 12
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".chart[data-ready]")).to_have_count(12)
    paper = page.locator(".chart .main-svg").first
    assert paper.evaluate("(svg) => svg.clientWidth") <= 680
    expect(page.locator(".chart .yaxislayer-above text").first).to_have_css("fill", "rgb(28, 36, 48)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".chart .yaxislayer-above text").first).not_to_have_css("fill", "rgb(28, 36, 48)")
    expect(paper).not_to_have_css("width", "680px")


def test_pictures_follow_the_width_and_the_colours(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns",)), FAMILIES)
    label = _bars(page).first
    before = label.evaluate("(text) => getComputedStyle(text).fill")
    page.emulate_media(color_scheme="dark")
    expect(label).not_to_have_css("fill", before)
    page.set_viewport_size({"width": 700, "height": 900})
    expect(page.locator(".chart .main-svg").first).to_have_css(
        "width", f"{page.locator('.chart').evaluate('(c) => c.clientWidth')}px"
    )


def test_the_highest_point_over_time_is_marked(show: Callable[..., Any]) -> None:
    table = pd.DataFrame(
        {
            "time_ns": [1_000_000, 2_000_000, 3_000_000],
            "cuda:0_bytes": [5 << 20, 9 << 20, 2 << 20],
            "cuda:1_bytes": [4 << 20, 1 << 20, 3 << 20],
            "cpu_bytes": [1, 2, 1],
        }
    )
    page = show(Chart("line", "time_ns", ("cuda:0_bytes", "cuda:1_bytes", "cpu_bytes")), table)
    expect(page.locator(".chart .textpoint")).to_have_text(["peak 9.00 MiB", "peak 4.00 MiB"])
    expect(page.locator(".chart .xtitle")).to_have_text("Time (ms)")


def test_paper_is_light(show: Callable[..., Any]) -> None:
    page = show(Chart("opening", "name", ("device_ns",)), FAMILIES)
    page.emulate_media(media="screen", color_scheme="dark")
    expect(page.locator("body")).not_to_have_css("color", "rgb(28, 36, 48)")
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("body")).to_have_css("color", "rgb(28, 36, 48)")
