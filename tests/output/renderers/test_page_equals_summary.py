"""A page shows the same tables as ``perfkit summary``, cell by cell: the same numbers as JSON, and the same words as
Markdown and text. The test reads only the HTML of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.base.language.messages import worded
from perfkit_core.cli.main import main
from perfkit_core.output.renderers import text
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.report.display import Display
from perfkit_core.output.report.summary import summary_report
from perfkit_core.pages.profile import LONGEST, REQUEST, page_views
from perfkit_core.plugins.contracts import View
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import opened
from perfkit_core.readers.read_options import DEFAULT
from tests.support.page_tables import Cell, Shown, page_sections

TRACES = (
    "torch/mi250-minitoy-train.json.gz",
    "torch/dlrm-8xv100",
    "paddle/cpu-3.3.1/cnn_small/cycle0.pb",
)
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01, **SIZES} | {f"{one}/s": SIZES[one] for one in SIZES}
UNITS |= {"GFLOP/s": 1e-3, "TFLOP/s": 1, "GB/s": 1, "TB/s": 1e3}
UNITS |= {f"{letter}FLOP": 1000**power for power, letter in enumerate(["", "k", "M", "G", "T"])}
STEPS = {"steps": "Step time"}
"""Titles of the page's sections, for views whose title on the page differs. These sections have an additional column,
and their units are chosen with this column."""
FIRST = 20
"""Number of rows that formats for people show at first."""


@dataclass(frozen=True)
class Told:
    """A page, and the output of summary for the views on the page."""

    html: str
    sections: dict[str, Shown]
    exact: dict[str, Any]
    markdown: str
    text: str

    def pairs(self) -> Iterator[tuple[str, Shown, list[dict[str, Any]]]]:
        """Yield the name, the section of the page and the JSON rows of each view with rows."""
        for view in page_views():
            if rows := self.exact["views"][view.name]:
                yield view.name, self.sections[STEPS.get(view.name, view.title)], rows


@pytest.fixture(scope="module", params=TRACES)
def told(request: pytest.FixtureRequest, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder, source = tmp_path_factory.mktemp("said"), str(traces / request.param)
    assert main(["report", source, "-o", str(folder / "page.html")]) == 0
    views = ",".join(view.name for view in page_views())
    for name in ("exact.json", "said.md"):
        assert main(["summary", source, "--view", views, "--by", ",".join(REQUEST.by), "-o", str(folder / name)]) == 0
    html = (folder / "page.html").read_text(encoding="utf-8")
    exact = json.loads((folder / "exact.json").read_bytes())
    # The command's text leaves out columns that do not fit.
    profile = opened([Path(source)], DEFAULT, 1, None, lambda progress: None)
    said = text.render(summary_report(profile, page_views(), REQUEST, Display(limit=FIRST)))
    return Told(html, page_sections(html), exact, (folder / "said.md").read_text(), said)


def columns(section: Shown, rows: list[dict[str, Any]], name: str, idle: bool) -> dict[str, int]:
    """Return the position on the page of each column of a view. The page leaves out columns without values. With
    ``idle``, no device has work, and zeros of devices do not count as values."""
    known = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    known = [key for key in known if not idle or "device" not in key.split("_") or any(row[key] for row in rows)]
    if "depth" in known:
        first = known[known.index("depth") + 1]
        known = [first, *(key for key in known if key not in ("depth", first))]
    headings = list(enumerate(section.headings))
    if name in STEPS:
        if headings[0][1] == "Rank and step":
            known = [key for key in known if key not in ("rank", "step")]
        headings = [(at, one) for at, one in headings if not one.startswith(("Rank and step", "Other ("))]
    assert len(known) == len(headings), (name, known, section.headings)
    places: dict[str, int] = {}
    for key in known:  # the page orders columns by their worth
        column = get_plugins().views()[name].column(key)
        at, heading = next(
            (at, one) for at, one in headings
            if one.partition(" (")[0] == column.title and one.endswith("(%)") == (column.unit == "ratio")
        )  # fmt: skip
        headings.remove((at, heading))
        places[key] = at
    return places


def shows(cell: Cell, heading: str, value: Any) -> bool:
    """Return whether a cell shows a value. The cell must have the same text, or the exact number with a rounded
    text."""
    if value is None:
        return cell.text == "-" and not cell.order
    if isinstance(value, bool):
        return cell.text == ("yes" if value else "no")
    if heading in ("Category", "Part", "Outcome"):  # ids such as launch_and_host
        return cell.text == value.replace("_", " ").capitalize()
    if cell.order is None:
        return cell.text == visible(str(value))
    exact = int(cell.order) if cell.order.lstrip("-").isdigit() else float(cell.order)
    unit = re.search(r"\(([^()]+)\)$", heading)
    return bool(exact == value) and rounds(cell.text, value / UNITS[unit[1]] if unit else value)


def rounds(text: str, number: float) -> bool:
    """Return whether a text is the number, rounded to the decimals of the text."""
    if text[0] in "<>":
        return 0 < abs(number) < abs(float(text[1:]))
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - number) <= half * (1 + 1e-9)


@pytest.mark.slow
def test_every_cell_is_that_of_json(told: Told) -> None:
    cells = 0
    idle = "no-device-events" in {finding["code"] for finding in told.exact["quality"]}
    for name, section, rows in told.pairs():
        at = columns(section, rows, name, idle)
        assert len(section.rows) == min(len(rows), LONGEST), name
        for number, (shown, row) in enumerate(zip(section.rows, rows, strict=True)):
            for key, column in at.items():
                words = key in ("cause", "state") and row[key] is not None
                value = worded(row[key], get_plugins().views()[name].column(key)) if words else row[key]
                value = "· " * row["depth"] + value if "depth" in row and key in ("name", "cause") else value
                assert shows(shown[column], section.headings[column], value), (name, number, key, shown[column], value)
                cells += 1
    assert cells > 300


def test_every_cell_is_that_of_markdown(told: Told) -> None:
    told_of = {plain(part.split("\n", 1)[0]): part for part in re.split(r"^## ", told.markdown, flags=re.MULTILINE)[1:]}
    for view, section in others(told):
        lines = [line for line in told_of[view.title].splitlines() if line.startswith("| ")]
        head, _, *rows = ([plain(cell) for cell in re.split(r"(?<!\\) ?\| ?", line)[1:-1]] for line in lines)
        check(view.name, section, head, rows, lambda found, wanted: found == wanted)
        left = re.search(r"^… (\d+) more rows?$", told_of[view.title], re.MULTILINE)
        assert len(section.rows) == len(rows) + (int(left[1]) if left else 0), view.name


def test_every_cell_is_that_of_text(told: Told) -> None:
    parts = told.text.split("\n\n")
    told_of = {part.lstrip().split("\n", 1)[0].partition("  --view ")[0]: part.splitlines() for part in parts}
    for view, section in others(told):
        lines = told_of[view.title]
        ruled = [number for number, line in enumerate(lines) if re.fullmatch("─+", line)]
        count = min(len(section.rows), FIRST)
        head, *rows = (re.split(r" {2,}", line.strip()) for line in
                       (lines[ruled[0] - 1], *lines[ruled[0] + 1 : ruled[0] + 1 + count]))  # fmt: skip
        check(view.name, section, head, rows, alike)


def others(told: Told) -> Iterator[tuple[View, Shown]]:
    """Return the views whose tables have the same columns on the page."""
    named = ((view, told.sections.get(view.title)) for view in page_views() if view.name not in STEPS)
    yield from ((view, section) for view, section in named if section is not None)


def check(name: str, section: Shown, head: list[str], rows: list[list[str]], same: Callable[[str, str], bool]) -> None:
    """Check that the first rows on the page have the same cells. Columns of the page that are not in ``head`` must be
    empty in these rows."""
    assert len(rows) == min(len(section.rows), FIRST), name
    at = [section.headings.index(heading) for heading in head]
    for number, (shown, row) in enumerate(zip(section.rows, rows, strict=False)):
        for column, cell in zip(at, row, strict=True):
            assert same(cell, shown[column].text), (name, number, section.headings[column])
    left = [column for column in range(len(section.headings)) if column not in at]
    assert all(shown[column].text == "-" for shown in section.rows[:FIRST] for column in left), name


def plain(text: str) -> str:
    """Return the text that Markdown shows: code spans without backticks, and other text without escapes."""
    span = re.fullmatch(r"(`+)( ?)(.*?)\2\1", text)
    return span[3].replace("\\|", "|") if span else re.sub(r"\\(.)", r"\1", text)


def alike(found: str, whole: str) -> bool:
    """Return whether two texts are equal apart from a tree's indent. The first text may be a shortened form of the
    second."""
    name = re.sub(r"^(· )+", "", whole)
    pieces = [re.escape(piece) for piece in found.split("…")]
    return bool(re.fullmatch(".*?".join(pieces) if len(pieces) > 1 else pieces[0], name, re.DOTALL)) or (
        "…" in found and re.search(".*?".join(pieces), name, re.DOTALL) is not None
    )


def test_findings_are_those_of_json(told: Told) -> None:
    found = re.findall(r"<li>.*?<bdi>([^<]*)</bdi> <code>([^<]*)</code></li>", told.html)
    assert {(unescape(code), unescape(message)) for message, code in found} == {
        (one["code"], one["message"]) for one in told.exact["quality"]
    }


def test_views_without_rows_are_listed_with_the_reason(told: Told) -> None:
    empty = [view.title for view in page_views() if not told.exact["views"][view.name]]
    listed = unescape(told.html.partition('<dl class="missing">')[2].partition("</dl>")[0])
    assert sorted(re.findall(r"<span[^>]*>([^<]+)</span>", listed)) == sorted(
        {*empty} | ({"Memory over time"} if "Memory of each device" in empty else set())
    )
    assert listed.count("<dt>") == len(set(re.findall(r"<dd[^>]*>([^<]+)</dd>", listed)))
