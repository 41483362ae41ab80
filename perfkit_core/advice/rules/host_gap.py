"""Rule 20, host-gap: the host does something else for a while: no operator runs on any thread.

Seen by: stretches of the steps in which nothing but Python, labels and phases is recorded: long ones, and short ones
that are many, as a candidate each. Transform: the stretches shrink, on all ranks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.operators import compiled_regions, name_of, operators, outermost
from perfkit_core.algorithms import groupby, intervals
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.language.messages import Message, message, plural
from perfkit_core.model.schema import (
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
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.quantity import Quantity
from perfkit_core.replay.transforms.durations import Shorten
from perfkit_core.views.code import frame_names
from perfkit_core.views.steps.activity import covered_ns

_LONG: Final = Quantity(
    0.0, 0.0, 0.5, message("prior: this work is dropped or moved to a thread; at worst half of it is needed")
)
"""Factor of long gaps."""
_SHORT: Final = Quantity(
    0.0, 0.4, 0.9, message("prior: from code that is compiled as a whole to Python that runs nearly as before")
)
"""Factor of short gaps, which recording makes longer than they are."""
_WORK: Final = (OPERATOR, OPERATOR_DETAIL, RUNTIME, SYNC, COMMUNICATION, DATALOADER, OVERHEAD)
_FRAMES: Final = 3
_NOTHING: Final = message("no thread has an operator, a call of the device runtime or of the data loader there")
Gaps = dict[int, Intervals]
"""The gaps of each rank: what is shown is that of ``facts.rank``, and all ranks lose them."""


def find(facts: Facts) -> list[Candidate]:
    """Return a candidate for the long gaps and one for the short ones, where they take their share of the step."""
    facts.need_steps()
    if len(facts.steps) < 2:
        raise NotEvaluableError(message("only one step was recorded, so what recurs in every step is unknown"))
    limits = facts.thresholds
    bound = round(max(limits.host_gap_one * facts.step_ns, limits.host_gap_ns))
    gaps = {rank: _idle(facts, rank) for rank in facts.ranks}
    long = {rank: _of_length(own, bound, None) for rank, own in gaps.items()}
    short = {rank: _of_length(own, limits.host_gap_least_ns, bound) for rank, own in gaps.items()}
    candidates = [_long(facts, long)] if facts.exceeds(_total_ns(facts, long), limits.host_gap_share) else []
    start, end = short[facts.rank]
    # few short gaps count only where one of them takes the share by itself
    many = (
        _gaps_per_step(facts, short) >= limits.host_gaps or (end - start > limits.host_gap_share * facts.step_ns).any()
    )
    if many and facts.exceeds(_total_ns(facts, short), limits.host_gap_share):
        candidates.append(_short(facts, short))
    return candidates


def _idle(facts: Facts, rank: int) -> Intervals:
    """Return the time of the steps of a rank in which none of its threads does recorded work."""
    trace = facts.trace
    here = trace.host & (trace.ints("rank") == rank)
    start, end = trace.ints("start_ns"), trace.end_ns
    work = intervals.union_of(np.flatnonzero(here & trace.rows("kind", *_WORK)), start, end)
    steps = np.flatnonzero(here & trace.rows("kind", STEP) & (facts.replay.first >= 0))
    return intervals.subtract(intervals.union_of(steps, start, end), work)


def _of_length(gaps: Intervals, least_ns: int, most_ns: int | None) -> Intervals:
    """Return the gaps of at least so long, and shorter than ``most_ns`` (None: of any length)."""
    length = gaps[1] - gaps[0]
    kept = (length >= least_ns) & ((length < most_ns) if most_ns is not None else True)
    return gaps[0][kept], gaps[1][kept]


def _total_ns(facts: Facts, gaps: Gaps) -> float:
    """Return the median over the steps of the time in the gaps."""
    own = gaps[facts.rank]
    return float(np.median(facts.within_steps(own))) if len(own[0]) else 0.0


def _gaps_per_step(facts: Facts, gaps: Gaps) -> float:
    return len(gaps[facts.rank][0]) / int(facts.mine.sum())


def _long(facts: Facts, gaps: Gaps) -> Candidate:
    start, end = gaps[facts.rank]
    rows, rows_ns, functions = _who(facts, gaps[facts.rank])
    longest, beside = int((end - start).max()), _around_longest(facts, gaps[facts.rank])
    where = message("the longest {beside}", beside=beside)
    if functions:
        where = message("most of it in {function}", function=functions[0])
    return Candidate(
        message(
            "No operator runs for {time}, in gaps of up to {longest:ns}, {where}.",
            time=facts.of_step(_total_ns(facts, gaps)),
            longest=longest,
            where=where,
        ),
        evidence=_evidence(facts, gaps) | {"python": functions, "longest": beside},
        rows=rows,
        rows_ns=rows_ns,
        edits=(Shorten(gaps, _LONG),),
        ceiling_ns=_ceiling_ns(facts, gaps),
        preconditions=(_NOTHING,),
        vetoes=(message("shorter gaps, such as Python between operators, which are counted separately"),),
        assumptions=assume(gap_factor=_LONG),
        risks=(message("Work that is moved to another thread still competes for the lock of Python."),),
    )


def _short(facts: Facts, gaps: Gaps) -> Candidate:
    start, end = gaps[facts.rank]
    rows, rows_ns, functions = _who(facts, gaps[facts.rank])
    count = _gaps_per_step(facts, gaps)
    where = message(", most of it in {function}", function=functions[0]) if functions else ""
    return Candidate(
        plural(
            "No operator runs for {time}, in {n:count} short gap between operators, typically of {length:ns}{where}.",
            "No operator runs for {time}, in {n:count} short gaps between operators, typically of {length:ns}{where}.",
            round(count),
            time=facts.of_step(_total_ns(facts, gaps)),
            length=float(np.median(end - start)),
            where=where,
        ),
        evidence=_evidence(facts, gaps) | {"gaps_per_step": count, "python": functions},
        rows=rows,
        rows_ns=rows_ns,
        edits=(Shorten(gaps, _SHORT),),
        ceiling_ns=_ceiling_ns(facts, gaps),
        preconditions=(_NOTHING,),
        vetoes=(message("gaps that are as short as calling an operator takes"),),
        assumptions=assume(gap_factor=_SHORT),
        risks=(message("The profiler itself works between operators: without it the gaps are shorter."),),
        conflicts=("launch-bound",),  # it removes the same gaps
        words={"gaps": "short", "compiled": "yes" if compiled_regions(facts.trace).any() else "no"},
    )


def _evidence(facts: Facts, gaps: Gaps) -> dict[str, Any]:
    start, end = gaps[facts.rank]
    total = _total_ns(facts, gaps)
    return {
        "gap_ns": round(total), "gap_ratio": total / facts.step_ns, "gaps": len(start),
        "longest_ns": int((end - start).max()), "step_ns": facts.step_ns,
    }  # fmt: skip


def _ceiling_ns(facts: Facts, gaps: Gaps) -> int:
    """Return by how much the typical step is shorter without any of its gaps."""
    recorded = facts.steps.recorded_ns[facts.mine]
    return int(facts.typical(recorded)) - int(facts.typical(recorded - facts.within_steps(gaps[facts.rank])))


def _who(facts: Facts, gaps: Intervals) -> tuple[IntArray, IntArray, list[str]]:
    """Return the innermost events in whose time the gaps of ``facts.rank`` are, how much of the gaps each has to
    itself, and the Python functions among them that have most of it."""
    trace, graph = facts.trace, facts.replay.graph
    lanes = graph.lane[facts.steps.first[facts.mine]]
    nodes = np.flatnonzero(np.isin(graph.lane, lanes) & (graph.row >= 0))
    start = facts.replay.recorded_ns(nodes)
    within = covered_ns(gaps, start, start + graph.dur_ns[nodes])
    rows, within = graph.row[nodes[within > 0]], within[within > 0]
    python, names = trace.rows("kind", PYTHON)[rows], frame_names(trace)
    spent = np.bincount(names.codes[rows[python]], within[python], minlength=len(names.values))
    most = [code for code in np.argsort(-spent, kind="stable")[:_FRAMES] if spent[code] > 0]
    distinct, at = np.unique(rows, return_inverse=True)
    return distinct, groupby.sums(at, len(distinct), within), [names.values[code] for code in most]


def _around_longest(facts: Facts, gaps: Intervals) -> Message:
    """Return between which operators the longest gap is."""
    trace = facts.trace
    rows = facts.of_rank(outermost(trace, operators(trace)))
    longest = int((gaps[1] - gaps[0]).argmax())
    before = rows[trace.end_ns[rows] <= gaps[0][longest]]
    after = rows[trace.ints("start_ns")[rows] >= gaps[1][longest]]
    ends = []
    if len(before):
        ends.append(message("after {operator}", operator=name_of(trace, before[trace.end_ns[before].argmax()])))
    if len(after):
        ends.append(message("before {operator}", operator=name_of(trace, after[0])))
    return message("{ends:and}", ends=ends) if ends else message("without any operator in the recording")


RULE: Final = Rule("host-gap", 20, 1, "Move other work out of the step", find)
