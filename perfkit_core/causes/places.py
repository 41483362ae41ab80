"""The place of a cause: the deepest Python frame or range that covers most of its time."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.grouping import called, is_frame
from perfkit_core.views.user_code import LINE

COVERS: Final = 0.8
"""Minimum share of the time of a cause that lies in its place."""
_MOST_CELLS: Final = 1 << 22
_RANGES: Final = (
    schema.ANNOTATION, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.DATALOADER,
)  # fmt: skip


def places(trace: Trace, cause: IntArray, row: IntArray, time_ns: IntArray, causes: int) -> list[str | None]:
    """Return the place of each of the ``causes``, None if there is none. Arrays have shape (parts,): the number of the
    cause that a part belongs to, the row of the host event in which it lies (-1 if unknown), and its time."""
    code, texts = _candidates(trace)
    least = np.ceil(COVERS * np.bincount(cause, time_ns, causes)).astype(np.int64)
    result: list[str | None] = []
    at_once = max(_MOST_CELLS // max(len(texts), 1), 1)
    for first in range(0, causes if texts else 0, at_once):
        count = min(at_once, causes - first)
        used = np.flatnonzero((row != NO_ROW) & (cause >= first) & (cause < first + count))
        spent, depth = np.zeros((count, len(texts)), np.int64), np.full((count, len(texts)), NO_ROW, np.int64)
        seen = np.full(len(texts), NO_ROW, np.int64)
        _cover(trace.ints("parent"), code, cause[used] - first, row[used], time_ns[used], seen, spent, depth)
        depth[spent < np.maximum(least[first : first + count], 1)[:, None]] = NO_ROW
        deepest = depth.argmax(axis=1)
        result += [texts[at] if depth[number, at] != NO_ROW else None for number, at in enumerate(deepest.tolist())]
    return result or [None] * causes


def _candidates(trace: Trace) -> tuple[IntArray, list[str]]:
    """Return the code of each event that can be a place, else -1, shape (rows,), and the texts of the codes."""
    names, frame = trace.codes("name"), is_frame(trace) & trace.host
    range_ = trace.host & trace.rows("kind", *_RANGES) & ~frame
    position: dict[str, int] = {}
    codes = np.full((2, len(names.values)), NO_ROW, np.int64)
    for which, mask in enumerate((frame, range_)):
        for name in np.unique(names.codes[mask]).tolist():
            text = names.values[name] if which else _frame(names.values[name])
            if text is not None:
                codes[which, name] = position.setdefault(text, len(position))
    result = np.where(frame, codes[0][names.codes], np.where(range_, codes[1][names.codes], NO_ROW))
    return result, list(position)


def _frame(name: str) -> str | None:
    """Return ``file:line (function)``, the name of a module, or None for a function without a file."""
    match = LINE.match(name)
    if match is None:
        return called(name) if name.startswith("nn.Module") else None
    function = match["function"].strip()
    line = f"{match['file']}:{match['line'] or match['line2']}"
    return f"{line} ({function})" if function else line


@compiled
def _cover(
    parent: IntArray, code: IntArray, cause: IntArray, row: IntArray, time_ns: IntArray, seen: Out[IntArray],
    spent: Out[Annotated[IntArray, 2]], depth: Out[Annotated[IntArray, 2]],
) -> None:  # fmt: skip
    """Add the time of each part to all places around its row, once for each, and note how deep a place lies.
    ``seen`` is the last part that was added to a place."""
    for i in range(len(row)):
        levels, at = 0, row[i]
        while at >= 0:
            levels += code[at] >= 0
            at = parent[at]
        at = row[i]
        while at >= 0:
            place = code[at]
            if place >= 0:
                if seen[place] != i:
                    seen[place] = i
                    spent[cause[i], place] += time_ns[i]
                    if levels > depth[cause[i], place]:
                        depth[cause[i], place] = levels
                levels -= 1
            at = parent[at]
