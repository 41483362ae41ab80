"""The report on one profile: what a colleague needs to see first, then every view.

What does a hurried reader see first? Few rows of few sections of a report, to be drawn without a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.language.messages import mark, say
from perfkit_core.model.columns import duration, key
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import Profile, Whole
from perfkit_core.report import pictures
from perfkit_core.report.display import Display
from perfkit_core.report.headline import alive_at_peak, headline
from perfkit_core.report.model import Chart, Report, Section
from perfkit_core.report.summary import ROWS, summary_report

FIRST: Final = 3
"""Advice that is shown; what all of it saves together is one more row."""


def glance(sections: Sequence[Section]) -> Iterator[Section]:
    """What the steps are spent on, and the advice that saves most. Each is a part of the section of its name."""
    found = {section.name: section for section in sections}
    if "partition" in found and not found["partition"].table.empty:
        yield _bare(found["partition"], found["partition"].table)
    if "advice" in found:
        yield _bare(found["advice"], _first(found["advice"].table))


def _bare(section: Section, rows: pd.DataFrame) -> Section:
    return replace(section, table=rows.reset_index(drop=True), note="", lines=())


def _first(table: pd.DataFrame) -> pd.DataFrame:
    """The advice with the largest savings, which comes first, and the row of what can be combined, which has no id."""
    if table.empty:
        return table
    known = table[table["saving_ns"].fillna(0) > 0]
    advice = known["id"].notna()
    return known[(advice & (advice.cumsum() <= FIRST)) | ~advice]


ORDER: Final = (
    "steps", "partition", "ranks", "stragglers", "step_trace", "input_pipeline", "overview", "model", "distributed",
    "modules", "operators", "families", "operator_kinds", "operator_tree", "kernels", "memcpy", "memory_manipulation",
    "memory_places", "memory", "memory_peak", "memory_steps", "memory_leaks", "annotations", "device",
)  # fmt: skip
"""Views in reading order. Views that it does not name follow in the order of their registration."""
_OF_STEPS: Final = (key("rank_and_step", "Rank and step"), duration("other_ns", "Other"))
"""What the page adds to the view of steps."""

REQUEST: Final = ViewRequest(by=("families.operator",))
"""What a page asks of its views: families open into their operators."""

LONGEST: Final = 5000
"""Rows of a table that a page holds."""

_OF_RANKS: Final = ("ranks", "stragglers")
"""Views that stand behind all others where a single rank was recorded."""
_PHASES: Final = ("dataloader_ns", "forward_ns", "backward_ns", "optimizer_ns")


_TOTALS: Final = ("total_cpu_ns", "total_device_ns")
_CHARTS: Final = {
    "partition": Chart("share", "category", ("total_ns",)),
    "modules": Chart("icicle", "name", _TOTALS),
    "code": Chart("icicle", "name", _TOTALS),
    "operator_tree": Chart("icicle", "name", _TOTALS),
    "families": Chart("opening", "name", ("device_ns", "self_cpu_ns")),
    "operator_kinds": Chart("sunburst", "name", ("self_device_ns", "self_cpu_ns")),
    "kernels": Chart("ranking", "name", ("total_device_ns",)),
}
"""Pictures of views, by their names."""


def page_views() -> list[View]:
    """The views that belong on a page, in reading order."""
    return _in_order({name: view for name, view in get_plugins().views().items() if view.page and view.group is None})


def run_report(profile: Profile | Trace) -> Report:
    """Head facts, headline, and a section for every view that belongs on a page, step time with its chart first."""
    views = page_views()
    report = summary_report(profile, views, REQUEST, Display(limit=ROWS))
    tables = {section.name: section.table for section in report.sections}
    shown = [_shown(section, view, tables) for section, view in zip(report.sections, views, strict=True)]
    sections = sorted(shown, key=lambda section: section.name in _OF_RANKS and section.table.empty)
    title = say("Profile of {name}", name=report.sources[0].label)
    advice = _advice(profile)
    sections[1:1] = (*advice, *_timeline(profile))
    _insert_curve(sections, profile, tables)
    first, said = tuple(glance(sections)), (*headline(tables), *pictures.worst_rank(sections))
    return replace(report, title=title, sections=tuple(sections), headline=said, glance=first)


def _advice(profile: Profile | Trace) -> tuple[Section, ...]:
    """Behind the step time; of many ranks only that it is to be had: they are never in memory together."""
    from perfkit_core.advice import reports

    trace = profile.trace if isinstance(profile, Whole) else profile
    return reports.of_page(trace) if isinstance(trace, Trace) else reports.elsewhere()


def _timeline(profile: Profile | Trace) -> tuple[Section, ...]:
    """Of ranks that are never in memory together there is none."""
    trace = profile.trace if isinstance(profile, Whole) else profile
    return (pictures.timeline_section(trace),) if isinstance(trace, Trace) else ()


def _insert_curve(sections: list[Section], profile: Profile | Trace, tables: Mapping[str, pd.DataFrame]) -> None:
    """Before the first section on memory, with what was alive at the peak."""
    trace = profile.trace if isinstance(profile, Whole) else profile
    names = [section.name for section in sections]
    if isinstance(trace, Trace) and "memory_places" in names:
        alive = tuple(alive_at_peak(tables["memory_peak"]))
        sections.insert(names.index("memory_places"), replace(pictures.memory_section(trace), lines=alive))


def _not_too_long(section: Section, view: View) -> Section:
    """The largest rows of a long table, the first ones where it has no order. A tree stays one: what is above a row is
    no smaller."""
    if len(section.table) <= LONGEST:
        return section
    text = mark("The {shown} first of {count} rows; all: perfkit summary --view {view}.")
    kept = section.table.index[:LONGEST]
    if view.order is not None:
        text = mark("The {shown} largest of {count} rows; all: perfkit summary --view {view}.")
        kept = section.table.nlargest(LONGEST, view.order, keep="first").index.sort_values()
    note = f"{section.note} {say(text, shown=LONGEST, count=len(section.table), view=view.name)}"
    return replace(section, table=section.table.loc[kept].reset_index(drop=True), note=note)


def _in_order(views: dict[str, View]) -> list[View]:
    names = [name for name in ORDER if name in views]
    return [views[name] for name in (*names, *(name for name in views if name not in names))]


def _shown(section: Section, view: View, tables: Mapping[str, pd.DataFrame]) -> Section:
    """With its picture, and no longer than a page can hold."""
    if section.name == pictures.RANKS_VIEW:
        return pictures.with_ranks(section, tables)
    section = _not_too_long(section, view)
    return _step_time(section) if section.name == "steps" else _with_chart(section)


def _with_chart(section: Section) -> Section:
    return section if section.chart else replace(section, chart=_CHARTS.get(section.name))


def _step_time(section: Section) -> Section:
    if section.table.empty:
        return replace(section, title=say("Step time"))
    table, y = _with_rest(section.table)
    x = "step"
    if table["rank"].nunique() > 1:
        x = "rank_and_step"
        table.insert(0, x, [f"{rank} · {step}" for rank, step in zip(table["rank"], table["step"], strict=True)])
        table = table.drop(columns=["rank", "step"])
    return replace(
        section, title=say("Step time"), table=table, chart=Chart("bar", x, y), columns=(*section.columns, *_OF_STEPS)
    )


def _with_rest(table: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The steps with the time that no phase covers, and what to stack: whole steps if phases are unknown or overlap."""
    phases = [name for name in _PHASES if name in table and table[name].notna().all() and table[name].any()]
    rest = table["dur_ns"] - table[phases].sum(axis=1) if phases else table["dur_ns"]
    if not phases or (rest < 0).any():
        return table.copy(), ("dur_ns",)
    return table.assign(other_ns=rest.astype("Int64")), (*phases, "other_ns")
