"""Rule 20, host-gap: the host does other work while no thread runs an operator.
Detected: gaps, which are parts of a step in which only Python, annotations and phases were recorded. The time that the
profiler takes, and time in which the thread waits for a processor, do not count. Long gaps and, with a device, many
short gaps are separate advice. Recorded or sampled frames name the Python code that fills them. Long gaps in only one
of a few steps are advice on that step.
Predicted: with a device, the step time if the named Python code runs while the device works. Without a device, nothing:
work that must be done takes as long on another thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from perfkit_core.advice.decode_steps import is_served
from perfkit_core.advice.frames import frames
from perfkit_core.advice.gaps import Gaps, idle_gaps
from perfkit_core.advice.operators import compiled_regions, name_of, operators, outermost
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume, numbered_steps
from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.sample_statistics import LEAST_TIMES
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Shorten
from perfkit_core.trace.model import schema
from perfkit_core.views.code import frame_names

_LONG_FACTOR: Final = Quantity(
    0.0, 0.5, 1.0, message("estimate: at best the work runs while the device works; at worst it must be done before")
)
_SHORT_FACTOR: Final = Quantity(
    0.0,
    0.4,
    0.9,
    message("estimate: compiling removes all gaps (best); compiling hardly shortens the time in Python (worst)"),
)
_FRAMES: Final = 3


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    if facts.on_device and is_served(facts):  # host work hides behind earlier steps; rule 49 finds gaps of the device
        return []
    if len(facts.steps) < 2:
        raise NotEvaluableError(message("only one step was recorded, so recurring gaps cannot be recognised"))
    limits = facts.thresholds
    bound = round(max(limits.host_gap_one * facts.step_ns, limits.host_gap_ns))
    long, short = Gaps(), Gaps()
    for rank, (start, end) in idle_gaps(facts).items():
        is_long, is_short = end - start >= bound, (end - start >= limits.host_gap_least_ns) & (end - start < bound)
        long[rank], short[rank] = (start[is_long], end[is_long]), (start[is_short], end[is_short])
    candidates = []
    if facts.exceeds(_own_ns(facts, long), limits.host_gap_share):
        candidates.append(_long(facts, long))
    elif facts.mine.sum() < LEAST_TIMES:  # outlier-steps cannot be evaluated
        candidates += _once(facts, long)
    if not facts.on_device:
        return candidates
    start, end = short[facts.rank]
    count = len(start) / int(facts.mine.sum())
    # fewer than ``host_gaps`` short gaps count only if one of them exceeds ``host_gap_share`` of the step
    many = count >= limits.host_gaps or (end - start > limits.host_gap_share * facts.step_ns).any()
    if many and facts.exceeds(_own_ns(facts, short), limits.host_gap_share):
        candidates.append(_short(facts, short, count))
    return candidates


def _own_ns(facts: RuleInput, gaps: Gaps) -> float:
    """Return the median time of the gaps per step, without the profiler and without waits for a processor."""
    start, _end = gaps[facts.rank]
    overhead = facts.training.event_ns * len(start) / max(int(facts.mine.sum()), 1)
    return max(_median_ns(facts, gaps) - overhead, 0.0) * (1 - facts.preempted)


def _median_ns(facts: RuleInput, gaps: Gaps) -> float:
    rank_gaps = gaps[facts.rank]
    # the lower of two medians: a gap in one of two steps is not typical
    return float(np.quantile(facts.within_steps(rank_gaps), 0.5, method="lower")) if len(rank_gaps[0]) else 0.0


def _long(facts: RuleInput, gaps: Gaps) -> Candidate:
    shared, functions = _shared(facts, gaps, _LONG_FACTOR)
    trace, (start, end) = facts.trace, gaps[facts.rank]
    # the operators around the longest gap
    rows, longest = facts.of_rank(outermost(trace, operators(trace))), int((end - start).argmax())
    before = rows[trace.end_ns[rows] <= start[longest]]
    after = rows[trace.ints("start_ns")[rows] >= end[longest]]
    ends = []
    if len(before):
        ends.append(message("after {operator}", operator=name_of(trace, before[trace.end_ns[before].argmax()])))
    if len(after):
        ends.append(message("before {operator}", operator=name_of(trace, after[0])))
    beside = message("{ends:and}", ends=ends) if ends else message("in a recording without operators")
    where = message(" The longest gap is {beside}.", beside=beside)
    if functions:
        where = message(" Most of this time is in {function}.", function=functions[0])
    return replace(
        shared,
        what=message(
            "No operator runs for {time}, in gaps of up to {longest:ns}.{where}",
            time=facts.of_step(_median_ns(facts, gaps)), longest=int((end - start).max()), where=where,
        ),
        evidence={**shared.evidence, "longest": beside},
        words={"gaps": "long", "cause": "known" if functions else "unknown"},
        vetoes=(message("shorter gaps, such as Python between operators: they count separately"),),
        risks=(
            message("Work that is moved to another thread still competes for Python's GIL and for the cores."),
        ),
    )  # fmt: skip


def _once(facts: RuleInput, gaps: Gaps) -> list[Candidate]:
    """Return advice on the step that alone has long gaps. Its cause is probably not part of a training step."""
    within = facts.within_steps(gaps[facts.rank])
    steps = np.flatnonzero(within > facts.thresholds.host_gap_share * facts.step_ns)
    if len(steps) != 1:
        return []
    shared, functions = _shared(facts, gaps, _LONG_FACTOR)
    return [replace(
        shared,
        what=message(
            "Once, in {step}, no operator runs for {time:ns}.{where}",
            step=numbered_steps(facts.steps.number[facts.mine][steps].tolist()), time=int(within[steps[0]]),
            where=message(" Most of this time is in {function}.", function=functions[0]) if functions else "",
        ),
        method="none",
        ceiling_ns=None,
        words={"gaps": "once"},
    )]  # fmt: skip


def _short(facts: RuleInput, gaps: Gaps, count: float) -> Candidate:
    shared, functions = _shared(facts, gaps, _SHORT_FACTOR)
    start, end = gaps[facts.rank]
    where = message(" Most of this time is in {function}.", function=functions[0]) if functions else ""
    return replace(
        shared,
        what=plural(
            "No operator runs for {time}, in {n:count} short gap between operators (median: {length:ns}).{where}",
            "No operator runs for {time}, in {n:count} short gaps between operators (median: {length:ns}).{where}",
            round(count), time=facts.of_step(_median_ns(facts, gaps)), length=float(np.median(end - start)),
            where=where,
        ),
        evidence={**shared.evidence, "gaps_per_step": count},
        vetoes=(message("gaps as short as the overhead of calling an operator"),),
        risks=(message("The profiler itself works between operators, so the gaps are shorter without a profiler."),),
        conflicts=("launch-bound",),  # launch-bound removes the same gaps
        words={"gaps": "short", "compiled": "yes" if compiled_regions(facts.trace).any() else "no"},
    )  # fmt: skip


def _shared(facts: RuleInput, gaps: Gaps, factor: Quantity) -> tuple[Candidate, list[str]]:
    """Return a Candidate with the fields that are the same for long and for short gaps. Also return the names of the
    Python functions with the most gap time. The rows of the Candidate are the innermost events around the gaps."""
    trace, graph, rank_gaps = facts.trace, facts.replay.graph, gaps[facts.rank]
    nodes = np.flatnonzero(np.isin(graph.lane, graph.lane[facts.steps.first[facts.mine]]) & (graph.row >= 0))
    start = facts.replay.recorded_ns(nodes)
    within = intervals.covered_ns(rank_gaps, start, start + graph.dur_ns[nodes])
    rows, within = graph.row[nodes[within > 0]], within[within > 0]
    python, names = trace.rows("kind", schema.PYTHON)[rows], frame_names(trace)
    spent = np.bincount(names.codes[rows[python]], within[python], minlength=len(names.values))
    most = [code for code in np.argsort(-spent, kind="stable")[:_FRAMES] if spent[code] > 0]
    functions, line = [names.values[code] for code in most], None
    if not functions:
        sampled = frames(trace)
        functions = [line for line, _ in sampled.most_common(sampled.inside(rank_gaps))[:_FRAMES]]
        line = functions[0] if functions else None
    distinct, at = np.unique(rows, return_inverse=True)
    total, recorded = _median_ns(facts, gaps), facts.steps.recorded_ns[facts.mine]
    return Candidate(
        "",
        evidence={
            "gap_ns": round(total), "gap_ratio": total / facts.step_ns, "gaps": len(rank_gaps[0]),
            "longest_ns": int((rank_gaps[1] - rank_gaps[0]).max()), "step_ns": facts.step_ns, "python": functions,
        },
        place=line,
        rows=distinct,
        rows_ns=groupby.sums(at, len(distinct), within),
        transforms=(Shorten(gaps, factor),),
        method="replay" if functions and facts.on_device else "none",
        ceiling_ns=int(facts.typical(recorded)) - int(facts.typical(recorded - facts.within_steps(rank_gaps))),
        preconditions=(message("during the gaps, no thread runs an operator, a runtime call or the data loader"),),
        assumptions=assume(gap_factor=factor),
    ), functions  # fmt: skip
