"""The content of an answer: a document as ``--format json`` writes it, with units, and with what is unknown and why.
An answer that does not fit the budget of the client is sent in parts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from perfkit_core.base.language.messages import english
from perfkit_core.base.language.units import counted
from perfkit_core.errors import UsageError
from perfkit_core.output.renderers.cells import plain, records, visible
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


_ENVELOPE: Final = 350
"""Bytes that the protocol adds to an answer."""
_ON_THE_REST: Final = 150
"""Bytes of the sentence on the items that are left."""
_LIST_BYTES: Final = 80
"""Bytes of the brackets, keys and commas around the items and the columns of a list."""
_ITEM_BYTES: Final = 4
"""Bytes of the commas after an item, in both copies of the document."""
_TEXT_SHARE: Final = 0.2
"""Maximum share of the text in an answer."""
_LENGTHS: Final = (4000, 1000, 300, 100, 50, 25, 12)
"""Maximum lengths of texts and lists that are tried, until a value fits."""
_CURSOR: Final = re.compile(r"(\d{1,12})-([0-9a-f]{16})")


class Part(NamedTuple):
    """A part of an answer: its document, and a short text for people."""

    document: dict[str, Any]
    text: str

    @property
    def bytes(self) -> int:
        return cost(self.document) + size(self.text) + _ENVELOPE

    @property
    def json(self) -> str:
        """The document as text, for clients that show only texts."""
        return json.dumps(self.document, ensure_ascii=False, separators=(",", ":"))


def size(value: Any) -> int:
    """Return the number of bytes of a value as JSON, at least what a JSON writer of the protocol makes of it."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def cost(value: Any) -> int:
    """Return the number of bytes of a value in an answer: as JSON, and as JSON in a text."""
    return size(value) + size(json.dumps(value, ensure_ascii=False))


def digest(*parts: Any) -> str:
    """Return a digest of a request, which its cursors contain."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def offset(cursor: str | None, request: str) -> int:
    """Return the number of the first item of the part that a cursor names. ``request`` is the digest of the request.
    Raises UsageError if the cursor belongs to another request, or if the profile was changed since."""
    if cursor is None:
        return 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UsageError(f"{cursor[:40]!r} is not a cursor", "pass the text of next of an earlier answer, unchanged")
    if match[2] != request:
        hint = "repeat the request without a cursor; a cursor needs the same arguments, except for budget_bytes"
        raise UsageError("the cursor is stale: the arguments or the files of the profile were changed", hint)
    return int(match[1])


def part(content: Content, budget: int, request: str, first: int = 0) -> Part:
    """Return the part of an answer that begins with item ``first``. It has at most ``budget`` bytes."""
    count = sum(len(items.items) for items in content.lists)
    if first and first >= count:
        raise UsageError(f"the cursor is after the last of {count} items", "repeat the request without a cursor")
    room = budget - _ENVELOPE
    text = _cut(visible(" ".join(printable(list(content.text)))), round(room * _TEXT_SHARE))
    room -= size(text) + _ON_THE_REST
    head, shortened = _fitting(printable(content.head), room // 2)
    has_views = any(items.path[0] == "views" for items in content.lists)
    document = {**head, "views": {}, "columns": {}} if has_views else dict(head)
    document |= {"next": f"{count}-{request}", "items_left": count, "shortened": False}
    filler = _Filler(document, room - cost(document))
    filler.fill(content.lists, first)
    left = count - first - filler.sent
    document["next"] = f"{first + filler.sent}-{request}" if left else None
    document["items_left"] = left
    document["shortened"] = shortened or filler.shortened
    if left:
        text += f" {left} of {count} items follow: repeat the request with cursor {document['next']}."
    return Part(document, text)


class _Filler:
    """Adds lists and items to a document until ``room`` bytes are used. The first item is shortened if it has to be, so
    that each part has one."""

    def __init__(self, document: dict[str, Any], room: int) -> None:
        self.document, self.room = document, room
        self.sent = 0
        self.shortened = False

    def fill(self, lists: list[Items], first: int) -> None:
        """Add the items from number ``first`` on. Items are numbered through all lists; ``[begin, end)`` is a list."""
        end = 0
        for items in lists:
            begin, end = end, end + len(items.items)
            if end < first or (end == first and items.items):  # earlier parts have sent all of it
                continue
            target = self._begun(items)
            if target is None:
                return
            for item in items.items[max(first - begin, 0) :]:
                if not self._add(printable(item), target):
                    return

    def _begun(self, items: Items) -> list[Any] | None:
        """Add an empty list, and the units of its columns. Return the list, or None if there is no room."""
        name = items.path[-1]
        columns: dict[str, Any] = {name: printable(items.columns)} if items.columns else {}
        frame = 2 * cost(name) + _LIST_BYTES
        if frame + cost(columns) > self.room and self.sent:
            return None
        if columns and frame + cost(columns) > self.room // 2:  # hundreds of columns
            columns, cut = _fitting(columns, max(self.room // 2 - _LIST_BYTES, 0))
            self.shortened |= cut
        self.room -= frame + cost(columns)
        inner = self.document
        for key in items.path[:-1]:
            inner = inner.setdefault(key, {})
        target: list[Any] = []
        inner[name] = target
        if columns:
            self.document["columns"] |= columns
        return target

    def _add(self, item: Any, target: list[Any]) -> bool:
        """Add an item, and return whether there was room."""
        needed = cost(item) + _ITEM_BYTES
        if needed > self.room:
            if self.sent:
                return False
            item, _ = _fitting(item, self.room - _ITEM_BYTES)
            self.shortened, needed = True, cost(item) + _ITEM_BYTES
        target.append(item)
        self.sent += 1
        self.room -= needed
        return True


def _fitting(value: Any, room: int) -> tuple[Any, bool]:
    """Return a value with at most ``room`` bytes in an answer, and whether it had to be shortened."""
    if cost(value) <= room:
        return value, False
    for length in _LENGTHS:
        shorter = _shorter(value, length)
        if cost(shorter) <= room:
            return shorter, True
    if isinstance(value, dict):
        note = {"left_out": "this item is too large: use a larger budget_bytes"}
        members: dict[str, Any] = note if cost(note) <= room else {}
        for key, item in value.items():
            small = {_cut(key, 50): _shorter(item, _LENGTHS[-1])}
            if cost(members | small) <= room:
                members |= small
        return members, True
    return None, True


def _shorter(value: Any, length: int) -> Any:
    """Return a value whose texts and lists have at most ``length`` characters and items."""
    if isinstance(value, str):
        return _cut(value, length)
    if isinstance(value, Mapping):
        return {key: _shorter(item, length) for key, item in value.items()}
    if isinstance(value, list):
        first = [_shorter(item, length) for item in value[:length]]
        return first if len(value) <= length else {"first": first, "left_out": len(value) - length}
    return value


def _cut(text: str, length: int) -> str:
    """Return a text with at most ``length`` bytes."""
    encoded = text.encode()
    if len(encoded) <= length:
        return text
    return encoded[: max(length - 3, 0)].decode("utf-8", "ignore") + "…"
