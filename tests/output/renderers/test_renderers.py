"""All formats show the same exact numbers, and no name in a profile can break out of its cell."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import perfkit_core
from perfkit_core.errors import UsageError
from perfkit_core.output.renderers import csv, markdown, text
from perfkit_core.output.renderers import json as as_json
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.html import page as html
from perfkit_core.output.report.display import Display
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.pages.profile import run_report
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import CALLS, DEVICE, OP_NAME, SELF_DEVICE, Column, share
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.report_data import Chart, Fact, Report, Section, Source
from tests.support.events import device, host, trace
from tests.support.golden import check_golden
from tests.support.small_trace import HOSTILE, KERNEL, small_trace


def one(table: pd.DataFrame, **more: object) -> Report:
    source = Source("a", "runs/a", (Finding("code", "message"),), {"Framework": Fact("fw 1")})
    return Report("title", (source,), (Section("view", "Title", table, **({"columns": (CALLS, OP_NAME)} | more)),))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "render"), [("summary.txt", text.render), ("summary.md", markdown.render)])
def test_output_for_people_is_the_golden_one(name: str, render: object) -> None:
    views = choose_views(["overview", "model", "operators", "memcpy"])
    shown = render(summary_report(small_trace(), views, ViewRequest(), Display(limit=4)))  # type: ignore[operator]
    check_golden(name, shown)


def test_text_has_no_escape_codes_except_on_a_terminal() -> None:
    report = run_report(small_trace(HOSTILE))
    assert "\x1b" not in text.render(report)
    on_terminal = text.render(report, width=120, styled=True)
    assert set(re.findall(r"\x1b\[(\d+)m", on_terminal)) == {"0", "1", "2", "33", "36"}, "bold, dim, yellow, cyan"


def layouts() -> Iterator[tuple[str, pd.DataFrame, int | None, dict[str, object]]]:
    """Return a title, a table, the width of the terminal, and more of its section."""
    kernel = pd.DataFrame({"name": [KERNEL], "dur_ns": [123_456_789_012_345_678]})
    for width in (None, 40, 100):
        yield "names are cut around the function, numbers never", kernel, width, {}
    yield "the width of a terminal", pd.DataFrame({"name": ["long_" * 30], "kind": ["kernel"], "dur_ns": [1]}), 90, {}
    files = pd.DataFrame(
        {"name": ["f" * 40], "file": ["/a/long/path/" * 5], "device": ["cuda:0"], "total_cpu_ns": [5], "calls": [7]}
    )
    yield "numbers before long text beside the name", files, 80, {}
    yield "room for the long text", files, 120, {}
    numbered = pd.concat([files[["calls"]], files], axis=1).iloc[:, :5]
    yield "the first long text is the name, wherever it stands", numbered, 60, {}
    many = pd.DataFrame({"name": ["a"]} | {f"column_{i}_ns": [123_456] for i in range(20)})
    yield "columns that do not fit are named", many, 100, {}
    yield "all columns in a pipe", many, None, {}
    layers = pd.DataFrame(
        {"name": ["fw::" + "m" * 40] * 2, "op_name": ["o" * 30] * 2, "module": ["net/" + "a" * 30] * 2}
    ).assign(**{f"{part}_ns": [10**7, 10**7] for part in ("self_cpu", "total_cpu", "avg_cpu", "max_cpu")})
    grouped = {"columns": (OP_NAME, Column("module", "Module", by=("module",)))}
    yield "groupings fit before numbers, since rows may differ only there", layers, 80, grouped
    cut = pd.DataFrame({"name": ["a", "b", "c"], "bytes": pd.array([None] * 3, "Int64")})
    yield "rows after the limit, and a column without values", cut, None, {"limit": 2}
    yield "no rows", cut.head(0), None, {"empty": "nobody looked"}
    lost = pd.DataFrame({"name": list("abc"), "module": [None, None, "m"], "flops": pd.array([None] * 3, "Int64")})
    yield "columns without values in the table, and in the first rows", lost, None, {"limit": 2}
    nothing = pd.array([None], "Float64")
    device = {"name": ["a"], "self_device_ns": [1], "self_device_ratio": nothing, "rank": nothing}
    yield "no share where there is a time, no rank and no error", pd.DataFrame(device).assign(error=None), None, {}
    shares = {"name": ["a"], "self_device_ns": nothing, "self_device_ratio": nothing, "device_ratio": nothing}
    yield "a share without a time says that it is one", pd.DataFrame(shares), None, {}
    sentence = "a reason that is longer than any name may be, " * 4
    yield "notes are whole in a pipe", pd.DataFrame({"name": [sentence], "note": [sentence]}), None, {}


def test_layouts_of_text_are_the_golden_ones() -> None:
    lines = []
    for title, table, width, more in layouts():
        shown = re.sub(r"\x1b\[\dm", "", text.render(one(table, **more), width))
        assert max(map(len, shown.splitlines())) <= (width or 400)
        lines += [f"# {title}; width {width}", *shown.partition("Data quality")[2].splitlines()[3:], ""]
    check_golden("output/layouts.txt", "\n".join(lines))


def test_not_recorded_is_what_the_whole_table_lacks() -> None:
    table = pd.DataFrame({"name": list("abc"), "module": [None, None, "m"], "flops": pd.array([None] * 3, "Int64")})
    assert "No values for: FLOPs\n" in markdown.render(one(table, limit=2))
    assert "No values in these rows: Module\n" in markdown.render(one(table, limit=2))
    page = html.render(one(table, limit=2))
    assert "No values for: FLOPs<" in page
    assert "No values in these rows" not in page, "a page holds all rows"


def test_not_recorded_is_decided_before_rows_are_chosen() -> None:
    """Both operators of the recording have canonical names, but only fw::matmul has shapes."""
    views = choose_views(["operators"])
    request = ViewRequest(by=("shape",))
    display = Display(show="fw::add|outside")
    shown = text.render(summary_report(small_trace(), views, request, display))
    (line,) = (line for line in shown.splitlines() if line.startswith("No values for"))
    assert "Shapes" not in line
    assert "No values in these rows: Shapes" in shown
    of_some = text.render(summary_report(small_trace(), views, ViewRequest(pattern="fw::add"), Display()))
    assert "No values for" not in of_some, "what a filter left out may hold it"
    assert "No values in these rows: Op name, Self CPU memory" in of_some


def test_what_events_hold_is_recorded_in_any_view() -> None:
    """The recording has shapes, but no layers."""
    found = pd.DataFrame({"name": ["a"], "shapes": [None], "module": [None]})
    view = View("made", "Made", "made by hand", lambda trace, request: found)
    shown = text.render(summary_report(small_trace(), [view], ViewRequest(), Display()))
    assert "No values for: Module\nNo values in these rows: Shapes\n" in shown


def test_without_work_of_a_device_people_see_no_zeros_of_it() -> None:
    """Formats for machines contain nulls. If a device has work, its zeros are shown to people, too."""
    zeros = {"self_device_ns": [0], "device_ratio": [0.0], "cpu_ns": [0]}
    found = pd.DataFrame({"name": ["a"], "device": ["cpu"]} | zeros)
    columns = (SELF_DEVICE, share("device_ratio", "Device", place=DEVICE))
    view = View("made", "Made", "made by hand", lambda trace, request: found, columns)
    idle = trace([host("a", "operator", 0, 10)])
    report = summary_report(idle, [view], ViewRequest(pattern="a"), Display())
    for render in (text.render, markdown.render, html.render):
        assert "No values for: Self device, Device" in render(report)
        assert "Self device (ns)" not in render(report)
        assert "CPU (ns)" in render(report)
    assert json.loads(as_json.render(report))["views"]["made"][0]["self_device_ns"] is None
    busy = trace([host("a", "operator", 0, 10), device("k", "kernel", 0, 5)])
    assert "Self device (ns)" in text.render(summary_report(busy, [view], ViewRequest(), Display()))


def test_not_recorded_of_a_real_profile_is_what_no_row_has(traces: Path) -> None:
    trace = perfkit_core.load(traces / "torch" / "mi250-minitoy-train.json.gz")
    report = summary_report(trace, choose_views(["graph"]), ViewRequest(), Display(limit=3))
    whole = perfkit_core.summarize(trace, "graph")
    never = [str(name) for name in whole.columns if whole[name].isna().all()]
    some = [str(name) for name in whole.columns if whole[name].head(3).isna().all() and name not in never]
    lines = {line.partition(": ")[0]: line.partition(": ")[2] for line in text.render(report).splitlines()}
    assert "forward" in some
    assert not lines.get("No values for", "").count("Forward")
    assert [choose_views(["graph"])[0].column(name).title for name in some] == lines["No values in these rows"].split(
        ", "
    )


def test_html_says_a_fact_once() -> None:
    facts = {"Ranks": Fact("0 of 2", "rank 0 of 2"), "Recorded": Fact("2023-11-14 22:13 UTC")}
    page = html.render(Report("t", (Source("a", "a", (), facts),), ()))
    values = re.findall(r"<dt>(\w+)</dt><dd><bdi>([^<]*)</bdi>", page)
    assert values == [("Ranks", "0 of 2"), ("Recorded", "2023-11-14 22:13 UTC")]


def test_json_is_the_contract() -> None:
    table = pd.DataFrame(
        {
            "name": [HOSTILE, "b"],
            "calls": np.array([1, 2], np.int32),
            "dur_ns": pd.array([2**62 + 1, None], "Int64"),
            "old_ns": [3.0, np.nan],
            "ratio": [0.5, np.inf],
            "op_name": pd.Categorical(["conv", None]),
            "seen": [True, False],
        }
    )
    raw = as_json.render(one(table))
    assert not re.search(r"NaN|Infinity", raw)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", raw)
    assert json.loads(raw) == {
        "source": "runs/a",
        "quality": [{"code": "code", "message": "message"}],
        "views": {
            "view": [
                {"name": HOSTILE, "calls": 1, "dur_ns": 2**62 + 1, "old_ns": 3, "ratio": 0.5,
                 "op_name": "conv", "seen": True},
                {"name": "b", "calls": 2, "dur_ns": None, "old_ns": None, "ratio": None,
                 "op_name": None, "seen": False},
            ]
        },
    }  # fmt: skip
    assert '"old_ns": 3,' in raw, "an integer, not 3.0"


def test_json_of_several_sources() -> None:
    report = one(pd.DataFrame({"name": []}))
    both = Report("t", report.sources * 2, report.sections, data={"matched_share": np.float64(0.5), "n": np.int64(2)})
    content = json.loads(as_json.render(both))
    assert content["source"] == ["runs/a", "runs/a"]
    assert content["quality"] == [{"code": "code", "message": "message"}]
    assert (content["matched_share"], content["n"]) == (0.5, 2)
    assert content["views"] == {"view": []}


def test_csv_comes_back_as_it_went() -> None:
    names = [HOSTILE.replace("\x00", ""), 'a,"b"', "x\r\ny"]
    table = pd.DataFrame({"name": names, "dur_ns": pd.array([2**62 + 1, None, 3], "Int64")})
    back = pd.read_csv(io.StringIO(csv.render(one(table))), dtype={"dur_ns": "Int64"}, lineterminator="\n")
    assert back["name"].tolist() == names
    assert back["dur_ns"].equals(table["dur_ns"])


def test_csv_holds_one_table() -> None:
    section = one(pd.DataFrame({"name": ["a"]})).sections[0]
    with pytest.raises(UsageError, match="--view"):
        csv.render(Report("t", (), (section, section)))


@pytest.mark.parametrize("name", [HOSTILE, "a|b", "a\\|b", "`a`|``", "a\nb", "__init__", "*x*", "[a](http://b)"])
def test_markdown_names_stay_in_their_cell(name: str) -> None:
    shown = markdown.render(one(pd.DataFrame({"name": [name], "calls": [1]})))
    row = shown.rstrip("\n").splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3, row
    inner = row.split(" | ")[0].removeprefix("| ")
    assert inner.startswith("`")
    assert inner.endswith("`")


class Page(HTMLParser):
    """The tags, addresses and cell texts of a page, as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_html_shows_hostile_names_as_text() -> None:
    table = pd.DataFrame({"name": [HOSTILE], HOSTILE: [HOSTILE], "dur_ns": [5]})
    source = Source(HOSTILE, HOSTILE, (Finding(HOSTILE, HOSTILE),), {HOSTILE: Fact(HOSTILE)})
    section = Section("v", HOSTILE, table, HOSTILE, chart=Chart("bar", "name", ("dur_ns",)))
    rendered = html.render(Report(HOSTILE, (source, source), (section, section), (HOSTILE,)))
    page = Page(rendered.replace(_library(), ""))
    assert page.tags.count("script") == 18, (
        "data of two charts, texts, units, links, the library, the mark in the head, and eleven scripts"
    )
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.cells[0].strip().endswith(visible(HOSTILE))
    assert "\u202e" not in rendered.replace(_library(), "")


