"""The HTML that notebooks show for traces, advice and comparisons. A :class:`perfkit_core.api.Summary` has its own."""

from __future__ import annotations

from dataclasses import replace

from perfkit_core.advice import reports
from perfkit_core.advice.advice import Advices
from perfkit_core.advice.text import step_or_recording
from perfkit_core.compare.comparison import Comparison
from perfkit_core.compare.report import comparison_report, first_look
from perfkit_core.output.renderers.html import page
from perfkit_core.output.report import BRIEF_ROWS
from perfkit_core.output.report.summary import account_bar, choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.report_data import Report
from perfkit_core.trace.model.trace import Trace


def trace(shown: Trace) -> str:
    return page.fragment(verdict(shown))


def verdict(shown: Trace) -> Report:
    """Return a report with the facts about a trace, the verdict, and a bar with the words of the account."""
    report = summary_report(shown, choose_views(["causes"]), ViewRequest(), brief=True)
    bars = [account_bar(section) for section in report.sections if section.name == "causes" and len(section.table)]
    return replace(report, sections=(), glance=tuple(bars))


def advices(shown: Advices) -> str | None:
    """Return the intervals of all advice, and the first items of advice in words. Return None for advice without its
    recording."""
    if shown.trace is None:
        return None
    report = reports.brief(shown, shown.trace)
    texts = tuple(section for section in report.sections if section.name != reports.IN_SUM)
    lines = tuple(reports.combined_in_words(shown, step_or_recording(shown.trace)))
    return page.fragment(replace(report, sections=texts, glance=(replace(reports.overview(shown), lines=lines),)))


def comparison(shown: Comparison) -> str:
    """Return the verdict, the waterfall from base to other, and the operators that differ most."""
    report = first_look(comparison_report(*shown.captures))
    return page.fragment(replace(report, sections=tuple(replace(s, limit=BRIEF_ROWS) for s in report.sections)))
