"""Tests of a timeline used with the keyboard, and of one with very many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from perfkit_core.output.report.timeline import timeline_section
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.timeline_page import NAMES, details, point, scrolled, seen, small

Show = Callable[[Trace], Any]


@pytest.fixture
def show(show_page: Callable[..., Any]) -> Show:
    """Return a function that opens a page with only a timeline, which has the focus."""

    def show(run: Trace) -> Any:
        page = show_page(timeline_section(run), ready=".timeline")
        page.locator(".timeline canvas").focus()
        return page

    return show


def chosen(page: Any, key: str) -> str:
    page.keyboard.press(key)
    return details(page)[0]


def test_every_box_is_reached_by_keys(show: Show) -> None:
    page = show(small())
    assert chosen(page, "ArrowDown") == "Step#0"
    assert chosen(page, ".") == "Step#1"
    assert chosen(page, ".") == "Step#1", "the last one stays"
    assert chosen(page, ",") == "Step#0"
    assert chosen(page, "ArrowDown") == NAMES[0]
    assert [chosen(page, ".") for _ in range(4)][-1] == "launch"
    assert chosen(page, "ArrowUp") == "Step#0"
    assert chosen(page, "Escape").startswith("Click a box")


def test_up_goes_to_the_enclosing_box(show: Show) -> None:
    events = [host("outer", "operator", 0, 100), host("inner", "operator", 50, 50), host("next", "operator", 100, 500)]
    page = show(trace(events))
    page.mouse.click(*point(page, "inner"))
    assert chosen(page, "ArrowUp") == "outer"


def test_enter_fits_a_box_and_home_shows_the_step(show: Show) -> None:
    page = show(small())
    page.mouse.click(*point(page, "kernel_of_step"))
    whole = seen(page)
    page.keyboard.press("Enter")
    assert seen(page) == (650_000 - 20_000, 240_000)
    page.keyboard.press("ArrowRight")
    assert seen(page) == (630_000 + 48_000, 240_000)
    page.keyboard.press("Home")
    assert seen(page) == whole


def test_choosing_moves_only_as_far_as_is_needed(show: Show) -> None:
    page = show(small())
    page.mouse.click(*point(page, "Step#0"))
    whole = seen(page)
    page.keyboard.press("ArrowDown")
    assert seen(page) == whole, "it was in view"
    page.keyboard.press("Enter")
    assert seen(page)[1] == 108_000
    page.keyboard.press(".")
    assert details(page)[0] == NAMES[1]
    assert seen(page) == (200_000 + (90_000 - 108_000) / 2, 108_000), "it was not: now it is in the middle"


def test_of_very_many_rows_only_visible_ones_are_drawn(show: Show) -> None:
    """A canvas with all rows would be taller than any browser can draw."""
    page = show(trace([device("kernel", "kernel", i * 10, 10, stream=i) for i in range(3000)]))
    picture = page.locator(".timeline .drawing")
    assert picture.evaluate("(one) => one.scrollHeight") > 3000 * 40
    assert page.locator(".timeline canvas").evaluate("(one) => one.height") < 1000
    assert chosen(page, "ArrowUp") == "kernel"
    assert details(page)[2] == "cuda:0 · stream 2999, begins 30.0 µs (29,990 ns) after the start of the timeline"
    scrolled(page)
    assert point(page, "kernel")[1] < 0, "the first one was scrolled out of view"
    assert 0 < page.evaluate("document.querySelector('.timeline').timeline.drawn") < 40


def test_finding_scrolls_to_the_row(show: Show) -> None:
    events = [device(f"kernel {i}", "kernel", i * 10, 10, stream=i) for i in range(200)]
    page = show(trace(events))
    page.locator(".timeline").get_by_label("Find").fill("kernel 199")
    page.locator(".timeline").get_by_label("Find").press("Enter")
    assert details(page)[0] == "kernel 199"
    scrolled(page)
    x, y = point(page, "kernel 199")
    page.keyboard.press("Escape")
    page.mouse.click(x, y)
    assert details(page)[0] == "kernel 199", "where it is in the window a click finds it"


def test_tooltips_stay_inside_the_chart(show: Show) -> None:
    page = show(small())
    page.mouse.move(*point(page, NAMES[3]))
    tip = page.locator(".timeline .tip")
    expect(tip).to_have_text(f"{NAMES[3]}\n90.0 µs")
    outer, inner = page.locator(".timeline .drawing").bounding_box(), tip.bounding_box()
    assert inner["x"] >= outer["x"]
    assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_paper_has_more_rows_than_the_screen(show: Show) -> None:
    """A stream takes 41 pixels, so 30 streams do not fit into the window."""
    page = show(trace([device("kernel", "kernel", i * 10, 10, stream=i) for i in range(30)]))
    drawn = "document.querySelector('.timeline').timeline.drawn"
    on_screen = page.evaluate(drawn)
    assert on_screen < 30
    expect(page.locator(".timeline .status")).to_contain_text(f"rows 1 to {on_screen} of 30 (scroll to see more)")
    page.evaluate(f"addEventListener('beforeprint', () => {{ document.title = {drawn}; }})")
    page.pdf()
    assert page.title() == "30"
    assert page.evaluate(drawn) == on_screen
