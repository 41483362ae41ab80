"""When does no thread do recorded work, and what is around it?"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core import grouped, intervals
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.rules import calls
from perfkit_core.advice.wording import both
from perfkit_core.analyses.source import frames
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.intervals import Intervals
from perfkit_core.language import say
from perfkit_core.schema import (
    COMMUNICATION,
    DATALOADER,
    OPERATOR,
    OPERATOR_DETAIL,
    OVERHEAD,
    PYTHON,
    RUNTIME,
    STEP,
    SYNC,
)
from perfkit_core.trace import IntArray

_WORK: Final = (OPERATOR, OPERATOR_DETAIL, RUNTIME, SYNC, COMMUNICATION, DATALOADER, OVERHEAD)
_FRAMES: Final = 3


def idle(facts: Facts, rank: int) -> Intervals:
    """Time of the steps of a rank in which nothing but Python, labels and phases is recorded on any of its threads."""
    trace = facts.trace
    here = trace.host & (trace.ints("rank") == rank)
    start, end = trace.ints("start_ns"), trace.end_ns
    work = intervals.union_of(np.flatnonzero(here & trace.rows("kind", *_WORK)), start, end)
    steps = np.flatnonzero(here & trace.rows("kind", STEP) & (facts.replay.first >= 0))
    return intervals.subtract(intervals.union_of(steps, start, end), work)


def of_length(gaps: Intervals, least_ns: int, most_ns: int | None) -> Intervals:
    """Those of at least so long, and shorter than ``most_ns`` (None: of any length)."""
    length = gaps[1] - gaps[0]
    kept = (length >= least_ns) & ((length < most_ns) if most_ns is not None else True)
    return gaps[0][kept], gaps[1][kept]


def who(facts: Facts, gaps: Intervals) -> tuple[IntArray, IntArray, list[str]]:
    """The innermost events in whose time the gaps of ``facts.rank`` are, how much of the gaps each has to itself, and
    the Python functions among them that have most of it."""
    trace, graph = facts.trace, facts.replay.graph
    lanes = graph.lane[facts.steps.first[facts.mine]]
    nodes = np.flatnonzero(np.isin(graph.lane, lanes) & (graph.row >= 0))
    start = facts.replay.recorded_ns(nodes)
    within = covered_ns(gaps, start, start + graph.dur_ns[nodes])
    rows, within = graph.row[nodes[within > 0]], within[within > 0]
    python, names = trace.rows("kind", PYTHON)[rows], frames.told(trace)
    spent = np.bincount(names.codes[rows[python]], within[python], minlength=len(names.values))
    most = [code for code in np.argsort(-spent, kind="stable")[:_FRAMES] if spent[code] > 0]
    found, at = np.unique(rows, return_inverse=True)
    return found, grouped.sums(at, len(found), within), [names.values[code] for code in most]


def around(facts: Facts, gaps: Intervals) -> str:
    """Between which operators the longest gap is."""
    trace = facts.trace
    rows = facts.of_rank(calls.outermost(trace))
    longest = int((gaps[1] - gaps[0]).argmax())
    before = rows[trace.end_ns[rows] <= gaps[0][longest]]
    behind = rows[trace.ints("start_ns")[rows] >= gaps[1][longest]]
    names = trace.codes("name")
    told = []
    if len(before):
        told.append(say("after {name}", name=names.values[names.codes[before[trace.end_ns[before].argmax()]]]))
    if len(behind):
        told.append(say("before {name}", name=names.values[names.codes[behind[0]]]))
    return both(told) or say("without any operator in the recording")
