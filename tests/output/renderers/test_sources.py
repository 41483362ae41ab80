"""The sources of a report side by side: the facts that differ, and each finding once."""

from __future__ import annotations

from perfkit_core.output.renderers import markdown, parts, text
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.report_data import Fact, Report, Source
from tests.support.golden import check_golden

ROUNDED, STEPLESS = Finding("rounded", "clocks are rounded"), Finding("no-steps", "no steps")
TWO = Report(
    "Two",
    (
        Source("a", "/a", (ROUNDED, STEPLESS), {"Framework": Fact("fw 1"), "Steps": Fact("3", "3 steps")}),
        Source("b", "/b", (ROUNDED,), {"Framework": Fact("fw 1"), "Ranks": Fact("0", "rank 0")}),
    ),
    (),
    headline=("It is slower.",),
    warnings=("Other devices.",),
)


def test_facts_are_rows_of_all_sources() -> None:
    found = {fact.name: (fact.values, fact.same) for fact in parts.source_facts(TWO)}
    assert found == {
        "Framework": (("fw 1", "fw 1"), True),
        "Steps": (("3", "-"), False),
        "Ranks": (("-", "0"), False),
        "Source": (("/a", "/b"), False),
    }


def test_a_finding_of_several_sources_is_shown_once() -> None:
    found = [(one.label, one.code) for one in parts.findings(TWO)]
    assert found == [("all", "rounded"), ("a", "no-steps")]
    alone = Report("One", TWO.sources[:1], ())
    assert [one.label for one in parts.findings(alone)] == ["", ""]


def test_text_and_markdown_of_two_sources_are_the_golden_ones() -> None:
    check_golden("output/two_sources.txt", text.render(TWO))
    check_golden("output/two_sources.md", markdown.render(TWO))


def test_a_brief_report_shows_the_first_warning_of_each_code() -> None:
    ranks = tuple(Finding("lost", f"{count} of 9 events are lost (rank {count})") for count in (1, 2, 3))
    others = tuple(Finding(f"code-{number}", "one more") for number in range(4))
    report = Report("One", (Source("a", "/a", (*ranks, *others), {}),), ())
    brief = text.render(report, 60, height=40)
    assert (
        "  ! 1 of 9 events are lost (rank 1) [lost] and 2 more\n  ! one more [code-0]\n  ! one more [code-1]\n" in brief
    )
    assert "  … 2 more (perfkit summary SOURCE --view findings)\n" in brief
    assert "rank 2" not in brief
    assert all(f"rank {count}" in text.render(report, 60) for count in (1, 2, 3))
    assert "…" not in text.render(report, 60)
