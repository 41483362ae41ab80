"""Views put together as a Report, sorted and cut as asked; and the same for Python, as a DataFrame.

The average step of a table: what is a sum over the steps, divided by their number.

Which columns of a view does the profile hold nothing of? Told by the whole view, before anything of it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pandas as pd

from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.language.messages import Text, say
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest, split_grouping
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import Computed, Profile, Whole
from perfkit_core.ranks.reduce import understood
from perfkit_core.report.display import DEPTH, Display, check, displayed
from perfkit_core.report.facts import described
from perfkit_core.report.model import Report, Section
from perfkit_core.system.paths import readable
from perfkit_core.views.tables import rounded_division


def per_step(table: pd.DataFrame, view: View, steps: int) -> pd.DataFrame:
    """The table with the columns ``view.per_step`` for one step: ns, bytes and FLOPs to the nearest integer, calls and
    other counts exactly."""
    result = table.copy()
    for name in view.per_step:
        if name not in result.columns:
            continue
        if view.column(name).unit in ("ns", "bytes", "flops"):
            known = result[name].notna()
            whole = result.loc[known, name].to_numpy("int64")
            result.loc[known, name] = rounded_division(whole, steps)
        else:
            result[name] = result[name].astype("Float64") / steps
    return result


_NO_DEVICE: Final = "no-device-events"
"""The finding on a recording without work of a device."""


def not_recorded(
    holds: Callable[[str], bool], quality: Iterable[Finding], whole: pd.DataFrame, request: ViewRequest
) -> tuple[str, ...]:
    """Names of columns: the view has nothing there, and neither have the events; ``holds`` tells of one of their
    columns whether they have. Where no work of a device was recorded, zeros of devices are nothing, too.

    A request for some of the events cannot tell what none of them holds: what it leaves out may hold it.
    """
    names = [str(name) for name in whole.columns]
    found = {name for name in names if of_all(request) and whole[name].isna().all()}
    never = {name for name in found if not (name in schema.COLUMN_NAMES and holds(name))}
    if any(finding.code == _NO_DEVICE for finding in quality):
        never |= {name for name in names if _of_devices(name) and _is_nothing(whole[name])}
    return tuple(name for name in names if name in never)


def _of_devices(name: str) -> bool:
    return "device" in name.split("_")


def _is_nothing(column: pd.Series) -> bool:
    return bool(column.isna().all() or (pd.api.types.is_numeric_dtype(column) and not column.fillna(0).any()))


def of_all(request: ViewRequest) -> bool:
    """Whether all events are asked for, whatever they are grouped by."""
    return request.steps is None and not any((request.pattern, request.kind, request.device))


ROWS: Final = 20
"""Rows of a table that people are shown when they do not ask for another number."""
DEFAULT: Final = Display()
COMPARED: Final = {"phases": "model", "step_parts": "partition", "layers": "modules"}
"""Tables of a comparison that are called otherwise than the views of one run that tell the same."""


def summary_report(
    profile: Profile | Trace, views: Sequence[View], request: ViewRequest, display: Display = DEFAULT
) -> Report:
    """One section a view. Groupings, sorting and filters apply to the views that know them.

    Raises UsageError if none does.
    """
    _check(views, request, display)
    profile = Whole(profile) if isinstance(profile, Trace) else profile
    request = replace(request, sort=display.sort)
    found = profile.compute(views, request, own_steps=display.average)
    display = replace(display, average=found.averaged)  # partials may have been made for it
    if display.average:
        check_average(views)
    check(found.tables, display, [known for view in views for known in view.columns])
    steps = _steps(found, display)
    sections = tuple(_section(found, view, display, steps) for view in views)
    chosen = found.request.steps
    source = described(found.meta, found.quality, found.steps, chosen)
    data = {} if chosen is None else {"steps": sorted(set(chosen))}
    return Report(found.meta.source, (source,), sections, data=data)


def choose_views(names: Iterable[str], single: bool = False) -> list[View]:
    """The views of these names; a group's name stands for its views, ``all`` for every one; each once.

    ``single``: names of views only. Raises UsageError.
    """
    known = get_plugins().views()
    groups = {} if single else {"all": list(known)} | _groups(known)
    wanted = dict.fromkeys(part for name in names for part in groups.get(name, [name]))
    for name in wanted:
        if name not in known:
            alike = f"perfkit compare has it, of one run it is {COMPARED[name]!r}; " if name in COMPARED else ""
            raise UsageError(f"there is no view {name!r}", alike + spelled_like(name, (*known, *groups)))
    return [known[name] for name in wanted]


def _groups(known: Mapping[str, View]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, view in known.items():
        if view.group is not None:
            found.setdefault(view.group, []).append(name)
    return found


def cut(report: Report, limit: int | None) -> Report:
    """The same report with at most ``limit`` rows in each table, for formats that show tables whole."""
    if limit is None:
        return report
    return replace(report, sections=tuple(replace(s, table=s.table.head(limit)) for s in report.sections))


def read_from(report: Report, paths: Sequence[str | Path]) -> Report:
    """Name all the files of a profile that was read from several; machine formats get them as a list."""
    if len(paths) < 2:
        return report
    names = [readable(path) for path in paths]
    title = say("{first} and {count} more", first=names[0], count=len(names) - 1)
    return replace(report, title=title, data={**report.data, "source": names})


def _section(found: Computed, view: View, display: Display, steps: int) -> Section:
    whole = found.tables[view.name]
    if display.average:
        whole = per_step(whole, view, steps)
    table = displayed(whole, view, display, understood(view, found.request).by)
    why: Text = say("nothing here passes the display filters") if len(whole) else _why_empty(found, view)
    return Section(
        name=view.name,
        title=say(view.title),
        table=table,
        columns=view.columns,
        note=_sentence(say(view.description)),
        lines=tuple(_remarks(whole, view, display, steps, len(found.meta.ranks))),
        empty=why if table.empty else "",
        limit=display.limit,
        unit=display.unit,
        unknown=not_recorded(found.holds, found.quality, whole, found.request),
    )


def _remarks(whole: pd.DataFrame, view: View, display: Display, steps: int, ranks: int) -> Iterator[str]:
    """What the options did to the numbers, or could not do."""
    if display.average and ranks > 1:
        yield say(
            "For one step of all {ranks} ranks together: what belongs to no step is left out, and sums over the ranks "
            "are divided by the number of steps, {steps}.",
            ranks=ranks,
            steps=steps,
        )
    elif display.average:
        yield say(
            "For one step: what belongs to no step is left out, and sums are divided by the number of steps, {steps}.",
            steps=steps,
        )
    if display.displayed_only and DEPTH in whole.columns and not view.summed:
        yield say("Sums count the whole tree here: this view cannot count only what is displayed.")


def _steps(found: Computed, display: Display) -> int:
    """An average is over the steps that were asked for, or all of them."""
    if display.average and found.request.steps is None and not found.steps:
        hint = "give the profiler a schedule, and call its step() after each iteration"
        raise UsageError("no steps were recorded to average over", hint)
    return len(found.steps if found.request.steps is None else found.request.steps)


def _check(views: Sequence[View], request: ViewRequest, display: Display) -> None:
    names = ", ".join(view.name for view in views)
    known = list(dict.fromkeys(name for view in views for name in view.groupings))
    for item in request.by:
        name = split_grouping(item)[0]
        if name not in known and not any(understood(view, replace(request, by=(item,))).by for view in views):
            raise UsageError(f"{names} cannot be grouped by {name!r}", f"known: {', '.join(known) or 'no groupings'}")
    if display.average:
        check_average(views)


def check_average(views: Sequence[View]) -> None:
    """Raises UsageError for views that have no average: their whole tables next to those of one step would mislead."""
    without = [view.name for view in views if not view.per_step]
    if without:
        few = len(without) == 1
        raise UsageError(
            f"{', '.join(without)} {'has' if few else 'have'} no average over the steps",
            f"without --average {'it shows what it has' if few else 'they show what they have'}",
        )


def _why_empty(found: Computed, view: View) -> Text:
    if of_all(found.request):
        return found.why_empty(view)
    return say("nothing here is of the steps, names, kinds and devices that were asked for")


def _sentence(text: str) -> str:
    return say("{sentence}.", sentence=f"{text[:1].upper()}{text[1:]}") if text else ""
