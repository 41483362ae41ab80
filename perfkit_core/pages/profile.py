"""The page of a profile: a summary at the top, then a section for every view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.report import display, headline, pictures, summary, timeline
from perfkit_core.pages import links
from perfkit_core.plugins.contracts import PAGE, View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import LoadedProfile, Profile
from perfkit_core.trace.model.columns import duration, key
from perfkit_core.trace.model.report_data import Chart, Links, Report, Section
from perfkit_core.trace.model.trace import Trace

FIRST: Final = 3
"""Number of advice rows at the top of the page. The combined saving has an additional row."""
ORDER: Final = (
    "steps", "partition", "ranks", "stragglers", "imbalance", "step_trace", "input_pipeline", "overview", "model",
    "critical_path", "distributed", "modules", "operators", "roofline", "gemm", "model_flops", "families",
    "operator_kinds", "operator_tree", "kernels", "compiled", "memcpy", "memory_manipulation", "memory_places",
    "memory_categories", "memory", "memory_peak", "memory_steps", "memory_leaks", "annotations", "device",
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
    "partition": summary.PARTS,
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
    with peak rates of devices."""
    from perfkit_core.advice import reports

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
    related: Links = {}
    if isinstance(trace, Trace):
        about = reports.of_page(trace)
        advice = {} if about[0].table.empty else {a.id: a.candidate.rows for a in reports.of_trace(trace).advice}
        sections[1:1] = (*about, timeline.timeline_section(trace, marks=links.marks(trace, advice)))
        related = links.links(trace, advice)
        names = [section.name for section in sections]
        if "memory_places" in names:  # The memory curve precedes the tables on memory.
            peak, places = tables["memory_peak"], tables["memory_places"]
            unknown = places["device"][places["peak_growth_bytes"].isna()]  # there is no history
            lines = tuple(headline.alive_at_peak(peak[~peak["device"].isin(unknown)]))
            curve = replace(pictures.memory_section(trace), lines=lines)
            at = names.index("memory_places")
            parts = pictures.category_section(trace)
            sections[at:at] = (curve,) if parts.table.empty else (curve, parts)
    else:
        sections[1:1] = reports.elsewhere()
    return replace(
        report,
        title=say("Profile of {name}", name=report.sources[0].label),
        sections=tuple(sections),
        headline=(*headline.headline(tables), *pictures.worst_rank(sections)),
        glance=tuple(glance(sections)),
        links=related,
    )


def glance(sections: Sequence[Section]) -> Iterator[Section]:
    """Yield the sections that become charts at the top of the page: the step partition, and the advice with the largest
    savings. The last row of the advice contains the combined saving and has no id."""
    by_name = {section.name: section for section in sections}
    partition, advice = by_name.get("partition"), by_name.get("advice")
    if partition is not None and not partition.table.empty:
        yield replace(partition, table=partition.table.reset_index(drop=True), note="", lines=())
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
