"""Tests that texts from scripts are Chinese on a Chinese page: the tools of tables, charts and timelines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from perfkit_core.base.language.messages import speaking
from perfkit_core.output.renderers.html.page import render
from perfkit_core.pages.profile import run_report
from perfkit_core.readers.load import load
from tests.support.paths import DATA

TORCH = DATA / "torch-mlp.json.gz"
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture
def page(opened: Callable[[Path], Any], tmp_path: Path) -> Any:
    """Return the report on a small training in Chinese."""
    file = tmp_path / "page.html"
    with speaking("zh"):
        file.write_text(render(run_report(load(TORCH))), encoding="utf-8")
    return opened(file)


def section(page: Any, title: str) -> Any:
    heading = page.get_by_role("heading", name=title, exact=True)
    heading.scroll_into_view_if_needed()
    return page.locator("section").filter(has=heading).last


def test_the_tools_of_a_table(page: Any) -> None:
    found = section(page, "算子")
    search = found.locator(".dt-search input")
    expect(search).to_have_attribute("placeholder", "名称的一部分")
    expect(found.get_by_role("button", name="拷贝", exact=True)).to_be_visible()
    expect(found.get_by_role("button", name=re.compile("^列"))).to_be_visible()
    expect(found.locator('.dt-paging [aria-label="下一页"]')).to_be_visible()
    expect(found.locator(".dt-length")).to_have_text(re.compile("每页.*行", re.DOTALL))
    expect(found.locator(".dt-info")).to_have_text(re.compile(r"第 1 至 \d+ 行，共 \d+ 行"))
    search.fill("no operator is called so")
    expect(found.locator("tbody")).to_have_text("没有符合的行。")
    expect(found.locator(".dt-info")).to_have_text(re.compile(r"没有行\s*（从 \d+ 行中筛选）"))


def test_the_timeline(page: Any) -> None:
    found = section(page, "时间线")
    expect(found.locator(".status").first).to_have_text(re.compile("^显示 .*绘制了 .* 个方块$"))
    expect(found.locator("select option").first).to_have_text(re.compile("第 2 步"))


def test_tooltips_and_labels(page: Any) -> None:
    """All labels and titles are Chinese after the whole page has been visible."""
    for one in page.locator("main section").all():
        one.scroll_into_view_if_needed()
    expect(page.locator("table[data-ready]").first).to_be_attached()
    labels = [one.get_attribute("aria-label") for one in page.locator("main [aria-label]").all()]
    assert len(labels) > 10
    assert [label for label in labels if label and not CHINESE.search(label) and " " in label] == []
