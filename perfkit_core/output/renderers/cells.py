"""Convert the cells of tables to text for people or to plain Python values, and shorten long names.

Plain values are exact. For example, pandas stores integers with missing values as floats; here they become integers."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from perfkit_core.base.language.messages import Message, Text, english, render, say, worded
from perfkit_core.base.system.paths import printable
from perfkit_core.trace.model.columns import CALLS, Column
from perfkit_core.trace.model.report_data import Section

MISSING: Final = "-"


def text(value: Any, column: Column | None = None) -> str:
    """Return the text of a cell that is not a number. Fixed words of a column are translated; names are not."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return visible(worded(value if isinstance(value, str) else render(value), column))


def visible(text: Text) -> str:
    """Return the text with unprintable characters escaped."""
    return printable(render(text))


def records(section: Section) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the column names and the rows of the table. The values are None, bool, int, float, str, list or dict."""
    names = [str(name) for name in section.table.columns]
    converted = [cells(section.column(name), section.table[name]) for name in names]
    return names, list(zip(*converted, strict=True))


def cells(column: Column, values: pd.Series) -> list[Any]:
    """Return the values of a column. Integral floats in columns of times, sizes and calls are returned as integers."""
    result = [plain(value) for value in values.to_list()]
    counted = column.unit in ("ns", "bytes", "bytes_per_s") or column.name == CALLS.name
    if counted and all(value is None or (isinstance(value, float) and value.is_integer()) for value in result):
        return [None if value is None else int(value) for value in result]
    return result


def plain(value: Any) -> Any:
    """Return a pandas or numpy value as a JSON type. NA, NaN, NaT and infinities become None."""
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
"""Maximum length of a text in brackets that is always kept, such as ``<float>`` or ``module.py(1510)``."""
_BRACKET: Final = re.compile(r"(?<!-)[<>]|[()]")
_PAIRS: Final = {"<": ">", "(": ")"}
_AROUND: Final = (
    (re.compile(r"(?<=[\w>])\([^()]*\)$"), ""),
    (re.compile(r"(?<=\w)<[^<>]*>$"), ""),
    (re.compile(r"^void "), ""),
    (re.compile(r"^(?:[^<>()]|\(…\)|<…>)*::(?=[^:])"), "…::"),
)
"""Texts around a function's name, in the order of removal: arguments, template arguments, return type, namespaces."""


def cut(text: str, length: int) -> str:
    """Shorten ``text`` to ``length`` characters. The indent is kept, but the name gets at least half of ``length``.

    These steps are taken until the name fits, for example for ``void at::native::gemm<float, 128>(float*, int)``:

    1. Replace text in brackets by …, in the innermost brackets first: ``void at::native::gemm<float, …>(…)``. If there
       is room, the start of this text is kept, because kernels of one template often differ there.
    2. Remove the text around the function's name: ``…::gemm``.
    3. Remove the middle of the name."""
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
                name = _emptied(name, [span[1:] for span in _lists(name) if span[0] == level], length)
        for pattern, replacement in _AROUND:
            if len(name) > length:
                name = pattern.sub(replacement, name)
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def _emptied(name: str, lists: list[tuple[int, int]], length: int) -> str:
    """Shorten ``name`` to ``length`` characters, if possible, by replacing texts in brackets with "…". ``lists``
    contains (start, end) of each text. While there is room, the first texts, or their beginnings, are kept."""
    long = sorted((start, end) for start, end in lists if end - start > _SHORT)
    room = length - len(name) + sum(end - start - 1 for start, end in long)
    parts, done = [], 0
    for start, end in long:
        cut_at = end if end - start - 1 <= room else start + (room if room > _SHORT else 0)
        room -= max(0, min(cut_at, end - 1) - start)
        parts.append(name[done:cut_at] + ("" if cut_at == end else "…"))
        done = end
    return "".join(parts) + name[done:]


def _lists(name: str) -> Iterator[tuple[int, int, int]]:
    """Yield (depth, start, end) of the text in each pair of brackets. The outermost brackets have depth 1."""
    opened: list[tuple[str, int]] = []
    for bracket in _BRACKET.finditer(name):
        if bracket[0] in _PAIRS:
            opened.append((bracket[0], bracket.end()))
        else:
            while opened and bracket[0] == ")" and opened[-1][0] == "<":
                opened.pop()  # This "<" is a comparison operator, not a bracket.
            if opened and _PAIRS[opened[-1][0]] == bracket[0]:
                yield len(opened), opened.pop()[1], bracket.start()
