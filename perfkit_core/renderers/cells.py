"""Cells of tables as text for people and as plain Python values, and how long names are cut.

Plain values are exact: integers stay integers, also in columns that pandas turned into floats because of nulls.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from perfkit_core.language.messages import Message, Text, english, render, say, worded
from perfkit_core.model.columns import Column

MISSING: Final = "-"


def text(value: Any, column: Column | None = None) -> str:
    """Return the text of a cell that is no number. The fixed words of a column are translated, names are not."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return visible(worded(value if isinstance(value, str) else render(value), column))


def visible(text: Text) -> str:
    """Return the text, a message as its sentence, with control, bidirectional and line-separating characters escaped.

    Otherwise a name in a trace could control a terminal or a page.
    """
    shown = render(text)
    return (
        shown
        if shown.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    )


def records(table: pd.DataFrame) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return column names, and rows of None, bool, int, float, str, list and dict."""
    converted = [cells(str(name), table[name]) for name in table.columns]
    return [str(name) for name in table.columns], list(zip(*converted, strict=True))


def cells(name: str, values: pd.Series) -> list[Any]:
    """Return one column. Counts (``*_ns``, ``*bytes``) that pandas turned into floats are integers again."""
    result = [plain(value) for value in values.to_list()]
    counted = name.endswith(("_ns", "bytes", "bytes_per_s")) or name == "calls"
    if counted and all(value is None or (isinstance(value, float) and value.is_integer()) for value in result):
        return [None if value is None else int(value) for value in result]
    return result


def plain(value: Any) -> Any:
    """Return a value of pandas or numpy as a JSON type. NA, NaN, NaT and infinities are None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Message):
        return english(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "isoformat") and not pd.isna(value):
        return value.isoformat()
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)


_SHORT: Final = 6
"""Lists of at most this many characters are kept: ``<float>``, ``module.py(1510)``."""
_BRACKET: Final = re.compile(r"(?<!-)[<>]|[()]")
_PAIRS: Final = {"<": ">", "(": ")"}
_AROUND: Final = (
    (re.compile(r"(?<=[\w>])\([^()]*\)$"), ""),
    (re.compile(r"(?<=\w)<[^<>]*>$"), ""),
    (re.compile(r"^void "), ""),
    (re.compile(r"^(?:[^<>()]|\(…\)|<…>)*::(?=[^:])"), "…::"),
)
"""Text around the name of a function, the least informative first: arguments, return type, namespaces."""


def cut(text: str, length: int) -> str:
    """Return ``text`` in at most ``length`` characters; an indent is kept, and leaves at least half of them.

    What ``<`` ``>`` and ``(`` ``)`` enclose is replaced by …, the innermost first. Its beginning is kept if there is
    room, because kernels of one template differ in it. Then the text around the function's name goes, then its middle.
    """
    if len(text) <= length:
        return text
    name = text.lstrip(" ·")
    indent = text[: len(text) - len(name)]
    return indent + _cut(name, max(length - len(indent), length // 2))


@functools.lru_cache(4096)
def _cut(name: str, length: int) -> str:
    if _BRACKET.search(name):
        for level in range(max((depth for depth, _, _ in _lists(name)), default=0), 0, -1):
            if len(name) > length:
                name = _emptied(name, [one[1:] for one in _lists(name) if one[0] == level], length)
        for pattern, replacement in _AROUND:
            if len(name) > length:
                name = pattern.sub(replacement, name)
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def _emptied(name: str, lists: list[tuple[int, int]], length: int) -> str:
    """Replace the contents of the lists by …, but keep what ``length`` allows of the first ones."""
    long = sorted((start, end) for start, end in lists if end - start > _SHORT)
    room = length - len(name) + sum(end - start - 1 for start, end in long)
    parts, done = [], 0
    for start, end in long:
        kept = end if end - start - 1 <= room else start + (room if room > _SHORT else 0)
        room -= max(0, min(kept, end - 1) - start)
        parts.append(name[done:kept] + ("" if kept == end else "…"))
        done = end
    return "".join(parts) + name[done:]


def _lists(name: str) -> Iterator[tuple[int, int, int]]:
    """Yield (depth, start, end) of the text in each pair of brackets; the outermost have depth 1."""
    opened: list[tuple[str, int]] = []
    for found in _BRACKET.finditer(name):
        if found[0] in _PAIRS:
            opened.append((found[0], found.end()))
        else:
            while opened and found[0] == ")" and opened[-1][0] == "<":
                opened.pop()  # a comparison, not a list
            if opened and _PAIRS[opened[-1][0]] == found[0]:
                yield len(opened), opened.pop()[1], found.start()
