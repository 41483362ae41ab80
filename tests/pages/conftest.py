"""A real browser, offline: Debian's chromium, or the one that CHROMIUM names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MISSING = "no browser was found: apt-get install --no-install-recommends chromium, or let CHROMIUM name one"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a screen. Fails where none is installed: pages that nobody opened are not tested.

    Not for the whole session: processes that other tests fork would hold the pipe to the browser's driver, which waits
    for its end.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        found = playwright.chromium.launch(executable_path=program, args=options)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[[Path], Any]]:
    """Opens a page. At the end of the test nothing may have been asked of any host, and nothing gone wrong in it."""
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
