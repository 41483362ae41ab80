"""What notebooks show: HTML that needs nothing else, with the numbers of the text, and names that are only text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import perfkit
from perfkit_core.output.renderers.html import bars, page
from perfkit_core.trace.model.report_data import Chart, Section
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA
from tests.support.small_trace import HOSTILE, small_trace

EXAMPLES = DATA / "examples"


class Content(HTMLParser):
    """The tags, attributes and text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags[-1] != "style":
            self.texts.append(data)


@pytest.fixture(scope="module")
def shown() -> Iterator[Callable[[Any], dict[str, str]]]:
    """Return a function that formats an object as the cell of a notebook does: MIME type → text."""
    interactiveshell = pytest.importorskip("IPython.core.interactiveshell", reason="notebooks need IPython")
    shell = interactiveshell.InteractiveShell()
    shell.run_line_magic("load_ext", "perfkit")

    def formatted(value: Any) -> dict[str, str]:
        data: dict[str, str] = shell.display_formatter.format(value)[0]
        return data

    yield formatted
    shell.history_manager.end_session()


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    trace = perfkit.load(EXAMPLES / "torch-mlp-loader.perfkit.parquet")
    return {
        "trace": trace,
        "summary": perfkit.summarize(trace),
        "advice": perfkit.advise(trace, outcomes=[]),
        "comparison": perfkit.compare(trace, perfkit.load(EXAMPLES / "torch-mlp-base.perfkit.parquet")),
    }


PARTS = {
    "trace": ["whole"], "summary": ["whole", "share"], "advice": ["spans", "band m0", "code"],
    "comparison": ["fall", "spans"],
}  # fmt: skip
"""Object → classes of its pictures and tables."""


@pytest.mark.parametrize("name", PARTS)
def test_each_result_is_html_that_needs_nothing_else(
    name: str, objects: dict[str, Any], shown: Callable[[Any], dict[str, str]]
) -> None:
    data = shown(objects[name])
    assert set(data) == {"text/plain", "text/html"}
    content = Content(data["text/html"])
    assert set(content.tags).isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not [value for key, value in content.attributes if key in ("src", "href") or key.startswith("on")]
    assert "url(" not in data["text/html"]
    assert "@import" not in data["text/html"]
    assert len(data["text/html"]) < 40_000
    classes = " ".join(str(value) for key, value in content.attributes if key == "class")
    assert all(part in classes for part in PARTS[name])


def test_the_style_applies_only_to_the_fragment() -> None:
    """JupyterLab puts all outputs into one document. Each rule begins a line."""
    rules = [line for line in page.fragment_style().splitlines() if line.strip()]
    assert len(rules) > 40
    for rule in rules:
        selectors, brace, _ = rule.partition(" {")
        assert brace, rule
        assert all(".perfkit" in selector for selector in selectors.split(", ")), rule


def test_the_verdict_is_that_of_the_command(objects: dict[str, Any], shown: Callable[[Any], dict[str, str]]) -> None:
    for name in ("trace", "summary"):
        text = "".join(Content(shown(objects[name])["text/html"]).texts)
        assert "Input-bound" in text
    text = "".join(Content(shown(objects["advice"])["text/html"]).texts)
    assert all(str(advice.title) in text for advice in objects["advice"].advice[:3])
    text = "".join(Content(shown(objects["comparison"])["text/html"]).texts)
    assert "From base to other" in text


def test_the_bar_has_the_shares_of_the_account(objects: dict[str, Any], shown: Callable[[Any], dict[str, str]]) -> None:
    trace = objects["trace"]
    table = perfkit.summarize(trace, "causes")
    table = table[table["depth"] == 0]
    wanted = [round(100 * time / table["total_ns"].sum(), 2) for time in table["total_ns"] if time]
    content = Content(shown(trace)["text/html"])
    styles = [str(value) for key, value in content.attributes if key == "style" and "width:" in str(value)]
    assert [float(style.rpartition("width:")[2].rstrip("%")) for style in styles if "--of-" in style] == wanted


def test_names_are_only_text(shown: Callable[[Any], dict[str, str]]) -> None:
    trace = small_trace(HOSTILE)
    names = pd.Series([HOSTILE if name.startswith("fw::") else name for name in trace.column("name").to_pylist()])
    hostile = trace.with_columns(name=pa.chunked_array([pa.array(names).dictionary_encode()]))
    hostile = hostile.with_meta(source=f"runs/{HOSTILE}", framework=HOSTILE)
    for value in (hostile, perfkit.summarize(hostile), perfkit.advise(hostile), perfkit.compare(hostile, hostile)):
        content = Content(shown(value)["text/html"])
        assert set(content.tags).isdisjoint({"script", "img"})
        assert not [key for key, _ in content.attributes if key.startswith("on")]
        assert "alert(1)" in "".join(content.texts)


def test_a_waterfall_by_hand() -> None:
    """The axis begins at 7.5, half of the range of the totals below the least total, and ends at 15."""
    table = pd.DataFrame({
        "name": ["base", "slower", "faster", "other"],
        "difference_ns": pd.array([None, 5, -3, None], "Int64"), "time_so_far_ns": [10, 15, 12, 12],
    })  # fmt: skip
    section = Section("w", "W", table, chart=Chart("waterfall", "name", ("difference_ns", "time_so_far_ns")))
    assert [(bar.left, bar.width, bar.numbers, bar.colour) for bar in bars.waterfall(section)] == [
        (0, 33.33, "10 ns", "total"), (33.33, 66.67, "+5 ns", "more"), (60, 40, "-3 ns", "less"),
        (0, 60, "12 ns", "total"),
    ]  # fmt: skip


def test_a_summary_is_the_text_of_the_command() -> None:
    source = str(EXAMPLES / "torch-mlp-loader.perfkit.parquet")
    summary = perfkit.summarize(source)
    command = [sys.executable, "-m", "perfkit", "summary", source]
    done = subprocess.run(
        command, env={**os.environ, "COLUMNS": "120"}, capture_output=True, encoding="utf-8", check=True
    )
    text = str(summary).rstrip()
    assert done.stdout.startswith(text)
    assert done.stdout.removeprefix(text).strip().startswith("next: perfkit advise ")
    assert list(summary.tables) == ["causes", "model", "operators"]
    for name, table in summary.tables.items():
        pd.testing.assert_frame_equal(table, perfkit.summarize(source, name))
    assert repr(summary) == f"<Summary of {source}: causes, model, operators>"
    chosen = perfkit.summarize(source, by="phase", pattern="addmm", limit=2)
    assert set(chosen.tables["operators"]["name"]) == {"aten::addmm"}
    assert "more row" in str(chosen)


def test_importing_perfkit_outside_of_notebooks_imports_no_part_for_them() -> None:
    code = "import sys, IPython, perfkit; print(sorted(name for name in sys.modules if name.startswith('perfkit')))"
    pytest.importorskip("IPython", reason="notebooks need IPython")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "['perfkit']"


def test_advice_without_its_recording_is_text(shown: Callable[[Any], dict[str, str]]) -> None:
    assert set(shown(replace(perfkit.advise(small_trace()), trace=None))) == {"text/plain"}


def test_a_trace_of_the_terminal_stays_one_line(shown: Callable[[Any], dict[str, str]]) -> None:
    trace: Trace = small_trace()
    assert shown(trace)["text/plain"] == repr(trace)
