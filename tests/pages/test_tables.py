"""Tests of tables in a browser: search, sort, page, filter, hide columns, copy and save, with names of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.output.renderers.html.page import render
from perfkit_core.trace.model.report_data import Report, Section, Source

HOSTILE = (
    "</script><script>document.title = 1</script>",
    "<b>bold</b>",
    "a\u202eb",
    'quote "',
    "<img src=x onerror=1>",
)


def table(rows: int) -> pd.DataFrame:
    """Return a table with unsorted names, and with times that sort differently as text and as numbers."""
    numbers = range(rows)
    return pd.DataFrame(
        {
            "name": [HOSTILE[i] if i < len(HOSTILE) else f"operator {i * 7919 % rows}" for i in numbers],
            "kind": ["kernel" if i % 3 else "memcpy" for i in numbers],
            "calls": [i * 37 % 1001 for i in numbers],
            "total_ns": pd.array([None if i == 9 else (i * 7919 % rows) ** 2 * 1000 for i in numbers], "Int64"),
        }
    )


def shown(page: Any) -> list[list[str]]:
    """Return the texts of the visible cells."""
    found: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return found


@pytest.fixture
def show(show_page: Callable[..., Any]) -> Callable[[Section], Any]:
    return lambda section: show_page(section, ready="table")


def test_searching_by_part_of_a_name(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", table(40), limit=10))
    assert len(shown(page)) == 10
    page.get_by_placeholder("part of a name").fill("TOR 3")
    expected = [name for name in table(40)["name"] if "tor 3" in name.lower()]
    expect(page.locator("tbody tr")).to_have_count(len(expected))
    assert [row[0] for row in shown(page)] == expected


def test_sorting_is_of_numbers_and_exact(show: Callable[[Section], Any]) -> None:
    data = table(40)
    page = show(Section("s", "Operators", data, limit=40))
    heading = page.get_by_role("columnheader", name="Total")
    heading.click()
    heading.click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    order = data["total_ns"].astype("Float64").sort_values(ascending=False, na_position="last").index
    calls = [str(data["calls"][i]) for i in order]
    assert [row[2] for row in shown(page)][:39] == calls[:39]


def test_choosing_rows_by_their_kind(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", table(40), limit=40))
    page.get_by_label("only rows with this Kind").select_option("memcpy")
    expect(page.locator("tbody tr")).to_have_count(14)
    assert {row[1] for row in shown(page)} == {"memcpy"}


def test_hiding_a_column(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", table(40), limit=10))
    page.get_by_role("button", name="Columns").click()
    page.locator(".dt-button-collection").get_by_text("Calls").click()
    expect(page.locator("thead th")).to_have_count(3)
    assert "Calls" not in page.locator("thead").text_content()


def test_saving_as_csv_has_every_row(show: Callable[[Section], Any], tmp_path: Path) -> None:
    data = table(40)
    page = show(Section("s", "Operators", data, limit=10))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == "Operators.csv"
    waiting.value.save_as(tmp_path / "saved.csv")
    found = pd.read_csv(tmp_path / "saved.csv")
    assert found["Calls"].tolist() == data["calls"].tolist()
    assert found["Name"].tolist()[len(HOSTILE) :] == data["name"].tolist()[len(HOSTILE) :]


def wide_table() -> pd.DataFrame:
    """Return a table like that of operators: a long name, categories, and numbers that begin with times."""
    names = [f"library::an_operator_of_a_very_long_name_{i}" for i in range(20)]
    times = [f"{which}_{of}_ns" for of in ("cpu", "device") for which in ("self", "total", "max")]
    return pd.DataFrame({"name": names, "calls": 7} | dict.fromkeys(times, 123_456_789))


def test_a_wide_table_is_whole_where_there_is_room(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", wide_table(), limit=20))
    page.set_viewport_size({"width": 1100, "height": 900})
    sizes = page.locator("table").evaluate("(one) => [one.scrollWidth, one.parentElement.clientWidth]")
    assert sizes[0] <= sizes[1] + 1


@pytest.mark.parametrize("width", [420, 800])
def test_a_table_without_room_scrolls_beside_its_names(show: Callable[[Section], Any], width: int) -> None:
    """The table scrolls sideways and the page does not. At a width of 800 pixels, the times are visible without
    scrolling."""
    page = show(Section("s", "Operators", wide_table(), limit=20))
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    box = page.locator(".dt-layout-table .dt-layout-cell")
    edges = "(one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right]"
    assert width < 800 or page.locator("td.num").nth(2).evaluate(edges)[1] < box.evaluate(edges)[1]
    box.evaluate("(one) => one.scrollTo(10_000, 0)")
    assert page.locator("td").first.evaluate(edges)[0] == box.evaluate(edges)[0]
    assert page.locator("td.num").nth(6).evaluate(edges)[1] <= box.evaluate(edges)[1] + 1


def test_code_is_whole_on_a_narrow_page(show_page: Callable[..., Any]) -> None:
    """The code is broken into lines, and the copy button does not cover it."""
    page = show_page(Section("s", "Advice", pd.DataFrame(), code="call(" + "argument=1, " * 20 + ")"))
    page.set_viewport_size({"width": 420, "height": 900})
    code = page.locator("pre.code")
    assert code.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    right = "(one) => one.getBoundingClientRect().right"
    assert code.locator("code").evaluate(right) <= page.locator("button.copy").evaluate(right.replace("right", "left"))


def test_copying(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", table(40), limit=10))
    page.get_by_role("button", name="Copy").click()
    expect(page.locator(".dt-button-info")).to_contain_text("40 rows")


def test_names_stay_text_while_searching_and_sorting(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "</h2><script>1</script>", table(40), limit=10))
    page.get_by_role("columnheader", name="Name").click()
    for name in HOSTILE:
        visible = name.replace("\u202e", "\\u202e")
        page.get_by_placeholder("part of a name").fill(visible)
        expect(page.locator("tbody tr")).to_have_count(1)
        assert shown(page)[0][0] == visible
    assert page.locator("main script, main img, main b").count() == page.locator("main script[type]").count()
    assert page.title() == "Report"


def test_a_tree_keeps_its_order(show: Callable[[Section], Any]) -> None:
    data = table(20).assign(depth=[0, 1] * 10)
    page = show(Section("s", "Tree", data, limit=20))
    before = shown(page)
    page.get_by_role("columnheader", name="Calls").click()
    assert shown(page) == before


def test_a_table_of_one_page_has_no_pages(show: Callable[[Section], Any]) -> None:
    page = show(Section("s", "Operators", table(15), limit=20))
    assert page.locator(".dt-info").text_content() == "1 to 15 of 15 rows"
    assert page.locator(".dt-paging, .dt-length").count() == 0


@pytest.mark.parametrize(("rows", "carried"), [(40, 40), (620, 500)])
def test_without_scripts_rows_are_there(
    new_context: Callable[..., Any], tmp_path: Path, rows: int, carried: int
) -> None:
    """Rows that are carried deflated need scripts, and the page says so."""
    file = tmp_path / "page.html"
    section = Section("s", "t", table(rows), limit=10)
    file.write_text(render(Report("r", (Source("a", "a"),), (section,))), encoding="utf-8")
    assert file.read_text().count("<tr") == 1 + carried
    page = new_context(java_script_enabled=False).new_page()
    page.goto(file.as_uri())
    assert page.locator("tbody tr").count() == carried
    assert page.locator("tbody tr:visible").count() == 10
    page.locator("label.toggle").click()
    assert page.locator("tbody tr:visible").count() == carried
    missing = ["120 more rows are visible only with JavaScript."] if rows > carried else []
    assert page.locator("noscript").all_text_contents() == missing


def test_five_thousand_rows(show: Callable[[Section], Any]) -> None:
    """All rows can be found, but the page never holds more than one page of the table."""
    page = show(Section("s", "Operators", table(5000), limit=25))
    assert len(shown(page)) == 25
    assert "5,000" in page.locator(".dt-info").text_content()
    page.get_by_placeholder("part of a name").fill("operator 4999")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert shown(page)[0][0] == "operator 4999"
