"""Rule 48, data-on-training-thread: the training thread prepares the batch, although workers load the data.
Detected: gaps after a batch from worker processes arrives and before the first operator on it. Sampled or recorded
frames show Python code in them.
Predicted: nothing, because whether the workers have time for this work was measured on no pair of programs. The ceiling
is the time of the gaps."""

from __future__ import annotations

import numpy as np

from perfkit_core.advice.frames import frames
from perfkit_core.advice.gaps import idle_gaps
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.replay.batches import in_workers


def find(facts: RuleInput) -> list[Candidate]:
    trace, rows = facts.trace, facts.of_rank(facts.batch_rows)
    if not in_workers(trace, rows).any():
        return []
    start, end = idle_gaps(facts)[facts.rank]
    arrived = np.sort(trace.end_ns[rows])
    # a gap follows a batch if no operator runs between them
    before = np.searchsorted(arrived, start + 1, side="right") - 1
    follows = (before >= 0) & (start - arrived[np.maximum(before, 0)] <= facts.thresholds.host_gap_least_ns)
    gaps = start[follows], end[follows]
    spent = float(np.median(facts.within_steps(gaps))) if follows.any() else 0.0
    if not facts.exceeds(spent, facts.thresholds.host_gap_share):
        return []
    sampled = frames(trace)
    lines = sampled.most_common(sampled.inside(gaps))
    return [Candidate(
        message(
            "The training thread spends {time} between the arrival of a batch and the first operator, although workers "
            "load the data.",
            time=facts.of_step(spent),
        ),
        evidence={**facts.part("preparing", spent), "lines": [line for line, _ in lines[:3]]},
        rows=rows,
        method="none",
        ceiling_ns=round(spent),
        preconditions=(message("worker processes make the batches"), message("no operator runs meanwhile")),
        risks=(message("If all cores are busy, the workers take them from the training."),),
        conflicts=("host-gap",),
        place=lines[0][0] if lines else None,
    )]  # fmt: skip
