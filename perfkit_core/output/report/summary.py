"""Reports with one section per view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import Message, Text, mark, say
from perfkit_core.base.system.paths import readable
from perfkit_core.causes import account_view, largest
from perfkit_core.causes.last_ranks import last_ranks
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.output.report import headline, source_facts
from perfkit_core.output.report.display import DEPTH, Display, check, displayed
from perfkit_core.output.report.step_time import step_time
from perfkit_core.output.report.verdict import VIEWS, verdict, whole_of
from perfkit_core.plugins.contracts import View, ViewRequest, split_grouping
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import Computed, LoadedProfile, Profile
from perfkit_core.ranks.reduce import understood
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.columns import DEVICE
from perfkit_core.trace.model.meta import NO_DEVICE, may_lack_work
from perfkit_core.trace.model.report_data import Chart, Report, Section
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.tables import rounded_division


def per_step(table: pd.DataFrame, view: View, steps: int) -> pd.DataFrame:
    """Return the table of an average step. The columns that are sums over the steps are divided by the number of steps.
    Times, sizes and FLOPs are rounded to integers. Counts are not rounded."""
    result = table.copy()
    for name in (column.name for column in view.columns if column.per_step):
        if name not in result.columns:
            continue
        if view.column(name).unit in ("ns", "bytes", "flops"):
            present = result[name].notna()
            result.loc[present, name] = rounded_division(result.loc[present, name].to_numpy("int64"), steps)
        else:
            result[name] = result[name].astype("Float64") / steps
    return result


def not_recorded(view: View, table: pd.DataFrame, computed: Computed) -> tuple[str, ...]:
    """Return the names of the columns of ``table``, the result of ``view``, whose data were not recorded.

    - If no device work was recorded: columns about device work, if they are empty or always 0.
    - Other columns, if they are empty and the request covers all events. If the event table has a column of the same
      name, the name is returned only if that column is empty, too (``computed.holds(name)`` is false).
    """
    no_devices = any(finding.code == NO_DEVICE for finding in computed.quality)
    names = []
    for name in map(str, table.columns):
        column = table[name]
        empty = bool(column.isna().all())
        if no_devices and view.column(name).place == DEVICE:
            zeros = pd.api.types.is_numeric_dtype(column) and not column.fillna(0).any()
            never = empty or zeros
        else:
            never = empty and of_all(computed.request) and not (name in schema.COLUMN_NAMES and computed.holds(name))
        if never:
            names.append(name)
    return tuple(names)


def of_all(request: ViewRequest) -> bool:
    return request.steps is None and not any((request.pattern, request.kind, request.device))


_OF_VERDICT: Final = (*VIEWS, "steps", headline.SERVING)
_OF_MEMORY: Final = ("memory_places", "memory_peak", "memory")
"""Views of a brief report on a recording that has memory events, but no operators. The last one is shown if the peak is
unknown."""
ROWS: Final = 20
"""Default maximum number of rows per table in formats for people."""
DEFAULT: Final = Display()
ALIASES: Final = {"phases": "model", "step_parts": "partition", "layers": "modules", "quality": "findings"}
"""Other names of views: the names of tables of a comparison, and words that people try."""


def summary_report(
    profile: Profile | Trace,
    views: Sequence[View],
    request: ViewRequest,
    display: Display = DEFAULT,
    brief: bool = False,
) -> Report:
    """Return a report with one section per view. A grouping, order or filter applies to the views that support it. A
    ``brief`` report begins with a verdict, and leaves out empty sections. Of an inference server, it shows the steps
    by kind instead of the steps on the host. If no operators were recorded, it shows the recorded memory. Raises
    UsageError if no view supports a grouping."""
    groupings = list(dict.fromkeys(name for view in views for name in view.groupings))
    for item in request.by:
        name = split_grouping(item)[0]
        if name not in groupings and not any(understood(view, replace(request, by=(item,))).by for view in views):
            names = ", ".join(view.name for view in views)
            hint = f"known: {', '.join(groupings) or 'no groupings'}"
            raise UsageError(f"{names} cannot be grouped by {name!r}", hint)
    if display.average:
        check_average(views)
    profile = LoadedProfile(profile) if isinstance(profile, Trace) else profile
    more = [view for view in choose_views(_OF_VERDICT) if view not in views] if brief else []
    computed = profile.compute([*views, *more], replace(request, sort=display.sort), own_steps=display.average)
    if computed.averaged and not display.average:  # The partial results are averages already.
        check_average(views)
    display = replace(display, average=computed.averaged)
    served = tuple(headline.serving_sentences(computed.tables.get(headline.SERVING))) if brief else ()
    if served:
        views = [*choose_views([headline.SERVING]), *(view for view in views if view.name != "model")]
    tables = {view.name: computed.tables[view.name] for view in views}
    check(tables, display, [column for view in views for column in view.columns])
    chosen = computed.request.steps
    if display.average and chosen is None and not computed.steps:
        hint = "set a schedule for the profiler, and call the profiler's step() after each iteration, or use --step-on"
        raise UsageError("--average requires steps, but no steps were recorded", hint)
    steps = len(computed.steps if chosen is None else chosen)
    sections = tuple(_section(computed, view, display, steps) for view in views)
    sentences: tuple[Message, ...] = ()
    if brief and display.limit:
        busy = bool(computed.tables["device"]["busy_ns"].gt(0).any())
        lacks = may_lack_work(computed.quality) is not None
        whole_ns = whole_of(computed.tables["causes"], computed.tables["device"], computed.tables["steps"])[1]
        sections = tuple(
            _largest_causes(part, busy, lacks, whole_ns, bool(computed.steps)) if part.name == "causes" else part
            for part in sections
        )
    if brief:
        limit = tuple(verdict(computed.tables, computed.quality))
        held = tuple(last_ranks(profile.trace)) if isinstance(profile, LoadedProfile) and limit else ()
        between = headline.work_between(computed.quality)
        times = () if served else step_time(computed.tables["steps"], computed.timed, bool(between))
        sentences = (*served, *limit, *held, *times, *between)
        if computed.tables["operators"].empty:
            memory = choose_views(_OF_MEMORY)
            of_memory = profile.compute(memory, computed.request)
            places, peak, state = (_section(of_memory, view, display, steps) for view in memory)
            recorded = (places, state if places.table["peak_growth_bytes"].isna().all() else peak)
            sections = sections if all(section.table.empty for section in recorded) else recorded
        sections = tuple(section for section in sections if not section.table.empty) or sections
    source = source_facts.described(computed.meta, computed.quality, computed.steps, computed.timed, chosen)
    data = {} if chosen is None else {"steps": sorted(set(chosen))}
    return Report(computed.meta.source, (source,), sections, sentences, data=data, by_view=True)


def _largest_causes(
    section: Section, on_device: bool, lacks_work: bool, whole_ns: float | None, steps: bool
) -> Section:
    """Return the section ``causes`` with a list of the largest causes instead of the tree. Besides their sums over
    all steps and devices, it has their shares of ``whole_ns``, the time that the verdict speaks of, if there is one."""
    table = largest.largest(section.table, on_device, lacks_work)
    times = (table["ratio"] * (whole_ns or 0)).round().astype("int64")
    if whole_ns and not times.equals(table.iloc[:, 2]):
        table.insert(2, largest.STEP if steps else largest.RECORDING, times)
    return replace(section, table=table, whole=section.table, columns=largest.COLUMNS, limit=len(table), unknown=None)


def account_bar(causes: Section) -> Section:
    """Return the section of the view causes as a bar with the words of the account."""
    tree = causes.table if causes.whole is None else causes.whole
    words = tree[tree["depth"] == 0].reset_index(drop=True) if len(tree) else tree
    return replace(
        causes, table=words, chart=Chart("share", "cause", (account_view.time_column(words),)), note="", lines=()
    )


def _section(computed: Computed, view: View, display: Display, steps: int) -> Section:
    full_table = computed.tables[view.name]
    if display.average:
        full_table = per_step(full_table, view, steps)
    table = displayed(full_table, view, display, understood(view, computed.request).by)
    empty: Text = ""
    if table.empty and len(full_table):
        empty = say("no rows match the display filters")
    elif table.empty and of_all(computed.request):
        empty = computed.why_empty(view)
    elif table.empty:
        empty = say("no events match --step, --filter, --kind and --device")
    remarks = []
    if display.average and len(computed.meta.ranks) > 1:
        text = mark(
            "The numbers are averages per step. Sums over all {ranks} ranks are divided by the number of steps, "
            "{steps}. Events outside steps are not counted."
        )
        remarks.append(say(text, ranks=len(computed.meta.ranks), steps=steps))
    elif display.average:
        text = mark(
            "The numbers are averages per step. Sums are divided by the number of steps, {steps}. Events outside steps "
            "are not counted."
        )
        remarks.append(say(text, steps=steps))
    if display.displayed_only and DEPTH in full_table.columns and not view.summed:
        remarks.append(say("Sums include hidden rows, because this view does not support --displayed-only."))
    note = say(view.description)
    return Section(
        name=view.name,
        title=say(view.title),
        table=table,
        columns=view.columns,
        note=say("{sentence}.", sentence=f"{note[:1].upper()}{note[1:]}") if note else "",
        lines=tuple(remarks),
        empty=empty,
        limit=display.limit,
        unit=display.unit,
        chosen=bool(display.columns),
        unknown=not_recorded(view, full_table, computed),
    )


def choose_views(names: Iterable[str], single: bool = False) -> list[View]:
    """Return the views with these names, without duplicates. The name of a group selects all its views, and "all"
    selects every view. :data:`ALIASES` are accepted, too. If ``single`` is true, only names of views are accepted.
    Raises UsageError."""
    all_views = get_plugins().views()
    groups: dict[str, list[str]] = {} if single else {"all": list(all_views)}
    for name, view in all_views.items():
        if view.group is not None and not single:
            groups.setdefault(view.group, []).append(name)
    named = (name if name in all_views else ALIASES.get(name, name) for name in names)
    chosen = dict.fromkeys(part for name in named for part in groups.get(name, [name]))
    for name in chosen:
        if name not in all_views:
            raise UsageError(f"unknown view {name!r}", spelled_like(name, (*all_views, *groups, *ALIASES)))
    return [all_views[name] for name in chosen]


def cut(report: Report, limit: int | None) -> Report:
    """Return the report with at most ``limit`` rows per table; None means no limit. Call this function for formats such
    as JSON and CSV, which ignore ``Section.limit``."""
    if limit is None:
        return report
    return replace(report, sections=tuple(replace(s, table=s.table.head(limit)) for s in report.sections))


def read_from(report: Report, paths: Sequence[str | Path]) -> Report:
    """Return the report. If there are several paths, add them to its title and to its machine-readable data."""
    if len(paths) < 2:
        return report
    names = [readable(path) for path in paths]
    title = say("{first} and {count} more", first=names[0], count=len(names) - 1)
    return replace(report, title=title, data={**report.data, "source": names})


def check_average(views: Sequence[View]) -> None:
    """Raise UsageError if a view cannot be averaged over steps. Averages and totals must not be mixed."""
    without = [view.name for view in views if not any(column.per_step for column in view.columns)]
    if without:
        raise UsageError(f"--average does not support {', '.join(without)}", "omit --average for these views")
