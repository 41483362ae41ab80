"""Rule 20: the host does something else for a while: no operator runs, on no thread."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core import intervals
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.intervals import Intervals
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.gaps import Shorten
from perfkit_core.replay.quantity import Quantity
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
LEFT: Final = Quantity(
    0.0, 0.0, 0.5, "prior: what passes there is dropped or moved to a thread; at worst half is needed"
)
_FRAMES: Final = 3


def host_gaps(facts: Facts) -> list[Candidate]:
    """Rule 20: long stretches of the steps in which no operator runs."""
    facts.need_steps()
    if len(facts.steps) < 2:
        raise NotEvaluableError("only one step was recorded: nothing tells what recurs in every step")
    least = max(facts.thresholds.host_gap_one * facts.step_ns, facts.thresholds.host_gap_ns)
    gaps = long_gaps(facts, round(least))
    total = float(np.median(facts.within_steps(gaps))) if len(gaps[0]) else 0.0
    return [_without(facts, gaps, total)] if total > facts.thresholds.host_gap_share * facts.step_ns else []


def long_gaps(facts: Facts, least_ns: int) -> Intervals:
    """Stretches of the steps of the first rank, of at least so long, in which no thread of it does recorded work."""
    gaps = idle(facts)
    kept = gaps[1] - gaps[0] >= least_ns
    return gaps[0][kept], gaps[1][kept]


def idle(facts: Facts) -> Intervals:
    """Time of the steps of the first rank in which nothing but Python, labels and phases is recorded on any thread."""
    trace = facts.trace
    here = trace.host & (trace.ints("rank") == facts.steps.rank[0])
    start, end = trace.ints("start_ns"), trace.end_ns
    work = intervals.union_of(np.flatnonzero(here & trace.rows("kind", *_WORK)), start, end)
    steps = np.flatnonzero(here & trace.rows("kind", STEP) & (facts.replay.first >= 0))
    return intervals.subtract(intervals.union_of(steps, start, end), work)


def _without(facts: Facts, gaps: Intervals, total: float) -> Candidate:
    rows, frames = _who(facts, gaps)
    longest = int((gaps[1] - gaps[0]).max())
    around = _around(facts, gaps)
    where = f"most of it in {frames[0]}" if frames else f"the longest {around}"
    return Candidate(
        f"no operator runs for {total / 1e6:.2f} of {facts.step_ns / 1e6:.2f} ms of a step, in stretches of up to "
        f"{longest / 1e6:.2f} ms, {where}",
        evidence={
            "gap_ns": round(total), "gap_ratio": total / facts.step_ns, "gaps": len(gaps[0]), "longest_ns": longest,
            "step_ns": facts.step_ns, "python": frames, "longest": around,
        },
        rows=rows,
        edits=(Shorten(gaps, LEFT),),
        ceiling_ns=_at_most(facts, gaps),
        preconditions=("on no thread an operator, a call of the device's runtime or the data loader is recorded",),
        vetoes=("shorter gaps, as Python between operators takes, do not count",),
        assumptions=(Assumption("gap_factor", LEFT, LEFT.source),),
        risks=("what is moved to another thread still competes for Python's lock",),
    )  # fmt: skip


def _at_most(facts: Facts, gaps: Intervals) -> int:
    """What the typical step gets shorter by when all its gaps go."""
    recorded = facts.steps.recorded_ns[facts.steps.rank == facts.steps.rank[0]]
    return int(np.median(recorded)) - int(np.median(recorded - facts.within_steps(gaps)))


def _who(facts: Facts, gaps: Intervals) -> tuple[IntArray, list[str]]:
    """The innermost events in whose time the gaps are, and the Python functions among them that have most of it."""
    trace, graph = facts.trace, facts.replay.graph
    lanes = graph.lane[facts.steps.first[facts.steps.rank == facts.steps.rank[0]]]
    within = np.where(np.isin(graph.lane, lanes), covered_ns(gaps, graph.start_ns, graph.start_ns + graph.dur_ns), 0)
    nodes = np.flatnonzero((within > 0) & (graph.row >= 0))
    rows = graph.row[nodes]
    names = trace.codes("name")
    python = trace.rows("kind", PYTHON)[rows]
    spent = np.bincount(names.codes[rows[python]], within[nodes[python]], minlength=len(names.values))
    most = [code for code in np.argsort(-spent, kind="stable")[:_FRAMES] if spent[code] > 0]
    return np.unique(rows), [names.values[code] for code in most]


def _around(facts: Facts, gaps: Intervals) -> str:
    """Between which operators the longest gap is."""
    trace = facts.trace
    rows = calls.outermost(trace)
    rows = rows[trace.ints("rank")[rows] == facts.steps.rank[0]]
    longest = int((gaps[1] - gaps[0]).argmax())
    before = rows[trace.end_ns[rows] <= gaps[0][longest]]
    behind = rows[trace.ints("start_ns")[rows] >= gaps[1][longest]]
    names = trace.codes("name")
    ends = [f"after {names.values[names.codes[before[trace.end_ns[before].argmax()]]]}"] if len(before) else []
    begins = [f"before {names.values[names.codes[behind[0]]]}"] if len(behind) else []
    return " and ".join([*ends, *begins]) or "without any operator in the recording"


RULES: Final = (Rule("host-gap", 20, 1, "Take other work out of the step", host_gaps),)
