"""Names are shown as text everywhere and never break the page, even if they contain HTML, scripts, quotes, escape
sequences, characters that reverse the direction of text, control characters, or 1,000 letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from perfkit_core.output.renderers.cells import visible
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.report_data import Chart, Fact, Section, Source
from tests.support.hostile_files import EVIL, named, sound

SHOWN = visible(EVIL)
BEGINS = '<img src=x onerror="document.title'


def table(count: int = 10) -> pd.DataFrame:
    """Return a table with hostile names and kinds, and with a hostile column name."""
    return pd.DataFrame({
        "name": [f"{number} {EVIL}" for number in range(count)],
        "kind": [named("a") if number % 2 else named("b") for number in range(count)],
        EVIL: [EVIL] * count,
        "total_ns": range(1000, 1000 + count),
        "depth": [number % 2 for number in range(count)],
    })  # fmt: skip


def test_the_head(show_page: Callable[..., Any]) -> None:
    finding, facts = Finding(named("code"), named("message")), {named("fact"): Fact(EVIL)}
    source = Source(named("label"), named("path"), (finding,), facts)
    page = show_page(title=named("title"), sources=(source, source), headline=(named("sentence"),))
    sound(page)
    assert page.title() == f"title {SHOWN}"
    head = page.locator("header").inner_text()
    for what in ("title", "label", "path", "message", "fact", "sentence"):
        assert f"{what} {SHOWN}" in head, what
    assert f"code {SHOWN}" in page.locator("#findings").inner_text()


def test_the_words_of_a_section(show_page: Callable[..., Any]) -> None:
    nothing = Section("empty", named("other"), pd.DataFrame({"a": []}), empty=named("reason"))
    words = Section("s", named("heading"), pd.DataFrame(), named("note"), lines=(named("line"),), code=named("code"))
    page = show_page(words, nothing)
    sound(page)
    for what in ("note", "line", "code", "heading", "other"):
        assert f"{what} {SHOWN}" in page.locator("main").inner_text(), what
    assert f"Reason {SHOWN}" in page.locator(".empty").inner_text()
    assert f"heading {SHOWN}" in page.locator("nav").inner_text()


def test_cells_headings_and_choices_of_a_table(show_page: Callable[..., Any]) -> None:
    page = show_page(Section("s", named("heading"), table().drop(columns="depth"), limit=10), ready="table")
    sound(page)
    page.locator("td.long").first.click()
    assert page.locator("td.long .full").first.inner_text() == f"0 {SHOWN}"
    assert any(text.lower() == SHOWN.lower() for text in page.locator("th").all_inner_texts())
    choice = page.get_by_label("only rows with this Kind")
    assert choice.locator("option").all_text_contents()[1:] == [f"a {SHOWN}", f"b {SHOWN}"]
    choice.select_option(f"a {SHOWN}")
    expect(page.locator("tbody tr")).to_have_count(5)
    choice.select_option("")
    page.get_by_placeholder("part of a name").fill(f"7 {SHOWN}")
    expect(page.locator("tbody tr")).to_have_count(1)
    sound(page)


def test_saved_and_copied_tables_have_the_whole_name_once(show_page: Callable[..., Any], tmp_path: Path) -> None:
    page = show_page(Section("s", "Names", table().drop(columns="depth"), limit=10), ready="table")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    waiting.value.save_as(tmp_path / "saved.csv")
    assert pd.read_csv(tmp_path / "saved.csv")["Name"].tolist() == [f"{number} {SHOWN}" for number in range(10)]


KINDS = ("bar", "line", "ranking", "share", "icicle", "sunburst")


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_a_picture(show_page: Callable[..., Any], kind: Any) -> None:
    data = table() if kind in ("icicle", "sunburst") else table().drop(columns="depth")
    page = show_page(Section("s", "Picture", data, chart=Chart(kind, "name", ("total_ns",)), limit=10), ready=".chart")
    sound(page)
    labels = page.locator(".chart text").all_text_contents()
    assert any(BEGINS[:10] in label or "<script>" in label for label in labels), labels


@pytest.mark.parametrize("kind", ["ranking", "share"])
def test_the_tooltip_of_a_bar(show_page: Callable[..., Any], kind: Any) -> None:
    page = show_page(
        Section("s", "Picture", table(3).drop(columns="depth"), chart=Chart(kind, "name", ("total_ns",))),
        ready=".chart",
    )
    page.locator(".chart").hover(position={"x": 640, "y": 60})
    expect(page.locator(".hoverlayer .hovertext").first).to_contain_text(BEGINS)
    sound(page)


def test_a_saved_table_has_no_formula(show_page: Callable[..., Any], tmp_path: Path) -> None:
    names, values = ["=1+1", "@x", "-a", "a=b", *"cdefgh"], [-5, *range(9)]
    page = show_page(Section("s", "Names", pd.DataFrame({"name": names, "total_ns": values}), limit=10), ready="table")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    waiting.value.save_as(tmp_path / "saved.csv")
    saved = pd.read_csv(tmp_path / "saved.csv")
    assert set(saved["Name"]) == {"'=1+1", "'@x", "'-a", "a=b", *"cdefgh"}
    assert not any(str(value).startswith("'") for value in saved.iloc[:, 1])
