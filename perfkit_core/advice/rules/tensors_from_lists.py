"""Rule 43, tensors-from-lists: tensors are made from Python lists, element by element.
Detected: long gaps just before an operator that receives a tensor made from Python objects, or sampled frames that
convert Python objects in gaps.
Predicted: the step time if the numbers come from an array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from perfkit_core.advice.facts import NO_ROWS, Candidate, Facts, assume
from perfkit_core.advice.gaps import filled
from perfkit_core.advice.operators import matching, operator_order
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.schema import DATALOADER
from perfkit_core.replay.transforms import Quantity, Shorten, Transform

_ARRAY: Final = Quantity(0.02, 0.15, 0.6, message("estimate: copying an array, compared with reading Python objects"))
_RECEIVES: Final = re.compile(r"lift_fresh|assign_value|copy_from_cpu|set_value")
_CONVERTS: Final = re.compile(r"creation\.py\(\d+\): _?to_tensor")
"""Frames of a framework that records no operator when it makes a tensor."""
_CALLS: Final = re.compile(r"(?:^|::)(?:empty|to|detach_?|lift_fresh)$")
"""Operators that one call makes around the conversion."""


def find(facts: Facts) -> list[Candidate]:
    """Return the advice from operators that receive such tensors, else from sampled frames of the conversion and of the
    code that builds the lists."""
    return _received(facts) or _sampled(facts)


def _sampled(facts: Facts) -> list[Candidate]:
    converting = filled(facts, lambda sampled: sampled.preparing(_CONVERTS)) if facts.has_steps else None
    if converting is None or not facts.exceeds(converting.spent_ns, facts.thresholds.conversion_share):
        return []
    return [_candidate(
        message("Tensors are made from Python objects or arrays. This takes {time}.",
                time=facts.of_step(converting.spent_ns)),
        facts.part("conversion", converting.spent_ns), NO_ROWS, converting.shortened(facts.rank, _ARRAY),
        converting.spent_ns, converting.line,
    )]  # fmt: skip


def _candidate(
    what: Text, evidence: Mapping[str, Any], rows: IntArray, change: Transform, spent: float, place: str | None
) -> Candidate:
    return Candidate(
        what,
        evidence=evidence,
        rows=rows,
        transforms=(change,),
        ceiling_ns=round(spent),
        preconditions=(message("no operator runs just before the tensor exists"),),
        assumptions=assume(array_factor=_ARRAY),
        risks=(message("The program must then keep its numbers in arrays."),),
        conflicts=("host-gap",),
        place=place,
    )


def _received(facts: Facts) -> list[Candidate]:
    trace, order = facts.trace, operator_order(facts.trace)
    start, end = trace.ints("start_ns"), trace.end_ns
    receives = matching(trace, "name", _RECEIVES.search) & facts.in_steps & ~trace.rows("phase", DATALOADER)
    at = np.flatnonzero(receives[order.row])
    calls = matching(trace, "name", _CALLS.search)
    least = facts.thresholds.conversion_ns
    begins, ends, rows = [], [], []
    for place in at.tolist():
        before = place - 1
        while before > 0 and calls[order.row[before]] and order.thread[before] == order.thread[place]:
            if start[order.row[before + 1]] - end[order.row[before]] >= least:
                break
            before -= 1
        if before < 0 or order.thread[before] != order.thread[place]:
            continue
        first, last = end[order.row[before]], start[order.row[before + 1]]
        if last - first >= least:
            begins.append(first)
            ends.append(last)
            rows.append(order.row[place])
    gaps = np.array(begins, np.int64), np.array(ends, np.int64)
    sort = np.argsort(gaps[0], kind="stable")
    mine = trace.ints("rank")[np.array(rows, np.int64)[sort]] == facts.rank if rows else np.zeros(0, np.bool_)
    gaps = gaps[0][sort][mine], gaps[1][sort][mine]
    spent = float(np.median(facts.within_steps(gaps))) if len(gaps[0]) else 0.0
    if not facts.exceeds(spent, facts.thresholds.conversion_share):
        return []
    count = len(gaps[0]) / max(int(facts.mine.sum()), 1)
    what = facts.plural(
        "{count:count} tensor {per_step} is made from Python objects. This takes {time}.",
        "{count:count} tensors {per_step} are made from Python objects. This takes {time}.",
        count, time=facts.of_step(spent),
    )  # fmt: skip
    evidence = {"tensors": round(count, 2), **facts.part("conversion", spent)}
    change = Shorten({facts.rank: gaps}, _ARRAY)
    return [_candidate(what, evidence, np.array(rows, np.int64), change, spent, None)]
