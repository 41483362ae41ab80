"""Rule 20, host-gap: the host does other work while no thread runs an operator.
Detected: long gaps, which are parts of a step in which only Python, annotations and phases were recorded. The time that
the profiler takes, and time in which the thread waits for a processor, do not count. Recorded or sampled frames name
the Python code that fills them. If a device was recorded, rule 53 names the code for which it waits instead.
Predicted: nothing. Work that must be done takes as long on another thread."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.decode_steps import is_served
from perfkit_core.advice.device_account import device_account
from perfkit_core.advice.frames import frames
from perfkit_core.advice.gaps import Gaps, idle_gaps
from perfkit_core.advice.operators import name_of, operators, outermost
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.trace.model import schema
from perfkit_core.views.code import frame_names

_FRAMES: Final = 3
_MOSTLY: Final = 0.5
"""A function is named in the title if it takes a larger share of the gaps."""
_FOLDERS: Final = re.compile(r"^[^:(]*[/\\]")


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    if device_account(facts) is not None or (facts.on_device and is_served(facts)):
        return []
    if len(facts.steps) < 2:
        raise NotEvaluableError(message("only one step was recorded, so recurring gaps cannot be recognised"))
    limits = facts.thresholds
    bound = round(max(limits.host_gap_one * facts.step_ns, limits.host_gap_ns))
    long = Gaps({rank: (start[end - start >= bound], end[end - start >= bound])
                 for rank, (start, end) in idle_gaps(facts).items()})  # fmt: skip
    return [_long(facts, long)] if facts.exceeds(_own_ns(facts, long), limits.host_gap_share) else []


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
    """Return the advice. Its rows are the innermost events around the gaps."""
    trace, graph, (start, end) = facts.trace, facts.replay.graph, gaps[facts.rank]
    nodes = np.flatnonzero(np.isin(graph.lane, graph.lane[facts.steps.first[facts.mine]]) & (graph.row >= 0))
    begin = facts.replay.recorded_ns(nodes)
    within = intervals.covered_ns((start, end), begin, begin + graph.dur_ns[nodes])
    rows, within = graph.row[nodes[within > 0]], within[within > 0]
    python, names = trace.rows("kind", schema.PYTHON)[rows], frame_names(trace)
    spent = np.bincount(names.codes[rows[python]], within[python], minlength=len(names.values))
    functions = [names.values[code] for code in np.argsort(-spent, kind="stable")[:_FRAMES] if spent[code] > 0]
    share, line = float(spent.max(initial=0)) / max(int((end - start).sum()), 1), None
    if not functions:
        sampled = frames(trace)
        lines = sampled.most_common(sampled.inside((start, end)))[:_FRAMES]
        functions = [line for line, _ in lines]
        line, share = lines[0] if lines else (None, 0.0)
    title, beside = None, _beside(facts, start, end)
    where = message(" The longest gap is {beside}.", beside=beside)
    if functions:
        where = message(" Most of this time is in {function}.", function=functions[0])
    distinct, at = np.unique(rows, return_inverse=True)
    total, longest, recorded = _median_ns(facts, gaps), int((end - start).max()), facts.steps.recorded_ns[facts.mine]
    if share > _MOSTLY:
        template = mark("{place} takes {share:ratio} of the step outside of operators")
        title = message(template, place=_FOLDERS.sub("", functions[0]), share=share * total / facts.step_ns)
    return Candidate(
        message(
            "No operator runs for {time}, in gaps of up to {longest:ns}.{where}",
            time=facts.of_step(total), longest=longest, where=where,
        ),
        evidence={
            "gap_ns": round(total), "gap_ratio": total / facts.step_ns, "gaps": len(start), "longest_ns": longest,
            "step_ns": facts.step_ns, "python": functions, "longest": beside,
        },
        place=line,
        title=title,
        rows=distinct,
        rows_ns=groupby.sums(at, len(distinct), within),
        method="none",
        ceiling_ns=int(facts.typical(recorded)) - int(facts.typical(recorded - facts.within_steps((start, end)))),
        preconditions=(message("during the gaps, no thread runs an operator, a runtime call or the data loader"),),
        words={"cause": "known" if functions else "unknown"},
        vetoes=(message("shorter gaps, such as Python between operators"),),
        risks=(message("Work that is moved to another thread still competes for Python's GIL and for the cores."),),
    )  # fmt: skip


def _beside(facts: RuleInput, start: IntArray, end: IntArray) -> Message:
    """Return between which operators the longest gap lies."""
    trace, longest = facts.trace, int((end - start).argmax())
    rows = facts.of_rank(outermost(trace, operators(trace)))
    before, after = rows[trace.end_ns[rows] <= start[longest]], rows[trace.ints("start_ns")[rows] >= end[longest]]
    ends = []
    if len(before):
        ends.append(message("after {operator}", operator=name_of(trace, before[trace.end_ns[before].argmax()])))
    if len(after):
        ends.append(message("before {operator}", operator=name_of(trace, after[0])))
    return message("{ends:and}", ends=ends) if ends else message("in a recording without operators")
