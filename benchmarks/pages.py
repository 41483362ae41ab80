"""Measure the HTML page: ``python -m benchmarks --only pages``

A recording of about 100,000 events is read, its report is created, and Chromium opens the page in a new window. The
benchmark measures the time to create the report. It also measures two durations that begin when the page is opened. One
ends with the browser's ``first-contentful-paint``, the other when all scripts are loaded. The environment variable
``CHROMIUM`` selects the browser. If it is not set, the first browser that starts is used (see tools/browser.py).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import perfkit_core
from benchmarks.inputs import large
from benchmarks.results import Check, Section, Table, at_most, number
from perfkit_core.output.renderers.html.page import render
from perfkit_core.pages.profile import run_report
from perfkit_core.trace.model.trace import Trace
from tools.browser import launch

TARGET_MB: Final = 8.0
TARGET_MADE_S: Final = 5.0
TARGET_SEEN_S: Final = 1.0
_ENTRIES: Final = """() => new Promise((done) => new PerformanceObserver((list) => {
  const [paint] = list.getEntriesByName("first-contentful-paint"), [whole] = performance.getEntriesByType("navigation");
  if (paint) done({ seen: paint.startTime / 1e3, loaded: whole.duration / 1e3 });
}).observe({ type: "paint", buffered: true }))"""

Numbers = dict[str, list[float]]


def section(size_mb: int, rounds: int, say: Callable[[str], None]) -> Section:
    """Return the time to create the page of a recording, and the time to open the page."""
    trace = perfkit_core.load(large(size_mb))
    say(f"{len(trace):,} events")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        numbers = {"made": [_made(trace, page) for _ in range(rounds)]} | _opened(page, rounds, say)
        size = page.stat().st_size
    table = Table(f"{len(trace):,} events", ("", "median", "all"), tuple(_rows(numbers, size)))
    about = (__doc__ or "").split("\n\n")[1]
    return Section("The page", about, (table,), _checks(numbers, size), {**numbers, "bytes": size})


def _made(trace: Trace, page: Path) -> float:
    """Return the seconds from the loaded recording to the finished page."""
    start = time.perf_counter()
    page.write_text(render(run_report(trace)), encoding="utf-8")
    return time.perf_counter() - start


def _opened(page: Path, rounds: int, say: Callable[[str], None]) -> Numbers:
    try:
        with _browser() as browser:
            found = [_seen(browser, page) for _ in range(rounds)]
    except (ImportError, LookupError) as error:
        say(f"not opened: {error}")
        return {}
    return {key: [one[key] for one in found] for key in ("seen", "loaded")}


@contextmanager
def _browser() -> Iterator[Any]:
    """Return a headless Chromium. Raises ImportError or LookupError if there is none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


def _seen(browser: Any, page: Path) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    window = context.new_page()
    window.goto(page.as_uri())
    found: dict[str, float] = window.evaluate(_ENTRIES)
    context.close()
    return found


def _rows(numbers: Numbers, size: int) -> Iterator[tuple[str, ...]]:
    said = {"made": "created, s", "seen": "first contentful paint, s", "loaded": "all scripts loaded, s"}
    for key, values in numbers.items():
        yield said[key], number(statistics.median(values)), ", ".join(map(number, values))
    yield "size, MB", number(size / 1e6), ""


def _checks(numbers: Numbers, size: int) -> tuple[Check, ...]:
    def median(key: str) -> float | None:
        return statistics.median(numbers[key]) if key in numbers else None

    return (
        at_most("page of 100 k events: size", TARGET_MB, size / 1e6, "MB"),
        at_most("page of 100 k events: time to create it from a loaded trace", TARGET_MADE_S, median("made"), "s"),
        at_most("page of 100 k events: first contentful paint in the browser", TARGET_SEEN_S, median("seen"), "s"),
    )
