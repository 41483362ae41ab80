"""Tests of pages that the command line makes of recordings of every kind: size, width, search and sort.
With PERFKIT_SCREENSHOTS=FOLDER, each page is also saved as images: light and dark, wide and narrow, and printed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from perfkit_core.cli.main import main
from tests.support.page_moments import drawn

PAIR = ("torch/pairs/resnet50-workers0.json.gz", "torch/pairs/resnet50-workers4.json.gz")
PAGES = {
    "large": ("report", "torch/b200-eager-rank0of8.json.gz"),
    "ranks": ("report", "torch/dlrm-8xv100"),
    "paddle": ("report", "paddle/cpu-3.3.1/cnn_small/cycle0.pb"),
    "comparison": ("compare", *PAIR),
}
WIDTHS = (1300, 700)
PAPER = 794
"""Width of an A4 page in pixels."""


@pytest.fixture(scope="module", params=PAGES)
def file(request: pytest.FixtureRequest, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    verb, *sources = PAGES[request.param]
    page = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    assert main([verb, *(str(traces / one) for one in sources), "-o", str(page)]) == 0
    return page


@pytest.fixture
def page(opened: Callable[[Path], Any], file: Path) -> Any:
    return opened(file)


def seen(page: Any, selector: str, ready: str = "") -> Any:
    """Return the first element that matches, after it has been scrolled into view and is ready. The test is skipped if
    the page has none."""
    found = page.locator(selector).first
    if not found.count():
        pytest.skip(f"this page has no {selector}")
    found.scroll_into_view_if_needed()
    if ready:
        expect(found).to_have_attribute(ready, "1")
    return found


def test_a_page_can_be_sent(file: Path) -> None:
    """The libraries take 2 MB of a page. The large recording has tables of 5,000 rows and 25,000 timeline boxes."""
    assert file.stat().st_size < (6_000_000 if file.stem == "large" else 4_500_000)


def test_nothing_is_wider_than_the_window_or_than_paper(page: Any) -> None:
    all_seen(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("html")).to_have_js_property("scrollWidth", width)
    page.set_viewport_size({"width": PAPER, "height": 1123})
    page.emulate_media(media="print")
    edges = page.locator("table:visible").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().right)")
    assert len(edges) > 5
    assert max(edges) <= PAPER + 5, "every column is on it"


def test_searching_and_sorting_a_table(page: Any) -> None:
    table = seen(page, "table[data-first]:not([data-tree]):visible", "data-ready")
    around = table.locator("xpath=ancestor::div[contains(@class, 'dt-container')]")
    name = table.locator("tbody tr").last.locator("td").first.inner_text()
    before = table.locator("tbody tr").count()
    around.locator(".dt-search input").fill(name)
    expect(table.locator("tbody tr").first).to_contain_text(name)
    assert 1 <= table.locator("tbody tr").count() <= before
    around.locator(".dt-search input").fill("")
    heading = table.locator("th.num").last
    heading.click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    numbers = table.locator("tbody tr").evaluate_all(
        "(rows, at) => rows.map((row) => row.cells[at].dataset.order).filter((one) => one !== '').map(Number)",
        heading.evaluate("(cell) => cell.cellIndex"),
    )
    assert numbers == sorted(numbers)


def all_seen(page: Any) -> None:
    """Scroll through the page, so that all of it is drawn."""
    for top in range(0, page.evaluate("document.documentElement.scrollHeight"), 800):
        page.evaluate("(top) => scrollTo(0, top)", top)
        drawn(page)
    page.evaluate("scrollTo(0, 0)")


@pytest.mark.skipif("PERFKIT_SCREENSHOTS" not in os.environ, reason="PERFKIT_SCREENSHOTS names no folder for them")
def test_screenshots(page: Any, file: Path) -> None:
    folder = Path(os.environ["PERFKIT_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            all_seen(page)
            page.screenshot(path=folder / f"{file.stem}-{width}-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": PAPER, "height": 1123})
    page.emulate_media(media="print", color_scheme="light")
    page.screenshot(path=folder / f"{file.stem}-paper.png", full_page=True)
