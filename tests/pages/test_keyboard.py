"""Every control that can be clicked can also be reached with Tab, in the order of the page, with a visible focus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.output.report.timeline import timeline_section
from perfkit_core.trace.model.report_data import Chart, Section
from tests.support.timeline_page import small

CONTROLS = "a[href], button, select, input, canvas, td.long, summary, th [role=button], .dt-paging-button"
"""Selector of all controls of a page."""
NAMES = [f"operator {number}" + "long " * 20 * (number == 1) for number in range(40)]
TREE = pd.DataFrame({"depth": [0, 1] * 5, "name": NAMES[:10], "total_cpu_ns": range(1000, 1010)})


@pytest.fixture
def page(show_page: Callable[..., Any]) -> Any:
    """Return a page with one control of each kind."""
    table = pd.DataFrame({"name": NAMES, "kind": ["a", "b"] * 20, "total_ns": range(40)})
    sections = (
        Section("code", "Fix", pd.DataFrame(), code="x = 1"),
        Section("tree", "Layers", TREE, chart=Chart("icicle", "name", ("total_cpu_ns",)), limit=10),
        timeline_section(small()),
        Section("table", "Operators", table, limit=10),
    )
    found = show_page(*sections)
    found.set_viewport_size({"width": 1300, "height": 6000})
    for one in ("table[data-first]", ".chart", ".timeline"):
        for place in found.locator(one).all():
            expect(place).to_have_attribute("data-ready", "1")
    return found


def walked(page: Any) -> list[dict[str, Any]]:
    """Return a dict for each element that Tab reaches. ``at`` is its number among the controls, or -1 if it is not a
    control. ``top`` and ``width`` are in pixels. ``marked`` is true if its focus is visible."""
    page.evaluate("(controls) => { window.controls = [...document.querySelectorAll(controls)]; }", CONTROLS)
    found: list[dict[str, Any]] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        here = page.evaluate(
            """() => {
              const one = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(one);
              const { top, width } = one.getBoundingClientRect();
              return { at: window.controls.indexOf(one), top, width, tag: one.tagName + '.' + one.className,
                       marked: outlineStyle !== 'none' && parseFloat(outlineWidth) > 0 };
            }"""
        )
        if here["tag"].startswith("BODY") or (
            found and here["at"] == found[0]["at"] and here["top"] == found[0]["top"]
        ):
            break
        found.append(here)
    return found


def test_every_control_is_reached_in_order_and_marked(page: Any) -> None:
    found = walked(page)
    usable = page.evaluate(
        """() => window.controls.flatMap((one, at) =>
             one.checkVisibility() && !one.disabled && one.getAttribute('aria-disabled') !== 'true'
             && !one.matches('.dt-paging-button.current') ? [at] : [])"""
    )
    reached = [one["at"] for one in found if one["at"] >= 0]
    assert len(usable) > 25
    assert set(usable) <= set(reached), [
        page.evaluate("(at) => window.controls[at].outerHTML", at) for at in usable if at not in reached
    ]
    assert reached == sorted(reached), "in the order of the page"
    assert [one for one in found if not one["marked"]] == []


def test_a_table_is_sorted_and_paged_by_keys(page: Any) -> None:
    table = page.locator("#table table")
    heading = table.locator("th").last
    heading.locator("[role=button]").focus()
    page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(table.locator("tbody tr").first).to_contain_text("operator 39")
    page.locator("#table .dt-paging-button", has_text="2").focus()
    page.keyboard.press("Enter")
    expect(table.locator("tbody tr").first).to_contain_text("operator 29")


def test_a_long_name_is_opened_by_keys(page: Any) -> None:
    cell = page.locator("#table td.long").first
    expect(cell.locator(".full")).to_be_hidden()
    cell.focus()
    expect(cell.locator(".full")).to_be_visible()


def test_columns_are_hidden_by_keys(page: Any) -> None:
    page.locator("#table .buttons-colvis").focus()
    page.keyboard.press("Enter")
    menu = page.locator(".dt-button-collection")
    expect(menu).to_be_visible()
    kind = menu.locator("button", has_text="Kind")
    kind.focus()  # the text in it cannot have the focus
    expect(kind).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#table thead th")).to_have_count(2)
    for _ in range(20):  # on a busy machine, the menu is still fading in, and stays open
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)
        if menu.is_hidden():
            break
    expect(menu).to_be_hidden()
