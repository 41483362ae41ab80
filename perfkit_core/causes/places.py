"""The place of a cause: the deepest range, or Python frame outside of the framework, that covers most of its time.

Samples of frames tell it where frames were not recorded. This is an estimate, so the number of samples is part of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Annotated, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.algorithms.nesting import nearest_above, nearest_on_path, sum_down
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.causes.segments import innermost as innermost_of
from perfkit_core.causes.segments import main_thread
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.code import running_before
from perfkit_core.views.grouping import called, is_frame
from perfkit_core.views.select import threads
from perfkit_core.views.user_code import LINE, SEPARATOR, Owner, inside_packages, launches, owner_of, place_of

COVERS: Final = 0.8
"""Minimum share of the time of a cause that lies in its place."""
_FEWEST: Final = 4
"""Minimum number of samples that show a place."""
_Function = tuple[str, Owner]
"""A function, as ``file (function)``, and whose code it is."""
_DEEPEST: Final = 1 << 32
_MOST_CELLS: Final = 1 << 22
_RANGES: Final = (
    schema.ANNOTATION, schema.FORWARD, schema.BACKWARD, schema.OPTIMIZER, schema.DATALOADER,
)  # fmt: skip


def places(trace: Trace, cause: IntArray, row: IntArray, time_ns: IntArray, causes: int) -> list[str | None]:
    """Return the place of each of the ``causes``, None if there is none. Arrays have shape (parts,): the number of the
    cause that a part belongs to, the row of the host event in which it lies (-1 if unknown), and its time."""
    code, texts, preferred = _candidates(trace)
    parent, candidate = trace.ints("parent"), code != NO_ROW
    nearest, above = nearest_on_path(parent, candidate), nearest_above(parent, candidate)
    innermost = nearest[np.where(nearest[row] == NO_ROW, waiting_call(trace, row), row)]
    level = sum_down(parent, candidate)
    least = np.ceil(COVERS * np.bincount(cause, time_ns, causes)).astype(np.int64)
    result: list[str | None] = []
    at_once = max(_MOST_CELLS // max(len(texts), 1), 1)
    for first in range(0, causes if texts else 0, at_once):
        count = min(at_once, causes - first)
        used = np.flatnonzero((row != NO_ROW) & (innermost != NO_ROW) & (cause >= first) & (cause < first + count))
        spent, depth = np.zeros((count, len(texts)), np.int64), np.full((count, len(texts)), NO_ROW, np.int64)
        seen = np.full(len(texts), NO_ROW, np.int64)
        _cover(above, code, level, cause[used] - first, innermost[used], time_ns[used], seen, spent, depth)
        depth[spent < np.maximum(least[first : first + count], 1)[:, None]] = NO_ROW
        depth[:, preferred] += np.where(depth[:, preferred] == NO_ROW, 0, _DEEPEST)
        deepest = depth.argmax(axis=1)
        result += [texts[at] if depth[number, at] != NO_ROW else None for number, at in enumerate(deepest.tolist())]
    return result or [None] * causes


def waiting_call(trace: Trace, row: IntArray) -> IntArray:
    """Return for each host event of a backward pass on another thread the event that the thread of the steps is in: it
    waits for the backward pass. The thread of the pass has no frames of its own. Other rows stay as they are."""
    result, start = row.copy(), trace.ints("start_ns")
    of_pass = np.flatnonzero((row != NO_ROW) & trace.rows("phase", schema.BACKWARD)[row])
    rank, thread = trace.ints("rank"), threads(trace).code
    for number in np.unique(rank[row[of_pass]]).tolist():
        main = main_thread(trace, rank == number)
        mine = of_pass[(rank[row[of_pass]] == number) & (thread[row[of_pass]] != main)]
        begin, end, event = innermost_of(trace, main)
        at = np.searchsorted(begin, start[row[mine]], side="right") - 1
        inside = (at >= 0) & (start[row[mine]] < np.append(end, 0)[at])
        result[mine[inside]] = event[at[inside]]
    return result


def sampled_lines(
    samples: FrameSamples, framework: str | None, cause: IntArray, start_ns: IntArray, time_ns: IntArray,
    covers: float = COVERS,
) -> dict[int, str]:  # fmt: skip
    """Return the place of each cause that has at least :data:`_FEWEST` samples: the deepest function that most of them
    show, outside of the framework, with its line if most of them show it, and the number of samples. In a library, this
    is the function that the user's code calls, after the place of the call. Arrays have shape (parts,): the cause that
    a part belongs to, and its time. The samples are those of the thread that runs the steps. Most of them
    are at least the share ``covers``."""
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
        lines: dict[_Function, Counter[str]] = defaultdict(Counter)
        depth: Counter[_Function] = Counter()
        for stack, count in of_stack.items():
            for level, (function, line) in enumerate(functions[stack]):
                depth[function] = max(depth[function], level)
                lines[function][line] += count
        covering = sorted(
            (name for name in lines if lines[name].total() >= covers * total), key=lambda name: depth[name]
        )
        of_user = [name for name in covering if name[1] is Owner.USER]
        if covering:
            function = of_user[-1] if of_user else covering[-1]
            ((line, most),) = lines[function].most_common(1)
            place, shown = (line, most) if most >= covers * total else (function[0], lines[function].total())
            if of_user and function != covering[-1]:
                place += f", {inside_packages(covering[covering.index(function) + 1][0])}"
            result[number] = f"{place}, {shown} of {total} samples"
    return result


def _functions(stack: str, framework: str | None) -> Iterable[tuple[_Function, str]]:
    """Return the functions of a stack, the outermost first, with the innermost line of each; without the runtime."""
    lines: dict[_Function, str] = {}
    for frame in reversed(stack.split(SEPARATOR)):
        match = LINE.match(frame.strip())
        owner = Owner.RUNTIME if match is None else owner_of(match["file"], framework)
        if match is not None and owner is not Owner.RUNTIME:
            lines[place_of(match, line=False), owner] = place_of(match)
    return lines.items()


def _candidates(trace: Trace) -> tuple[IntArray, list[str], IntArray]:
    """Return the code of each event that can be a place, else -1, shape (rows,), the texts of the codes, and the codes
    that are preferred: ranges, and frames outside of the framework."""
    names, frame = trace.codes("name"), is_frame(trace) & trace.host
    range_ = trace.host & trace.rows("kind", *_RANGES) & ~frame
    open_ = frame & running_before(trace)  # their line is the one that ran when the recording began
    position: dict[str, int] = {}
    preferred: list[int] = []
    result = np.full(len(names.codes), NO_ROW, np.int64)
    for mask, place in (
        (frame & ~open_, lambda name: _frame(name, line=True)),
        (open_, lambda name: _frame(name, line=False)),
        (range_, lambda name: name),
    ):
        codes = np.full(len(names.values), NO_ROW, np.int64)
        for name in np.unique(names.codes[mask]).tolist():
            text = place(names.values[name])
            if text is not None:
                codes[name] = position.setdefault(text, len(position))
                match = None if mask is range_ else LINE.match(names.values[name])
                if match is None or owner_of(match["file"], trace.meta.framework) is not Owner.RUNTIME:
                    preferred.append(position[text])
        result = np.where(mask, codes[names.codes], result)
    return result, list(position), np.array(preferred, np.int64)


def _frame(name: str, line: bool) -> str | None:
    """Return the place of a frame, the name of a module, or None for a function without a file, and for what only runs
    the program. The line of a function is its first one, which says nothing about a module."""
    match = LINE.match(name)
    if match is None:
        return called(name) if name.startswith("nn.Module") else None
    return None if launches(match["file"]) else place_of(match, line and match["function"].strip() != "<module>")


@compiled
def _cover(
    above: IntArray, code: IntArray, level: IntArray, cause: IntArray, innermost: IntArray, time_ns: IntArray,
    seen: Out[IntArray], spent: Out[Annotated[IntArray, 2]], depth: Out[Annotated[IntArray, 2]],
) -> None:  # fmt: skip
    """Add the time of each part to all places around it, once for each, and note how deep a place lies. ``innermost``
    is the row of the innermost place around a part, ``above`` that of the next place around each place. ``seen`` is the
    last part that was added to a place."""
    for i in range(len(innermost)):
        at = innermost[i]
        while at >= 0:
            place = code[at]
            if seen[place] != i:
                seen[place] = i
                spent[cause[i], place] += time_ns[i]
                depth[cause[i], place] = max(depth[cause[i], place], level[at])
            at = above[at]
