"""The HTML of a notebook's output in a browser: in a sandbox without scripts, in light and dark themes."""

from __future__ import annotations

from html import escape
from typing import Any

import pytest

import perfkit
from perfkit_core.notebook import displays
from tests.support.paths import DATA

pytestmark = pytest.mark.browser
EXAMPLES = DATA / "examples"
THEMES = {
    "jupyter": ('<body data-jp-theme-light="true">', False),
    "jupyter dark": ('<body data-jp-theme-light="false">', True),
    "vscode": ('<body class="vscode-light">', False), "vscode dark": ('<body class="vscode-dark">', True),
    "colab dark": ('<html theme="dark"><body>', True), "unknown": ("<body>", False),
}  # fmt: skip
"""Theme → the start of the document with the outputs, and whether it is dark."""


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour such as ``rgb(1, 2, 3)``, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture(scope="module")
def outputs() -> str:
    run = perfkit.load(EXAMPLES / "torch-mlp-loader.perfkit.parquet")
    other = perfkit.load(EXAMPLES / "torch-mlp-base.perfkit.parquet")
    return "".join(
        [
            displays.trace(run),
            perfkit.summarize(run)._repr_html_(),
            displays.advices(perfkit.advise(run, outcomes=[])) or "",
            displays.comparison(perfkit.compare(run, other)),
        ]
    )


@pytest.mark.parametrize("theme", THEMES)
def test_outputs_are_readable_without_scripts_and_network(tab: Any, outputs: str, theme: str) -> None:
    start, dark = THEMES[theme]
    requests: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    document = escape(f"<!DOCTYPE html>{start}{outputs}")
    tab.set_content(
        f'<iframe sandbox="allow-same-origin" style="width:1000px;height:700px" srcdoc="{document}"></iframe>'
    )
    frame = tab.frame_locator("iframe")
    assert frame.locator(".perfkit").count() == 4
    assert [url for url in requests if not url.startswith(("about:", "data:"))] == []
    for place in (".title", ".facts", "td", ".legend", ".said", "pre.code"):
        ink, paper = frame.locator(f".perfkit {place}").first.evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e.closest('.perfkit')).backgroundColor]"
        )
        assert (luminance(paper) < 0.1) == dark
        light, deep = sorted([luminance(ink), luminance(paper)], reverse=True)
        assert (light + 0.05) / (deep + 0.05) > 4.5, place
    widths = frame.locator(".fall, .whole i").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
    assert len(widths) > 6
    assert min(widths) >= 0.9
    height = frame.locator(".perfkit").last.evaluate("e => e.getBoundingClientRect().height")
    assert 300 < height < 1200
