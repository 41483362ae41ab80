"""Rule 43, tensors-from-lists: tensors are made from Python lists, element by element.
Detected: long gaps in calls whose operator receives a tensor made from Python objects, or sampled frames that convert
Python objects in gaps.
Predicted: the step time if the numbers come from an array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from perfkit_core.advice.gaps import filled
from perfkit_core.advice.operators import matching, operator_order
from perfkit_core.advice.rule_input import NO_ROWS, Candidate, RuleInput, assume
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.replay.transforms import Quantity, Shorten, Transform
from perfkit_core.trace.model.schema import DATALOADER

_ARRAY: Final = Quantity(0.02, 0.15, 0.6, message("estimate: copying an array, compared with reading Python objects"))
_RECEIVES: Final = re.compile(r"lift_fresh|assign_value|copy_from_cpu|set_value")
_CONVERTS: Final = re.compile(r"creation\.py\(\d+\): _?to_tensor")
"""Frames of a framework that records no operator when it makes a tensor."""
_CALLS: Final = re.compile(r"(?:^|::)(?:empty|to)$")
"""Operators that one call makes before its tensor is received."""
_ALLOCATES: Final = re.compile(r"(?:^|::)empty$")
_TWICE: Final = 2
"""Reading the type and the size of a list takes at most this factor of the time of reading its numbers."""


def find(facts: RuleInput) -> list[Candidate]:
    """Return the advice from operators that receive such tensors, else from sampled frames of the conversion and of the
    code that builds the lists."""
    return _received(facts) or _sampled(facts)


def _sampled(facts: RuleInput) -> list[Candidate]:
    converting = filled(facts, lambda sampled: sampled.preparing(_CONVERTS)) if facts.has_steps else None
    if converting is None or not facts.exceeds(converting.spent_ns, facts.thresholds.conversion_share):
        return []
    return [_candidate(
        message("Tensors are made from Python lists or arrays. This takes {time}.",
                time=facts.of_step(converting.spent_ns)),
        facts.part("conversion", converting.spent_ns), NO_ROWS, converting.shortened(facts.rank, _ARRAY),
        converting.spent_ns, converting.line,
    )]  # fmt: skip


def _candidate(
    what: Text, evidence: Mapping[str, Any], rows: IntArray, change: Transform, spent: float, line: str | None
) -> Candidate:
    return Candidate(
        what,
        evidence=evidence,
        rows=rows,
        transforms=(change,),
        ceiling_ns=round(spent),
        preconditions=(message("no operator runs while the tensors are made"),),
        assumptions=assume(array_factor=_ARRAY),
        risks=(message("If the numbers are already in arrays, the change saves little."),),
        conflicts=("host-gap",),
        place=line,
    )


def _received(facts: RuleInput) -> list[Candidate]:
    trace, order = facts.trace, operator_order(facts.trace)
    starts, ends = trace.ints("start_ns")[order.row], trace.end_ns[order.row]
    receives = matching(trace, "name", _RECEIVES.search)[order.row]
    calls = matching(trace, "name", _CALLS.search)[order.row]
    allocates = matching(trace, "name", _ALLOCATES.search)[order.row]
    chosen = receives & (facts.in_steps & ~trace.rows("phase", DATALOADER))[order.row]
    chosen &= trace.ints("rank")[order.row] == facts.rank
    conversions: list[tuple[int, int]] = []
    rows: list[int] = []
    for receiver in np.flatnonzero(chosen).tolist():
        conversion = _conversion(order.thread, starts, ends, calls, allocates, receiver, facts.thresholds.conversion_ns)
        conversions += conversion
        rows += [int(order.row[receiver])] * bool(conversion)
    pairs = np.array(sorted(conversions), np.int64).reshape(-1, 2)
    gaps = pairs[:, 0], pairs[:, 1]
    spent = float(np.median(facts.within_steps(gaps))) if len(gaps[0]) else 0.0
    if not facts.exceeds(spent, facts.thresholds.conversion_share):
        return []
    count = len(rows) / max(int(facts.mine.sum()), 1)
    what = facts.plural(
        "{count:count} tensor {per_step} is made from Python objects. This takes {time}.",
        "{count:count} tensors {per_step} are made from Python objects. This takes {time}.",
        count, time=facts.of_step(spent),
    )  # fmt: skip
    evidence = {"tensors": round(count, 2), **facts.part("conversion", spent)}
    change = Shorten({facts.rank: gaps}, _ARRAY)
    return [_candidate(what, evidence, np.array(rows, np.int64), change, spent, None)]


def _conversion(
    thread: IntArray,
    starts: IntArray,
    ends: IntArray,
    calls: BoolArray,
    allocates: BoolArray,
    receiver: int,
    least_ns: int,
) -> list[tuple[int, int]]:
    """Return the gaps of at least ``least_ns`` in which the list of one tensor is read. ``receiver`` is the position of
    the operator that receives the tensor, among operators in the order of their calls."""
    first = receiver  # the call that allocates the tensor: its numbers are read after it
    while first > 0 and calls[first - 1] and thread[first - 1] == thread[receiver] and not allocates[first]:
        first -= 1
    if not allocates[first]:
        return []
    gaps = [(int(ends[at - 1]), int(starts[at])) for at in range(first + 1, receiver + 1)]
    gaps = [(begin, end) for begin, end in gaps if end - begin >= least_ns]
    if first > 0 and thread[first - 1] == thread[receiver]:
        # the type and the size of the list are read before its numbers; other code may run before the first call
        before = min(int(starts[first] - ends[first - 1]), _TWICE * sum(end - begin for begin, end in gaps))
        if before >= least_ns:
            gaps.insert(0, (int(starts[first]) - before, int(starts[first])))
    return gaps
