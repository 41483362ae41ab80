"""The sections on advice in a page: every renderer shows them, hostile names stay text, and an error does not break the
page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from perfkit_core.advice import explain, reports
from perfkit_core.advice.advice import Advices, Prediction
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
from tests.support.golden import check_golden
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
    assert names[:2] == ["causes", "advice"]
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
    assert "no rule has a change" in table.empty


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


def advised(recording: Trace, *candidates: Candidate, **thresholds: float) -> tuple[Advices, Trace]:
    """Return the advice with one rule for each candidate."""
    rules = {f"r{n}": Rule(f"r{n}", n, 1, "T", lambda facts, one=one: [one]) for n, one in enumerate(candidates)}
    plugins = SimpleNamespace(rules=lambda: rules, framework=lambda name: Framework(""))
    return advise(recording, plugins=plugins, thresholds=thresholds), recording


def step_of(*parts: int) -> Trace:
    """Return a step of 100 µs with operators op0, op1, … of these times in ns."""
    rows = [host(f"op{n}", "operator", n * 10_000, part) for n, part in enumerate(parts)]
    return trace([host("step", "step", 0, 100_000, step=0), *rows])


def removing(recording: Trace) -> list[Candidate]:
    """Return a candidate for each operator, which removes it."""
    rows = np.flatnonzero(recording.rows("kind", "operator"))
    return [Candidate("c", {}, rows[n : n + 1], transforms=(Remove(rows[n : n + 1]),)) for n in range(len(rows))]


def shown(title: str, report: Report) -> str:
    """Return a report as text, without what is said of the recording."""
    return f"# {title}\n{text.render(replace(report, sources=()))}"


def test_reports_of_one_two_and_three_changes() -> None:
    """The noise of one step is 5 µs in both directions. The ceiling of an operator of 10 µs is left out, because the
    interval reaches it."""
    parts = {"one change": (10_000,), "two changes": (10_000, 9_000), "three changes": (10_000, 9_000, 1_000)}
    recordings = {title: step_of(*times) for title, times in parts.items()}
    found = {title: advised(recording, *removing(recording)) for title, recording in recordings.items()}
    reported = [shown(title, reports.report(*advices)) for title, advices in found.items()]
    check_golden("advice/reports.txt", "\n".join(reported))


def test_reports_of_savings_that_are_not_sure() -> None:
    """Savings are 24, 20 or 4 ms of 40 ms of a batch, or 24 to -4 ms, which may be a loss."""
    batches, whole = loading(), step_of(90_000)
    rows, at = np.flatnonzero(batches.rows("name", "fw::matmul")), np.flatnonzero(whole.rows("name", "op0"))
    surely, perhaps = (Scale(rows, Quantity(0.4, 0.5, most, "x")) for most in (0.9, 1.1))
    unknown, half = Candidate("c", {}, at, method="none"), Candidate("c", {}, at, transforms=(Scale(at, 0.5),))
    pieces = trace([host("op", "operator", 0, 50_000), host("op", "operator", 60_000, 40_000)])
    both = np.flatnonzero(pieces.rows("name", "op"))
    without_steps = advised(pieces, Candidate("c", {}, both, transforms=(Scale(both, 0.5),)))
    loss = advised(batches, Candidate("c", {}, rows, transforms=(perhaps,)))
    cases = {
        "a saving": advised(batches, Candidate("c", {}, rows, transforms=(surely,))),
        "a saving that may be a loss": loss,
        "small savings": (advise(batches, rules=["loader-workers"], thresholds={"least_saving": 0.9}), batches),
        "a saving and an unknown saving": advised(whole, half, unknown),
        "an unknown saving": advised(whole, unknown),
        "no steps were recorded": without_steps,
    }
    reported = [shown(title, reports.report(*found)) for title, found in cases.items()]
    reported.append(shown("a page with a saving that may be a loss", reports.brief(*loss)))
    explained = explain.report(without_steps[0].advice[0], *without_steps)
    reported.append(shown("no steps were recorded, explained", explained))
    check_golden("advice/reports-unsure.txt", "\n".join(reported))


def test_a_ceiling_is_that_of_one_change_by_itself() -> None:
    half = Prediction("replay", 100, p50_ns=90, saving_ns=10, saving_p10_ns=5, saving_p90_ns=15, ceiling_ns=16)
    for ceiling, more in ((16, "; at most 16 ns by itself"), (15, ""), (None, "")):
        lines = rendered(tuple(expected(replace(half, ceiling_ns=ceiling), "step")))
        assert lines[-1] == f"Saving: 10 ns (5 ns to 15 ns){more}"
