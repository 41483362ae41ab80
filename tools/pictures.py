"""Make the pictures of the README from a recording in the repository: ``python tools/pictures.py``.

``docs/_static/terminal.svg`` is what ``perfkit summary`` prints. ``docs/_static/page.png`` is the page of
``perfkit report`` in a browser (tools/browser.py finds one). Tests check that both are fresh.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from perfkit_core.output.renderers import text
from perfkit_core.output.report import DEFAULT_VIEWS
from perfkit_core.output.report.display import Display
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from perfkit_core.trace.model.trace import Trace

ROOT: Final = Path(__file__).parents[1]
RECORDING: Final = ROOT / "tests" / "data" / "pictures" / "training.perfkit.parquet"
TERMINAL: Final = ROOT / "docs" / "_static" / "terminal.svg"
PAGE: Final = ROOT / "docs" / "_static" / "page.png"
COLUMNS: Final = 100
SIZE: Final = {"width": 1300, "height": 900}
_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""rich's own format loads fonts from a host."""


def recording() -> Trace:
    return load(RECORDING).with_meta(source="runs/baseline")


def terminal() -> str:
    """Return the picture of a terminal as SVG."""
    views = choose_views(DEFAULT_VIEWS)
    report = summary_report(recording(), views, ViewRequest(), Display(limit=10), brief=True)
    printed = text.render(report, COLUMNS, styled=True, height=44)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi("$ perfkit summary runs/baseline\n" + printed))
    return console.export_svg(title="perfkit", theme=MONOKAI, code_format=_FORMAT, unique_id="terminal")


def page(browser: Browser) -> bytes:
    """Return a screenshot of the page as PNG."""
    from perfkit_core.output.renderers.html import page as html
    from perfkit_core.pages.profile import run_report
    from perfkit_core.ranks.profile import LoadedProfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(html.render(run_report(LoadedProfile(recording()))), encoding="utf-8")
        tab = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        tab.goto(file.as_uri())
        tab.locator("#causes .slice").first.wait_for()  # the chart in the picture is drawn last
        tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture = tab.screenshot()
        tab.close()
    return picture


def main() -> None:
    """Write both pictures."""
    from playwright.sync_api import sync_playwright

    from tools.browser import launch

    TERMINAL.write_text(terminal(), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        PAGE.write_bytes(page(browser))
        browser.close()


if __name__ == "__main__":
    main()
