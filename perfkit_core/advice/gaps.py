"""Gaps: time within steps in which no thread of a rank runs recorded work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.frames import Frames, frames
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.replay.transforms import Quantity, Shorten
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once

_WORK: Final = (
    schema.OPERATOR, schema.OPERATOR_DETAIL, schema.RUNTIME, schema.SYNC, schema.COMMUNICATION, schema.DATALOADER,
    schema.OVERHEAD,
)  # fmt: skip

_FEWEST: Final = 4
"""Minimum number of samples, and of steps with such samples, that show what fills gaps."""

_MATTERS: Final = 0.1
"""Gaps between the same events are left out if they have a smaller share of the samples that show a kind of code."""

Gaps = dict[int, Intervals]
"""The gaps of each rank, disjoint and sorted by time."""


@once
def idle_gaps(facts: RuleInput) -> Gaps:
    """Return the gaps in all steps. Python code and waits fill them, and so does the profiler itself."""
    trace, gaps = facts.trace, Gaps()
    for rank in facts.ranks:
        here = trace.host & (trace.ints("rank") == rank)
        work = here & trace.rows("kind", *_WORK)
        steps = here & trace.rows("kind", schema.STEP) & (facts.replay.first >= 0)
        gaps[rank] = intervals.subtract(
            *(intervals.union_of(np.flatnonzero(part), trace.ints("start_ns"), trace.end_ns) for part in (steps, work))
        )
    return gaps


@dataclass(frozen=True, slots=True)
class Filled:
    """Gaps of ``facts.rank``, and the share of their time that is spent on a certain kind of Python code.

    - ``spent_ns``: mean time per step
    - ``line``: line of user code that most often does it, None if unknown"""

    gaps: Intervals
    share: float
    spent_ns: float
    line: str | None

    def shortened(self, rank: int, left: Quantity) -> Shorten:
        """Return the transform of a change after which the share ``left`` of this time remains."""
        low, mid, high = (1 - self.share * (1 - end) for end in left.ends)
        return Shorten({rank: self.gaps}, Quantity(low, mid, high, left.source))


def filled(facts: RuleInput, chosen: Callable[[Frames], BoolArray]) -> Filled | None:
    """Return the gaps with samples that ``chosen`` selects, and the share of these samples. None if they are too few.

    A gap may be shorter than the time between two samples. So shares of all gaps between the same events are compared,
    not single gaps. Gaps elsewhere in the steps are left out: other changes may shorten them."""
    sampled, gaps = frames(facts.trace), idle_gaps(facts)[facts.rank]
    inside = sampled.inside(gaps)
    mask = inside & chosen(sampled)
    begin = facts.replay.recorded_ns(facts.steps.first[facts.mine])
    steps = np.unique(np.searchsorted(begin, sampled.at_ns[mask], side="right"))
    if mask.sum() < _FEWEST or len(steps) < min(_FEWEST, len(begin)):
        return None
    lines = sampled.most_common(mask)
    group = _groups(facts, gaps)
    of_sample = group[np.searchsorted(gaps[0], sampled.at_ns[inside], side="right") - 1]
    samples = np.bincount(of_sample, minlength=int(group.max()) + 1)
    selected = np.bincount(of_sample[mask[inside]], minlength=len(samples))
    kept = selected >= _MATTERS * mask.sum()
    gaps = gaps[0][kept[group]], gaps[1][kept[group]]
    share = float(selected[kept].sum() / samples[kept].sum())
    return Filled(gaps, share, share * float(facts.within_steps(gaps).mean()), lines[0][0] if lines else None)


def _groups(facts: RuleInput, gaps: Intervals) -> IntArray:
    """Return the number of each gap's group, shape (gaps,). Gaps of a group lie between events with the same names."""
    trace = facts.trace
    rows = facts.of_rank(np.flatnonzero(trace.host & trace.rows("kind", *_WORK)))
    names, keys = np.append(trace.codes("name").codes[rows], -1), []
    for times, edges in ((trace.end_ns[rows], gaps[0]), (trace.ints("start_ns")[rows], gaps[1])):
        order = np.argsort(times, kind="stable")
        at = np.append(order, len(rows))[np.searchsorted(times[order], edges)]
        beside = np.append(times, -1)[at] == edges
        keys.append(np.where(beside, names[at], -1))  # else the step begins or ends
    group: IntArray = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
    return group
