"""Comments on a change: short enough for GitHub whatever the input, and safe for any name."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt

from perfkit_core.compare.gate.conditions import parsed
from perfkit_core.compare.pair import CompareOptions
from perfkit_core.compare.report import comparison_report
from perfkit_core.output.renderers import markdown
from perfkit_core.output.renderers.markdown import comment
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.report_data import Report, Section, Source
from tests.support.stepped_trace import stepped_trace

GITHUB = 65_536
HOSTILE = (
    "</details>|`x` <script>alert(1)</script> @octocat #1 !2 [a](http://b) ![](c) **b** GH-3 "
    "<!-- a --> \\| ~~~ ```\n# h"
)


def length(text: str) -> int:
    """Length in UTF-16 code units, at least the number of characters."""
    return len(text.encode("utf-16-le")) // 2


def test_the_verdict_is_first_and_the_tables_are_folded() -> None:
    asked = CompareOptions(conditions=(parsed("step_time > 3%"),), noise=0.01)
    report = comparison_report(
        stepped_trace([20] * 12, source="main"), stepped_trace([30] * 12, source="change"), asked, ("main", "change")
    )
    text = comment(report)
    blocks = text.split("\n\n")
    assert blocks[0] == "### Performance: change against main"
    assert blocks[1] == "**Gate: 1 of 1 conditions failed: step\\_time \\> 3%.**"
    assert blocks[2].startswith("- Slower: the median recorded step takes 30.0 ms instead of 20.0 ms, 50% longer")
    assert "| `step_time > 3%` | failed | 20.0 ms | 30.0 ms | +10.0 ms | 50" in text
    before, _, folded = text.partition("<details>")
    assert re.search(r"^other +- +30\.0$", before, re.MULTILINE), "the waterfall is a text"
    assert "█" in before
    assert "<summary>Step time</summary>\n\n" in folded, "Markdown inside HTML needs a blank line"
    assert folded.count("<details>") + 1 == text.count("</details>")


@pytest.mark.parametrize("size", [10, 3000])
@pytest.mark.parametrize("letter", ["x", "<", "🚀", "@"])
def test_a_comment_is_never_too_long(size: int, letter: str) -> None:
    """Names of any length in every place where a name can be, and more tables, rows and sentences than usual."""
    name = letter * size
    count = 200
    table = pd.DataFrame({"name": [f"{name}{at}" for at in range(count)], "difference_ns": np.arange(count) * 10**6})
    names = ("gate", "waterfall", *(f"table{at}" for at in range(12)))
    sections = tuple(Section(each, name, table, name, limit=None) for each in names)
    findings = tuple(Finding(f"code{at}", f"{name}{at}") for at in range(50))
    report = Report(
        name, tuple(Source(name, name, findings, {}) for _ in range(50)), sections, (name,) * 20, (name,) * 20
    )
    text = comment(report)
    assert length(text) <= GITHUB - 2000
    assert text.count("<details>") == text.count("</details>")
    if size > 10:
        assert "Parts that are too long for a comment are left out." in text
    assert length(comment(replace(report, sections=(), headline=()))) <= GITHUB - 2000


def test_names_cannot_leave_their_place() -> None:
    """A person is not notified, an issue gets no link, and no name becomes HTML or ends a block."""
    table = pd.DataFrame({"name": [HOSTILE], "difference_ns": [5_000_000]})
    sections = tuple(Section(name, HOSTILE, table, HOSTILE) for name in ("gate", "waterfall", "causes"))
    source = Source(HOSTILE, HOSTILE, (Finding("a", HOSTILE),), {})
    text = comment(Report(HOSTILE, (source, source), sections, (HOSTILE, HOSTILE)))
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {token.content for token in inline if token.type == "html_inline"} == {"<!-- -->"}
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert [re.sub(r"<summary>[^<>]*</summary>", "", block).strip() for block in blocks] == [
        "<details>",
        "</details>",
    ] * 2
    assert not {token.type for token in inline} & {"link_open", "image"}
    for at, token in enumerate(inline):
        following = inline[at + 1].content if token.type == "text" and inline[at + 1 :] else ""
        assert not re.search(r"[@#!]\w", token.content if token.type == "text" else ""), token
        assert not (token.content[-1:] in "@#!" and re.match(r"\w", following)) or token.type != "text"
    rows = [token for token in tokens if token.type == "tr_open"]
    assert len(rows) == 2 + 2, "a heading and one row in each of the two tables"
    assert sum(token.type == "fence" for token in tokens) == 1


def test_references_in_cells_are_code() -> None:
    for name in ("GH-12", "@octocat", "www.example.org"):
        assert markdown.cell(name) == f"`{name}`"
    assert markdown.prose("ask @octocat in #12") == r"ask \@<!-- -->octocat in \#<!-- -->12"
