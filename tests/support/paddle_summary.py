"""Parse the text that Paddle's ``Profiler.summary()`` prints into tables of printed strings.

``tables(text)`` returns all tables of the text: Device, Overview, Model, Distribution, Operator, Kernel, Memory
Manipulation and UserDefined Summary, and one "Memory Summary - PLACE" per place. A row has a name, an indentation level
(two spaces per level), the thread heading above it, and its cells by heading. A cell with several numbers is split:
"CPU Total / Avg / Max / Min / Ratio(%)" gives "CPU Total", "CPU Avg", "CPU Max", "CPU Min" and "CPU Ratio(%)". ``time``
and ``percent`` format perfkit's numbers as Paddle prints them, so that strings are compared instead of floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TITLE = re.compile(r"-*([A-Z]\w*(?: \w+)* Summary(?: - .+?)?)-*")
_THREAD = re.compile(r"-+Thread: (.+?)-+")
_RULE = re.compile(r"-+(  -+)*\s*")
_SECOND_HEAD = " " * 10  # in the overview, the head of the device rows begins with an empty name
_GAP = re.compile(r"\s{2,}")
_DIVISOR = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


@dataclass(frozen=True)
class Row:
    """A printed row. ``level`` is the indentation level, 0 for none. ``thread`` is None in tables without thread
    headings."""

    name: str
    level: int
    thread: str | None
    cells: dict[str, str]


@dataclass(frozen=True)
class Table:
    """A printed table. ``facts`` has the "key: value" lines that are printed above the table's head, such as the time
    unit."""

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def unit(self) -> str:
        return self.facts["Time unit"]


def tables(text: str) -> list[Table]:
    """Return all tables of a printed summary, in the order of the text."""
    found: list[tuple[Table, list[str]]] = []
    for line in text.splitlines():
        title = _TITLE.fullmatch(line)
        if title:
            found.append((Table(title[1]), []))
        elif found:
            found[-1][1].append(line)
    for table, lines in found:
        _read(table, lines)
    return [table for table, _ in found]


def time(ns: float, unit: str) -> str:
    """Return a time as Paddle prints it."""
    return f"{float(ns) / _DIVISOR[unit]:.2f}"


def percent(part: float, whole: float) -> str:
    """Return a share as Paddle prints it. If ``whole`` is 0, the share is 0."""
    return f"{float(part) / whole * 100 if whole else 0:.2f}"


def _read(table: Table, lines: list[str]) -> None:
    """Read the facts and rows of a table. The table's head lies between two horizontal rules. The rows below end at a
    blank line or a note."""
    heads: list[str] = []
    thread = None
    for number, line in enumerate(lines):
        if not heads and ": " in line:
            key, value = line.split(": ", 1)
            table.facts[key] = value
        elif (heads and not line.strip()) or line.startswith("Note:"):
            return
        elif _is_rule(line):
            continue
        elif _is_head(lines, number) and (not heads or line.startswith(_SECOND_HEAD)):
            heads = ["", *_GAP.split(line.strip())] if line.startswith(_SECOND_HEAD) else _GAP.split(line.rstrip())
        elif _THREAD.fullmatch(line):
            thread = _THREAD.fullmatch(line)[1]  # type: ignore[index]
        else:
            table.rows.append(_row(line, heads, thread))


def _is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def _is_head(lines: list[str], number: int) -> bool:
    return 0 < number < len(lines) - 1 and _is_rule(lines[number - 1]) and _is_rule(lines[number + 1])


def _row(line: str, heads: list[str], thread: str | None) -> Row:
    parts = list(_GAP.finditer(line.rstrip()))[1 - len(heads) :]
    assert len(parts) == len(heads) - 1, f"not a row of {heads}: {line!r}"
    name = line[: parts[0].start()]
    ends = [part.start() for part in parts[1:]] + [len(line.rstrip())]
    cells = [line[part.end() : end] for part, end in zip(parts, ends, strict=True)]
    taken = {key: value for head, cell in zip(heads[1:], cells, strict=True) for key, value in _apart(head, cell)}
    return Row(name.strip(), (len(name) - len(name.lstrip())) // 2, thread, taken)


def _apart(head: str, cell: str) -> Iterator[tuple[str, str]]:
    if " / " not in head:
        yield head, cell
        return
    first, *others = head.split(" / ")
    side = first.split()[0]
    yield from zip([first, *(f"{side} {other}" for other in others)], cell.split(" / "), strict=True)
