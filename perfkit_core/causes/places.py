"""The place of a cause: the deepest range, or Python frame outside of the framework, that covers most of its time.

Samples of frames tell it where frames were not recorded. This is an estimate, so the number of samples is part of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Annotated, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.grouping import called, is_frame
from perfkit_core.views.user_code import LINE, SEPARATOR, Owner, owner_of

COVERS: Final = 0.8
"""Minimum share of the time of a cause that lies in its place."""
_FEWEST: Final = 4
"""Minimum number of samples that show a place."""
_DEEPEST: Final = 1 << 32
_MOST_CELLS: Final = 1 << 22
_RANGES: Final = (
    schema.ANNOTATION, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.DATALOADER,
)  # fmt: skip


def places(trace: Trace, cause: IntArray, row: IntArray, time_ns: IntArray, causes: int) -> list[str | None]:
    """Return the place of each of the ``causes``, None if there is none. Arrays have shape (parts,): the number of the
    cause that a part belongs to, the row of the host event in which it lies (-1 if unknown), and its time."""
    code, texts, preferred = _candidates(trace)
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
        depth[:, preferred] += np.where(depth[:, preferred] == NO_ROW, 0, _DEEPEST)
        deepest = depth.argmax(axis=1)
        result += [texts[at] if depth[number, at] != NO_ROW else None for number, at in enumerate(deepest.tolist())]
    return result or [None] * causes


def sampled_lines(
    samples: FrameSamples, framework: str | None, cause: IntArray, start_ns: IntArray, time_ns: IntArray
) -> dict[int, str]:
    """Return the place of each cause that has at least :data:`_FEWEST` samples: the deepest function that most of them
    show, outside of the framework, with the number of samples. Arrays have shape (parts,): the cause that a part
    belongs to, and its time. The samples are those of the thread that runs the steps."""
    at_ns, stacks = samples.at_ns, np.array(samples.stack, np.int64)
    first, last = np.searchsorted(at_ns, start_ns), np.searchsorted(at_ns, start_ns + time_ns)
    hit = np.flatnonzero(last > first)
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for number, begin, end in zip(cause[hit].tolist(), first[hit].tolist(), last[hit].tolist(), strict=True):
        counts[number].update(stacks[begin:end].tolist())
    functions = [_functions(stack, framework) for stack in samples.stacks]
    result = {}
    for number, of_stack in counts.items():
        if (total := sum(of_stack.values())) < _FEWEST:
            continue
        lines: dict[str, Counter[str]] = defaultdict(Counter)
        depth: Counter[str] = Counter()
        for stack, count in of_stack.items():
            for level, (function, line) in enumerate(functions[stack]):
                depth[function] = max(depth[function], level)
                lines[function][line] += count
        if covering := [name for name in lines if lines[name].total() >= COVERS * total]:
            deepest = max(covering, key=lambda name: depth[name])
            ((line, _),) = lines[deepest].most_common(1)
            result[number] = f"{line}, {lines[deepest].total()} of {total} samples"
    return result


def _functions(stack: str, framework: str | None) -> Iterable[tuple[str, str]]:
    """Return the functions of a stack, the outermost first, each with its innermost line; without the runtime."""
    lines: dict[str, str] = {}
    for frame in reversed(stack.split(SEPARATOR)):
        match = LINE.match(frame.strip())
        if match is not None and owner_of(match["file"], framework) is not Owner.RUNTIME:
            function = match["function"].strip()
            lines[f"{match['file']}:{function}"] = _line(match)
    return lines.items()


def _candidates(trace: Trace) -> tuple[IntArray, list[str], IntArray]:
    """Return the code of each event that can be a place, else -1, shape (rows,), the texts of the codes, and the codes
    that are preferred: ranges, and frames outside of the framework."""
    names, frame = trace.codes("name"), is_frame(trace) & trace.host
    range_ = trace.host & trace.rows("kind", *_RANGES) & ~frame
    position: dict[str, int] = {}
    preferred: list[int] = []
    codes = np.full((2, len(names.values)), NO_ROW, np.int64)
    for which, mask in enumerate((frame, range_)):
        for name in np.unique(names.codes[mask]).tolist():
            match = None if which else LINE.match(names.values[name])
            text = names.values[name] if which else _frame(names.values[name], match)
            if text is not None:
                codes[which, name] = position.setdefault(text, len(position))
                if match is None or owner_of(match["file"], trace.meta.framework) is not Owner.RUNTIME:
                    preferred.append(position[text])
    result = np.where(frame, codes[0][names.codes], np.where(range_, codes[1][names.codes], NO_ROW))
    return result, list(position), np.array(preferred, np.int64)


def _frame(name: str, match: re.Match[str] | None) -> str | None:
    """Return ``file:line (function)``, the name of a module, or None for a function without a file."""
    if match is None:
        return called(name) if name.startswith("nn.Module") else None
    return _line(match)


def _line(match: re.Match[str]) -> str:
    line, function = f"{match['file']}:{match['line'] or match['line2']}", match["function"].strip()
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
