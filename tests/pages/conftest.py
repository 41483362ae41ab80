"""Fixtures that open pages offline in a real browser. It is the browser that CHROMIUM names, or else the first one that
starts (tools/browser.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from perfkit_core.output.renderers.html.page import render
from perfkit_core.trace.model.report_data import Report, Section, Source
from tools.browser import launch

_LOCAL: Final = ("file:", "blob:", "data:")
# A page of eight ranks with all its sections is ready after 5 s on a quiet machine, and after more than 30 s on a busy
# one: the limit ends a test that hangs, and says nothing of speed.
_TIMEOUT_MS: Final = 300_000
_SETTLED: Final = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser for one module. The test fails if none is installed. A browser for the whole session
    would not end, because processes that other tests fork would keep the pipe to its driver open."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture(scope="module")
def new_context(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that returns a new context of the browser with the given options of Playwright."""
    contexts: list[Any] = []

    def create(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(_TIMEOUT_MS)
        return contexts[-1]

    yield create
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def tab(new_context: Callable[..., Any]) -> Any:
    """Return a tab of the browser. The tests of a module share it, because a new tab takes longer than a page."""
    return new_context(accept_downloads=True).new_page()


@pytest.fixture
def opened(tab: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page as in a new tab, with all its sections or at another address. The test fails
    if the page made requests, opened dialogs or reported errors."""
    wrong: list[str] = []
    watching: dict[str, Callable[[Any], object]] = {
        "console": lambda message: wrong.append(message.text) if message.type == "error" else None,
        "weberror": lambda error: wrong.append(str(error.error)),
        "dialog": lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        "request": lambda request: None if request.url.startswith(_LOCAL) else wrong.append(request.url),
    }
    for event, watch in watching.items():
        tab.context.on(event, watch)
    tab.context.clear_permissions()
    tab.emulate_media(media="null", color_scheme="light")
    tab.set_viewport_size({"width": 1300, "height": 900})
    tab.mouse.move(0, 0)

    def open_page(path: Path, at: str = "#all") -> Any:
        tab.goto(path.as_uri() + at)
        tab.evaluate(_SETTLED)  # another address of an open page is shown later, and a click must not come before
        return tab

    yield open_page
    for event, watch in watching.items():
        tab.context.remove_listener(event, watch)
    assert wrong == []


@pytest.fixture
def show_page(opened: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Return a function that opens the page of a report with the given sections, and waits for the first element of a
    selector to be ready. ``head`` has other fields of the report."""

    def show(*sections: Section, ready: str = "", **head: Any) -> Any:
        file = tmp_path / "page.html"
        head = {"title": "Report", "sources": (Source("run", "run"),), **head}
        file.write_text(render(Report(sections=sections, **head)), encoding="utf-8")
        page = opened(file)
        if ready:
            page.wait_for_selector(f"{ready}[data-ready]")
        return page

    return show