def test_html_needs_no_host() -> None:
    page = Page(html.render(run_report(small_trace())).replace(_library(), ""))
    assert not [
        value for name, value in page.attributes if name in ("src", "href") and not (value or "").startswith("#")
    ]
    assert any("default-src 'none'" in (value or "") for name, value in page.attributes if name == "content")


def test_html_is_small_without_charts() -> None:
    rendered = html.render(one(pd.DataFrame({"name": ["a"], "ratio": [7.0]})))
    assert len(rendered) < 21_000
    assert "--share:100.0%" in rendered, "a bar never leaves its cell"


def test_html_hides_the_rows_after_the_limit() -> None:
    rendered = html.render(one(pd.DataFrame({"name": list("abc")}), limit=2))
    assert rendered.count('<tr class="more">') == 1
    assert "Show all 3 rows" in rendered


def _library() -> str:
    from perfkit_core.output.renderers.html import packing

    return packing.library("plotting")


def test_a_wrapped_command_breaks_no_quotes() -> None:
    command = "perfkit compare 'a long name with spaces.json' \"another 'long' name with spaces.json\""
    shown = text.render(Report("", (), (), next=command), 40)
    assert shlex.split(shown[shown.index("next:") :].replace(" \\\n", " "))[1:] == shlex.split(command)
    assert " \\\n" in shown
