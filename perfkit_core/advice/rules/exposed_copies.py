"""Rule 52, exposed-copies: the device copies data and computes nothing meanwhile.
Detected: copies of one direction take more than ``copy_share`` of the step in which the device runs nothing else.
Predicted: nothing, because the recording does not show which copies can be avoided, or run beside computation."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.device_account import device_account
from perfkit_core.advice.operators import matching
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.language.messages import mark, message
from perfkit_core.trace.model.schema import MEMCPY

_WAYS: Final = {
    "HtoD": mark("from the host to the device"),
    "DtoH": mark("from the device to the host"),
    "DtoD": mark("from one place of the device to another"),
}


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    account, trace = device_account(facts), facts.trace
    if account is None:
        return []
    start, end = trace.ints("start_ns"), trace.end_ns
    candidates = []
    for kind, way in _WAYS.items():
        copies = trace.rows("kind", MEMCPY) & matching(trace, "copy_kind", re.compile(kind).match) & facts.in_steps
        rows = facts.of_rank(np.flatnonzero(copies & ~trace.host))
        exposed = account.within(intervals.intersect(account.times("copy"), intervals.union_of(rows, start, end)))
        if not facts.exceeds(exposed, facts.thresholds.copy_share):
            continue
        size, spent = facts.per_step(int(np.maximum(trace.ints("bytes")[rows], 0).sum())), facts.mean_ns(rows)
        pinned = bool(matching(trace, "copy_kind", lambda text: "pageable" not in text.lower())[rows].all())
        candidates.append(Candidate(
            facts.plural(
                "{count:count} copy {per_step} {way} ({size:bytes}) takes {time} without computation.",
                "{count:count} copies {per_step} {way} ({size:bytes}) take {time} without computation.",
                facts.per_step(len(rows)), way=message(way), size=size, time=facts.of_step(exposed),
            ),
            evidence={
                **facts.part("exposed", exposed), "copies_per_step": facts.per_step(len(rows)),
                "bytes_per_step": round(size), "bytes_per_ns": round(size / max(spent, 1), 2),
                "direction": kind, "pinned": pinned,
            },
            rows=rows,
            method="none",
            ceiling_ns=round(exposed),
            preconditions=(message("no kernel runs during this time"),),
            fill={"direction": kind},
            words={"pinned": "yes" if pinned else "no"},
        ))  # fmt: skip
    return candidates
