"""The content of an answer: a document as ``--format json`` writes it, with units, and with what is unknown and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perfkit_core.base.language.messages import english
from perfkit_core.base.language.units import counted
from perfkit_core.output.renderers.cells import plain, records
from perfkit_core.output.renderers.parts import UNSAID
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.columns import DEVICE, Column
from perfkit_core.trace.model.meta import NO_DEVICE
from perfkit_core.trace.model.report_data import Report, Section, Source
from perfkit_core.trace.model.schema import MEMORY
from perfkit_core.trace.model.trace import Trace

QUALITY: Final = "quality"
CANNOT_TELL: Final = "cannot_tell"
_DEVICE_WORK: Final = "no device work was recorded"
_FILLED: Final = {"bytes": "memory", "flops": "roofline", "shapes": "roofline", "stack": "code", "line": "code",
                  "module": "modules"}  # fmt: skip
"""Unit or name of a column → the view whose text for an empty table says which option of the profiler fills both."""


@dataclass(slots=True)
class Items:
    """A list of an answer, which may be sent in parts. ``path``: its keys in the document. ``columns``: the units of
    its rows, which are sent with the first row of each part."""

    path: tuple[str, ...]
    items: list[Any]
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Content:
    """A complete answer. ``head`` is sent with each part of the answer. ``text``: sentences for people."""

    head: dict[str, Any]
    lists: list[Items]
    text: tuple[str, ...] = ()


def of_report(report: Report, trace: Trace | None = None) -> Content:
    """Return a report as :mod:`perfkit_core.output.renderers.json` writes it, with units. ``trace`` is the profile, if
    it is in memory."""
    paths = [source.path for source in report.sources]
    lists = [quality(report.sources)]
    unknown = [gap for section in report.sections for gap in cannot_tell(section, report.sources, trace)]
    lists.append(Items((CANNOT_TELL,), unknown))
    for section in report.sections:
        if section.only_text:
            continue
        names, rows = records(section)
        units = {name: unit(section.column(name)) for name in names}
        items = [dict(zip(names, row, strict=True)) for row in rows]
        lists.append(Items(("views", section.name), items, units))
    data = plain(report.data)
    long = [key for key, value in data.items() if isinstance(value, list) and isinstance(next(iter(value), 0), dict)]
    lists += [Items((key,), data.pop(key)) for key in long]
    headline = [english(sentence) for sentence in (*report.headline, *report.warnings)]
    head = {"source": paths[0] if len(paths) == 1 else paths, **data, "headline": headline}
    return Content(head, lists, tuple(headline) or _counted(lists, unknown))


def _counted(lists: list[Items], unknown: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return sentences on the numbers of rows, and on what is unknown, for a report without a headline."""
    rows = [f"{items.path[-1]}: {counted(len(items.items), 'row')}." for items in lists if items.path[0] == "views"]
    for gap in unknown:
        what = f"no values for {', '.join(gap['columns'])}" if gap["columns"] else "no rows"
        rows.append(f"{gap['view']}: {what} ({gap['why']}).")
    return tuple(rows)


def quality(sources: tuple[Source, ...]) -> Items:
    findings = dict.fromkeys(finding for source in sources for finding in source.quality)
    return Items((QUALITY,), [{"code": finding.code, "message": english(finding.text)} for finding in findings])


def unit(column: Column) -> dict[str, str]:
    """Return the heading of a column, and its unit: ns, bytes, bytes_per_s, ratio (1 is 100%), flops, count, or "" for
    names and texts."""
    return {"title": column.title, "unit": column.unit}


def cannot_tell(section: Section, sources: tuple[Source, ...], trace: Trace | None) -> Iterator[dict[str, Any]]:
    """Yield why a table has no rows, and which columns have no values and what to record to fill them."""
    if section.only_text:
        return
    if section.table.empty:
        yield {"view": section.name, "columns": None, "why": english(section.empty) or "no rows"}
        return
    reasons: dict[str, list[str]] = {}
    for name in (name for name in section.unknown or () if name not in UNSAID):
        reasons.setdefault(_why(section.column(name), sources, trace), []).append(name)
    for why, names in reasons.items():
        yield {"view": section.name, "columns": names, "why": why}


def _why(column: Column, sources: tuple[Source, ...], trace: Trace | None) -> str:
    on_device = any(finding.code == NO_DEVICE for source in sources for finding in source.quality)
    if column.place == DEVICE and on_device:
        return _DEVICE_WORK
    name = column.name if column.name in _FILLED else column.unit
    view = get_plugins().views().get(_FILLED.get(name, ""))
    if trace is None or view is None:
        return "not recorded"
    of_events = {"flops": "shapes", "line": "stack"}.get(name, name)  # the column from which it is computed
    recorded = trace.rows("kind", MEMORY).any() if view.name == "memory" else trace.has_values(of_events)
    return "not recorded" if recorded else english(view.explain_empty(trace))


def printable(value: Any) -> Any:
    """Return plain data whose texts can be encoded as UTF-8. Bytes of names that are no UTF-8 are escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {printable(str(key)): printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, (list, tuple)) else value
