"""The page of a profile: a summary at the top, then a section for every view.

The page links the things of a recording that belong together: operators, kernels, layers, lines of code and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from perfkit_core.advice import reports
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.report import display, headline, pictures, summary, timeline
from perfkit_core.plugins.contracts import PAGE, View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import LoadedProfile, Profile
from perfkit_core.replay import critical_path
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import duration, key
from perfkit_core.trace.model.report_data import Chart, Links, Marks, Report, Section
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import code, grouping
from perfkit_core.views.user_code import Owner, owner_of

FIRST: Final = 3
"""Number of advice rows at the top of the page. The combined saving has an additional row."""
ORDER: Final = (
    "causes", "bounds", "steps", "partition", "ranks", "stragglers", "imbalance", "step_trace", "input_pipeline",
    "overview", "model", "critical_path", "distributed", "modules", "operators", "roofline", "gemm", "model_flops",
    "families", "operator_kinds", "operator_tree", "kernels", "compiled", "memcpy", "memory_manipulation",
    "memory_places", "memory_categories", "memory", "memory_peak", "memory_steps", "memory_leaks", "annotations",
    "device",
)  # fmt: skip
"""Order of the views on the page. Other views follow in the order in which they were registered."""
REQUEST: Final = ViewRequest(by=("families.operator",))
LONGEST: Final = 5000
"""Maximum number of rows of a table on a page."""
_OF_STEPS: Final = (key("rank_and_step", "Rank and step", thing="step"), duration("other_ns", "Other"))
_OF_RANKS: Final = ("ranks", "stragglers", "imbalance")
"""Views that are moved to the end of the page if they are empty."""
_PHASES: Final = ("dataloader_ns", "forward_ns", "backward_ns", "optimizer_ns")
_TOTALS: Final = ("total_cpu_ns", "total_device_ns")
_CHARTS: Final = {
    "partition": Chart("share", "category", ("total_ns",)),
    "causes": Chart("icicle", "cause", ("total_ns",)),
    "modules": Chart("icicle", "name", _TOTALS),
    "code": Chart("icicle", "name", _TOTALS),
    "operator_tree": Chart("icicle", "name", _TOTALS),
    "families": Chart("opening", "name", ("device_ns", "self_cpu_ns")),
    "operator_kinds": Chart("sunburst", "name", ("self_device_ns", "self_cpu_ns")),
    "kernels": Chart("ranking", "name", ("total_device_ns",)),
    "roofline": Chart(
        "roofline", "flop_per_byte", ("tflop_per_s", "time_ns", "peak_tflop_per_s", "peak_gb_per_s"), by="type"
    ),
}


def page_views() -> list[View]:
    """Return the views of the page in their order on it."""
    views = {name: view for name, view in get_plugins().views().items() if view.report == PAGE}
    return sorted(views.values(), key=lambda view: ORDER.index(view.name) if view.name in ORDER else len(ORDER))


def run_report(profile: Profile | Trace, peaks: str | None = None) -> Report:
    """Return the report of the page: facts, headline, and a section for every view. ``peaks`` is the text of a file
    with peak rates of devices.

    The sections are those of the views. If the whole trace is in memory, advice, timeline and memory curve are added,
    and the links between the things that sections name."""
    views = page_views()
    report = summary.summary_report(profile, views, replace(REQUEST, peaks=peaks), display.Display(limit=summary.ROWS))
    tables = {section.name: section.table for section in report.sections}
    sections = []
    for section, view in zip(report.sections, views, strict=True):
        if section.name == pictures.RANKS_VIEW:
            sections.append(pictures.with_ranks(section, tables))
            continue
        section = _shortened(section, view)
        if section.name == "steps":
            section = _step_time(section)
        elif not section.chart:
            section = replace(section, chart=_CHARTS.get(section.name))
        sections.append(section)
    sections.sort(key=lambda section: section.name in _OF_RANKS and section.table.empty)
    # Advice and timeline need the whole trace, but the traces of many ranks are never in memory at the same time.
    trace = profile.trace if isinstance(profile, LoadedProfile) else profile
    links: Links = {}
    timed, quality = (trace.timed_steps, trace.quality) if isinstance(trace, Trace) else (None, ())
    if isinstance(trace, Trace):
        sections, links = _with_trace(sections, tables, trace)
    else:
        sections[1:1] = reports.elsewhere()
    return replace(
        report,
        title=say("Profile of {name}", name=report.sources[0].label),
        sections=tuple(sections),
        headline=(*headline.headline(tables, timed, quality), *pictures.worst_rank(sections)),
        glance=tuple(glance(sections)),
        links=links,
    )


def _with_trace(
    sections: Sequence[Section], tables: Mapping[str, pd.DataFrame], trace: Trace
) -> tuple[list[Section], Links]:
    """Return the sections of the views with those that need the events, and the links between things: advice and the
    timeline after the first section, and the memory curve before the tables on memory. ``tables``: view → table."""
    overview, *others = reports.of_page(trace)
    advice = {} if overview.table.empty else {item.id: item.candidate.rows for item in reports.of_trace(trace).advice}
    boxes = timeline.timeline_section(trace, marks=marks(trace, advice))
    memory = next((at for at, section in enumerate(sections) if section.name == "memory_places"), len(sections))
    curve = _memory_curve(tables, trace) if memory < len(sections) else ()
    parts = [*sections[:1], overview, *others, boxes, *sections[1:memory], *curve, *sections[memory:]]
    return parts, related_things(trace, advice)


def _memory_curve(tables: Mapping[str, pd.DataFrame], trace: Trace) -> tuple[Section, ...]:
    peak, places = tables["memory_peak"], tables["memory_places"]
    without_history = places["device"][places["peak_growth_bytes"].isna()]
    lines = tuple(headline.alive_at_peak(peak[~peak["device"].isin(without_history)]))
    curve, categories = replace(pictures.memory_section(trace), lines=lines), pictures.category_section(trace)
    return (curve,) if categories.table.empty else (curve, categories)


def glance(sections: Sequence[Section]) -> Iterator[Section]:
    """Yield the sections that become charts at the top of the page: the account of causes, and the advice with the
    largest savings. The last row of the advice contains the combined saving and has no id."""
    by_name = {section.name: section for section in sections}
    causes, advice = by_name.get("causes"), by_name.get("advice")
    if causes is not None and not causes.table.empty:
        yield summary.account_bar(causes)
    if advice is not None:
        rows = advice.table
        if not rows.empty:
            rows = rows[rows["saving_ns"].fillna(0) > 0]
            single = rows["id"].notna()
            rows = rows[(single & (single.cumsum() <= FIRST)) | ~single]
        yield replace(advice, table=rows.reset_index(drop=True), note="", lines=())


def _shortened(section: Section, view: View) -> Section:
    """Shorten a long table to its largest rows, or to its first rows if the view has no order. A tree remains
    connected, because parents are at least as large as their children."""
    if len(section.table) <= LONGEST:
        return section
    text = mark("The table shows the first {shown} of {count} rows. perfkit summary --view {view} shows all.")
    index = section.table.index[:LONGEST]
    order = view.sorted_by(section.table)
    if order is not None:
        text = mark("The table shows the largest {shown} of {count} rows. perfkit summary --view {view} shows all.")
        index = section.table.nlargest(LONGEST, order, keep="first").index.sort_values()
    note = f"{section.note} {say(text, shown=LONGEST, count=len(section.table), view=view.name)}"
    return replace(section, table=section.table.loc[index].reset_index(drop=True), note=note)


def _step_time(section: Section) -> Section:
    """Add a chart of the steps to their section. Each bar shows the phases and the remaining time of a step. If the
    phases are unknown or overlap, a bar shows only the duration of the step."""
    if section.table.empty:
        return replace(section, title=say("Step time"))
    table, x = section.table.copy(), "step"
    y: tuple[str, ...] = ("dur_ns",)
    phases = [name for name in _PHASES if name in table and table[name].notna().all() and table[name].any()]
    rest = table["dur_ns"] - table[phases].sum(axis=1)
    if phases and not (rest < 0).any():
        table, y = table.assign(other_ns=rest.astype("Int64")), (*phases, "other_ns")
    if table["rank"].nunique() > 1:
        x = "rank_and_step"
        table.insert(0, x, [f"{rank} · {step}" for rank, step in zip(table["rank"], table["step"], strict=True)])
        table = table.drop(columns=["rank", "step"])
    return replace(
        section, title=say("Step time"), table=table, chart=Chart("bar", x, y), columns=(*section.columns, *_OF_STEPS)
    )


_MOST_PAIRS: Final = 12
"""A pair is kept if it is among this many pairs with most time of either of its two things."""


class Entities(NamedTuple):
    """The things of one kind. ``code`` is the index in ``names`` of the thing of each row; -1 if there is none."""

    names: list[str]
    code: IntArray


@once
def entities(trace: Trace) -> dict[str, Entities]:
    """Return the operator, kernel, layer and frame of each event, by the kind of thing.

    Device work belongs to the operator, layer and frame of its launch. ``user_code`` has the innermost frame outside
    the framework and other packages, ``code`` the innermost frame of any file."""
    launch = trace.ints("launched_by")
    host = np.where(launch == NO_ROW, np.arange(len(trace)), launch)
    operator = np.append(nesting.nearest_on_path(trace.ints("parent"), trace.operators), NO_ROW)[host]
    name, module = trace.codes("name"), trace.codes("module")
    layer = np.append(module.codes, -1)
    layer = np.where(layer[host] >= 0, layer[host], layer[operator])  # a launch may have no layer of its own
    by_kind = {
        "operator": Entities(name.values, np.append(name.codes, -1)[operator].astype(np.int64)),
        "kernel": Entities(name.values, np.where(trace.rows("kind", KERNEL), name.codes, -1).astype(np.int64)),
        "module": Entities(module.values, layer.astype(np.int64)),
    }
    everything = np.ones(len(trace), np.bool_)
    if grouping.is_frame(trace).any():
        frames = code.tree_of_frames(trace, everything)
    elif trace.has_values("stack"):
        frames = code.tree_of_stacks(trace, everything)
    else:
        return by_kind
    tree, parts = frames.tree, code.split_names(frames.names)
    files = parts["file"].fillna("<").unique().tolist()
    user_files = {file for file in files if file != "<" and owner_of(file, trace.meta.framework) is Owner.USER}
    number, names = pd.factorize(parts["name"].to_numpy(object))
    for kind, mask in (("user_code", parts["file"].isin(user_files)), ("code", parts["file"].notna())):
        nearest = np.append(nesting.nearest_on_path(tree.parent, mask.to_numpy(np.bool_)[tree.key]), NO_ROW)
        key = np.append(tree.key, NO_ROW)[nearest[tree.node[host]]]
        by_kind[kind] = Entities(names.tolist(), np.append(number, -1)[key].astype(np.int64))
    return by_kind


def marks(trace: Trace, advice: Mapping[str, IntArray]) -> Marks:
    """Return the events of each layer, frame and item of advice, and those on the critical paths. ``advice`` maps ids
    to the rows of the pattern."""
    by_kind: dict[str, Mapping[str, IntArray]] = {"advice": advice, "path": critical_path.marks(trace)}
    for kind in ("module", "code"):
        if kind in entities(trace) and entities(trace)[kind].names:
            names, number = entities(trace)[kind]
            rows = np.flatnonzero(number >= 0)
            rows = rows[np.argsort(number[rows], kind="stable")]
            ends = np.cumsum(np.bincount(number[rows], minlength=len(names)))
            by_kind[kind] = dict(zip(names, np.split(rows, ends[:-1]), strict=True))
    return by_kind


def related_things(trace: Trace, advice: Mapping[str, IntArray]) -> Links:
    """Return the pairs of things that events have in common, for each two kinds."""
    time = np.where(trace.host, np.maximum(trace.ints("self_ns"), 0), trace.ints("dur_ns"))
    kinds, pairs_of = entities(trace), {}
    for first, second in combinations(kinds, 2):
        if {first, second} != {"code", "user_code"}:
            pairs_of[first, second] = _pairs(kinds[first], kinds[second], time)
    rows = np.concatenate([np.zeros(0, np.int64), *advice.values()])
    about = Entities(list(advice), np.repeat(np.arange(len(advice)), [len(of_one) for of_one in advice.values()]))
    for kind, (names, number) in kinds.items():
        pairs_of["advice", kind] = _pairs(about, Entities(names, number[rows]), time[rows])
    merged: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for (first, second), pairs in pairs_of.items():
        unique = merged.setdefault((first.removeprefix("user_"), second.removeprefix("user_")), {})
        unique.update(dict.fromkeys(pairs))
    return {key: tuple(pairs) for key, pairs in merged.items() if pairs}


def _pairs(first: Entities, second: Entities, time: IntArray) -> list[tuple[str, str]]:
    both = (first.code >= 0) & (second.code >= 0)
    events = pd.DataFrame({"first": first.code[both], "second": second.code[both], "time": time[both]})
    sums = events.groupby(["first", "second"], sort=False)["time"].sum().sort_values(ascending=False, kind="stable")
    pairs = sums.index.to_frame(index=False)
    near = [pairs.groupby(side, sort=False).cumcount() < _MOST_PAIRS for side in ("first", "second")]
    closest = pairs[near[0] | near[1]]
    return [(first.names[left], second.names[right]) for left, right in closest.itertuples(index=False)]
