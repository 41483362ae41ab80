"""Find the slow line of the code that makes batches: of a dataset, a collate function or a generator."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np

from perfkit_core.advice.frames import frames
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.causes.places import sampled_lines
from perfkit_core.trace.model.schema import PYTHON
from perfkit_core.views.select import marked
from perfkit_core.views.user_code import IN, LINE, SEPARATOR, Owner, owner_of, place_of

_MOSTLY: Final = 0.5
"""A line is named if at least this share of the time in which batches are made lies in it."""
_LOADER: Final = re.compile(r"data_?loader|utils[/\\]data[/\\]|perfkit_\w+[/\\]", re.IGNORECASE)
"""Files of frameworks and libraries, and of perfkit, that ask the user's code for the next item."""


def slow_line(facts: RuleInput) -> str | None:
    """Return the deepest line of the user's code that runs for most of the time in which batches are made, or of a
    library that runs instead. None if no line does, or if no frames were recorded. Only the thread that runs the steps
    has samples."""
    start, end = facts.activity.loading
    begin, stop = facts.windows(facts.mine)
    start, end = intervals.intersect((start, end), intervals.union(begin, stop))
    framework, samples = facts.trace.meta.framework, frames(facts.trace).samples
    inside = [_inside(stack, framework) for stack in samples.stacks]
    samples = msgspec.structs.replace(samples, stacks=tuple(inside))
    lines = sampled_lines(samples, framework, np.zeros(len(start), np.int64), start, end - start, _MOSTLY)
    return lines.get(0) or _recorded(facts)


def _inside(stack: str, framework: str | None) -> str:
    """Return the frames of a stack that its outermost loader calls, "" without a loader that user code calls."""
    listed = stack.split(SEPARATOR)
    owners = [_owner(frame, framework) for frame in listed]
    users = [at for at, owner in enumerate(owners) if owner is Owner.USER]
    loaders = [at for at, owner in enumerate(owners) if owner is not Owner.USER and _LOADER.search(listed[at])]
    within = [at for at in loaders if users and at < users[-1]]
    return SEPARATOR.join(listed[: within[-1]]) if within else ""


def _owner(frame: str, framework: str | None) -> Owner:
    match = LINE.match(frame.strip())
    return owner_of(match["file"], framework) if match else Owner.RUNTIME


def _recorded(facts: RuleInput) -> str | None:
    """Return the deepest recorded function of the user's code in the events that make batches, or of a library."""
    trace = facts.trace
    parent, python, time_ns = trace.ints("parent"), trace.rows("kind", PYTHON), trace.ints("dur_ns")
    loads = marked(trace, facts.of_rank(facts.batch_rows))
    rows = np.flatnonzero(python & nesting.lies_in(parent, loads))
    names, depth, least_ns = trace.codes("name"), nesting.sum_down(parent, python), _MOSTLY * time_ns[loads].sum()
    found = []
    for code in np.flatnonzero(np.bincount(names.codes[rows], time_ns[rows]) >= max(least_ns, 1)).tolist():
        match = LINE.match(names.values[code])
        owner = owner_of(match["file"], trace.meta.framework) if match else Owner.RUNTIME
        of_name = rows[names.codes[rows] == code]
        # a function may call itself
        spent = intervals.length(intervals.union_of(of_name, trace.ints("start_ns"), trace.end_ns))
        if match is not None and owner is not Owner.RUNTIME and spent >= least_ns:
            users = owner is Owner.USER
            found.append((users, int(depth[of_name].max()), f"{'' if users else IN}{place_of(match)}"))
    return max(found)[-1] if found else None
