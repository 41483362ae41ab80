"""What every format for people says in the same words: rows left out, columns unknown, facts in a line."""

from __future__ import annotations

import pandas as pd

from perfkit_core.renderers import units
from perfkit_core.report.model import Report, Section, Source

NOTHING = "nothing to show"
_READABLE = 40
"""Characters that are left of an indented name, however deep it is."""


def shown(section: Section) -> pd.DataFrame:
    """The rows that people are shown first."""
    return section.table if section.limit is None else section.table.head(section.limit)


def more(section: Section, hint: str = "") -> str:
    """How many rows ``shown`` left out, "" when none; ``hint`` says how to see them."""
    left = len(section.table) - len(shown(section))
    plural = "row" if left == 1 else "rows"
    return f"… {left} more {plural}{hint}" if left else ""


def unknown(section: Section) -> str:
    """Names the columns left out because nothing in them is known, "" when none."""
    names = units.unknown(shown(section))
    return f"Not recorded: {', '.join(names)}" if names else ""


def reason(section: Section) -> str:
    """Why a section has no rows."""
    text = section.empty or NOTHING
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def facts(source: Source) -> str:
    """Head facts in one line: a fact that its name does not need to explain comes without it."""
    return " · ".join(units.visible(value) for value in source.facts.values())


def label(report: Report, source: Source) -> str:
    """What a source is called where a report has several of them, "" where it is the only one."""
    return "" if len(report.sources) == 1 else units.visible(source.label)


def cut(text: str, length: int) -> str:
    """``text`` in at most ``length`` characters, the middle replaced by …; an indent stays, and leaves some room."""
    if len(text) <= length:
        return text
    name = text.lstrip(" ")
    indent = text[: len(text) - len(name)]
    length = max(length - len(indent), _READABLE)
    if len(name) <= length:
        return text
    tail = (length - 1) // 2
    return f"{indent}{name[: length - 1 - tail]}…{name[len(name) - tail :]}"
