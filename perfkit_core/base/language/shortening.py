"""Shorten long names, such as those of kernels, so that what tells them apart remains."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

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
_PLACE: Final = re.compile(r"\.py(?::\d+)? \(")
_AROUND_PLACES: Final = (
    (re.compile(r", \d+ of \d+ samples$"), ""),
    (re.compile(r"(?:^|(?<= ))(?:[^/,]*/)+(?=[^/]+\.py)"), ""),
    (re.compile(r"(?<=, )[^/,]+\.py(?::\d+)? \((.+)\)$"), r"\1"),
)
"""Texts of a place such as ``/home/train.py:7 (loss), numpy/core.py (sort), 5 of 6 samples``, in the order of removal:
number of samples, folders, file of the library."""


def cut(text: str, length: int) -> str:
    """Shorten ``text`` to ``length`` characters. The indent is kept, but the name gets at least half of ``length``.

    These steps are taken until the name fits, for example for ``void at::native::gemm<float, 128>(float*, int)``:

    0. Of a place in code, remove the number of samples and the folders.
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
    for pattern, replacement in _AROUND_PLACES if _PLACE.search(name) else ():
        if len(name) > length:
            name = pattern.sub(replacement, name)
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
