"""The sections on advice in a page: every renderer shows them, hostile names stay text, and an error does not break the
page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from perfkit_core.advice import explain, reports
from perfkit_core.advice.advice import Prediction
from perfkit_core.advice.engine import advise
from perfkit_core.advice.rule_input import Candidate
from perfkit_core.advice.text import expected
from perfkit_core.output.renderers import csv, markdown, text
from perfkit_core.output.renderers.html import page as html
from perfkit_core.pages.profile import run_report
from perfkit_core.plugins.contracts import Rule
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.ranks.profile import opened
from perfkit_core.readers.load import load
from perfkit_core.replay.transforms import Quantity, Remove, Scale
from perfkit_core.trace.model.report_data import Report, Section
from perfkit_core.trace.model.trace import Trace, with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.events import host, trace
from tests.support.rendered import rendered
from tests.support.small_trace import HOSTILE

MS = 1_000_000
FENCED = "first\n```\nlast"


def words(**more: object) -> Report:
    return Report("t", (), (Section("s", "Title", pd.DataFrame(), **more),))


def test_lines_and_code_in_every_format() -> None:
    report = words(note="Note", lines=("One.", "Two."), code="a = 1\n  b")
    assert text.render(report) == "t\n\nTitle\nNote\nOne.\nTwo.\n    a = 1\n      b\n"
    assert markdown.render(report).endswith("## Title\n\nNote\n\n- One.\n- Two.\n\n```\na = 1\n  b\n```\n")
    page = html.render(report)
    assert '<p class="line"><bdi>Two.</bdi></p>' in page
    assert "a = 1\n  b" in page
    assert "nothing to show" not in page.lower()


def test_code_cannot_leave_its_fence() -> None:
    assert "````\nfirst\n```\nlast\n````" in markdown.render(words(code=FENCED))


def test_hostile_text_is_text() -> None:
    page = html.render(words(lines=(HOSTILE,), code=HOSTILE))
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    for shown in (text.render(words(lines=(HOSTILE,), code=HOSTILE)), markdown.render(words(lines=(HOSTILE,)))):
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_csv_takes_the_only_table() -> None:
    table = Section("t", "T", pd.DataFrame({"a_ns": [1]}))
    assert csv.render(Report("t", (), (words().sections[0], table))) == "a_ns\n1\n"


def loading(rank: int | None = None) -> Trace:
    """Return two steps of 100 ms. Making the batch takes 60 ms of each step."""
    found = []
    for step in range(2):
        begin = step * 100 * MS
        found += [
            host(f"step {step}", "step", begin, 100 * MS, step=step),
            host("next", "dataloader", begin, 60 * MS),
            host("fw::matmul", "operator", begin + 60 * MS, 40 * MS),
        ]
    return trace(found, rank)


def test_a_page_shows_the_table_and_the_largest_saving() -> None:
    report = run_report(loading())
    names = [section.name for section in report.sections]
    assert names[:2] == ["steps", "advice"]
    assert names[2].startswith("advice-loader-workers-")
    table = report.sections[1].table
    assert table["saving_ns"].iloc[0] == 100 * MS - table["p50_ns"].iloc[0]
    assert "Load data in worker processes" in html.render(report)


def test_a_page_shows_three_at_most(traces: Path) -> None:
    for file in ("pairs/resnet50-workers0.json.gz", "h100-qwen05b.json.gz"):
        found = load(traces / "torch" / file)
        report = run_report(found)
        shown = [one for one in report.sections if one.name.startswith("advice-") and one.title[0].isdigit()]
        assert len(shown) == min(reports._IN_WORDS, len(advise(found).advice))


def test_a_page_without_advice_says_so() -> None:
    (table, *parts) = reports.of_page(trace([host("step", "step", 0, 100, step=0), host("op", "operator", 0, 60)]))
    assert [part.name for part in parts] == ["advice-not_evaluable"]
    assert table.table.empty
    assert "no change was found" in table.empty


def test_a_page_is_made_even_if_advice_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("perfkit_core.advice.engine.advise", broken)
    (section,) = reports.of_page(loading())
    assert section.empty == "no advice could be given (RuntimeError: no luck)"


def test_ranks_that_are_never_in_memory_together(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_cycle(with_rank(loading(), rank), tmp_path / f"r{rank}")
    report = run_report(opened([tmp_path / "r0", tmp_path / "r1"]))
    (section,) = (section for section in report.sections if section.name == "advice")
    assert "for advice on all ranks run perfkit advise SOURCE" in section.empty


def test_a_saving_that_may_be_a_loss_says_so() -> None:
    def reported(factor: Quantity) -> list[Report]:
        found = loading()
        rows = np.flatnonzero(found.rows("name", "fw::matmul"))
        rule = Rule("r", 1, 1, "T", lambda facts: [Candidate("c", {}, rows, transforms=(Scale(rows, factor),))])
        result = advise(found, plugins=SimpleNamespace(rules=lambda: {"r": rule}, framework=lambda name: Framework("")))
        return [reports.report(result, found), reports.brief(result, found)]

    def told(factor: Quantity) -> str:
        return " ".join(line for one in reported(factor)[0].sections for line in rendered(one.lines))

    surely, perhaps = Quantity(0.4, 0.5, 0.9, "x"), Quantity(0.4, 0.5, 1.1, "x")
    # savings of 24, 20 or 4 ms of 40 ms, and an interval that is wide without earlier outcomes (experience.py)
    assert "Saving: 20.0 ms (4.00 ms to 26.5 ms)" in told(surely)
    assert "may also cost time" not in told(surely)
    assert "Detected problems whose changes may also cost time: r-" in told(perhaps)
    assert "Saving:" not in told(perhaps)
    brief = reported(perhaps)[1]
    assert "changes may also cost time: r-" in rendered(brief.sections[-1].lines)[0]
    assert re.search(r"--explain r-\w+$", brief.next)


def test_small_savings_are_listed() -> None:
    found = loading()
    report = reports.report(advise(found, thresholds={"least_saving": 0.9}), found)
    told = " ".join(rendered(report.sections[-1].lines))
    assert "Detected problems whose changes" in told
    assert "loader-workers-" in told
    assert rendered(report.headline) == ("No change was found that would save time.",)


def told(*parts: int) -> Report:
    """Return the report on a step of 100 µs, with one advice for each number of ``parts``: the time in ns that the
    advice removes. The noise is 5 µs in both directions."""
    rows = [host("step", "step", 0, 100_000, step=0)]
    rows += [host(f"op{n}", "operator", n * 10_000, part) for n, part in enumerate(parts)]
    recording = trace(rows)

    def rule(n: int) -> Rule:
        at = np.flatnonzero(recording.rows("name", f"op{n}"))
        return Rule(f"r{n}", n, 1, "T", lambda facts: [Candidate("c", {}, at, transforms=(Remove(at),))])

    rules = {f"r{n}": rule(n) for n in range(len(parts))}
    found = advise(recording, plugins=SimpleNamespace(rules=lambda: rules, framework=lambda name: Framework("")))
    return reports.report(found, recording)


def test_one_two_and_many_changes() -> None:
    one, two, three = told(10_000), told(10_000, 9_000), told(10_000, 9_000, 1_000)
    assert rendered(one.headline) == (
        "One change: a step takes 100 µs now, and should take 90.0 µs (85.5 µs to 94.5 µs).",
    )
    assert rendered(two.headline)[0].endswith("and should take 81.0 µs (77.0 µs to 85.0 µs) with both changes.")
    assert rendered(three.headline)[0].endswith("and should take 80.0 µs (76.0 µs to 84.0 µs) with all changes.")
    assert not [line for line in rendered(one.sections[-1].lines) if "changes together" in line]
    for report, begin in (
        (two, "Both changes together: step: 100 µs"),
        (three, "All 3 changes together: step: 100"),
    ):
        (line,) = (line for line in rendered(report.sections[-1].lines) if "changes together" in line)
        assert line.startswith(begin)
        assert "never more" not in line


def test_the_headline_counts_changes_with_a_known_saving() -> None:
    recording = trace([host("step", "step", 0, 100_000, step=0), host("op", "operator", 0, 90_000)])
    at = np.flatnonzero(recording.rows("name", "op"))

    def headline(*found: Candidate) -> tuple[str, ...]:
        rules = {f"r{n}": Rule(f"r{n}", n, 1, "T", lambda facts, one=one: [one]) for n, one in enumerate(found)}
        told = advise(recording, plugins=SimpleNamespace(rules=lambda: rules, framework=lambda name: Framework("")))
        return rendered(reports.report(told, recording).headline)

    unknown = Candidate("c", {}, at, method="none")
    (one,) = headline(Candidate("c", {}, at, transforms=(Scale(at, 0.5),)), unknown)
    assert one.startswith("One change with a known saving: a step takes 100 µs now, and should take ")
    (none,) = headline(unknown)
    assert none == "No change was found that would save time; the saving of the advice below is unknown."


def test_a_ceiling_is_that_of_one_change_by_itself() -> None:
    """The replay without the operator of 10 µs saves 10 µs. This ceiling is left out, because the interval reaches it:
    fixes may save more than the replay knows."""
    assert "Saving: 10.0 µs (5.70 µs to 13.8 µs)" in rendered(told(10_000).sections[0].lines)
    half = Prediction("replay", 100, p50_ns=90, saving_ns=10, saving_p10_ns=5, saving_p90_ns=15, ceiling_ns=16)
    for ceiling, more in ((16, "; at most 16 ns by itself"), (15, ""), (None, "")):
        lines = rendered(tuple(expected(replace(half, ceiling_ns=ceiling), "step")))
        assert lines[-1] == f"Saving: 10 ns (5 ns to 15 ns){more}"


def test_without_steps_no_step_is_mentioned() -> None:
    recording = trace([host("op", "operator", 0, 50_000), host("op", "operator", 60_000, 40_000)])
    at = np.flatnonzero(recording.rows("name", "op"))
    rule = Rule("r", 1, 1, "T", lambda facts: [Candidate("c", {}, at, transforms=(Scale(at, 0.5),))])
    found = advise(recording, plugins=SimpleNamespace(rules=lambda: {"r": rule}, framework=lambda name: Framework("")))
    told = reports.report(found, recording)
    assert rendered(told.headline)[0].startswith("One change: the recording takes 100 µs now")
    assert "The replay of the unchanged recording has an error of 0%." in rendered(told.sections[-1].lines)
    (sure,) = (part for part in explain.report(found.advice[0], found, recording).sections if part.name == "trust")
    assert rendered(sure.lines)[1].startswith(
        "No steps were recorded, so the variation between steps is unknown; ±5% is assumed"
    )
