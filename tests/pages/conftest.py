"""Fixtures that open pages offline in a real browser. It is the browser that CHROMIUM names, or else the first one that
starts (tools/browser.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tools.browser import launch


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser for one module. The test fails if none is installed. A browser for the whole session
    would not end, because processes that other tests fork would keep the pipe to its driver open."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[[Path], Any]]:
    """Return a function that opens a page. The test fails if the page made requests or reported errors."""
    with _watched(browser) as (context, wrong):

        def open_page(path: Path) -> Any:
            page = context.new_page()
            page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith(("file:", "blob:", "data:"))
                    else wrong.append(request.url))  # fmt: skip
            page.goto(path.as_uri())
            return page

        yield open_page
    assert wrong == []


@contextmanager
def _watched(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    context = browser.new_context(viewport={"width": 1300, "height": 900}, accept_downloads=True)
    yield context, []
    context.close()
