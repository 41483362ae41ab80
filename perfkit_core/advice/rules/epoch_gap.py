"""Rule 12, epoch-gap: training waits for new loader workers at the start of an epoch or of a validation.
Detected: steps that start a loader and wait longer for data than other steps. The difference must exceed
``epoch_gap_steps`` step times.
Predicted: the mean step time with persistent workers. It is computed without a replay: each additional wait becomes as
short as the wait for the first batch from persistent workers."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching
from perfkit_core.advice.rule_input import Assumption, Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay import batches, transforms
from perfkit_core.trace.model.schema import DATALOADER, NESTED_KINDS, PYTHON, STEP

_SLOW: Final = re.compile(r"DataLoaderIterMultiProcess", re.IGNORECASE)
"""Loaders whose persistent workers need half a second to begin a new epoch."""
_AGAIN_NS: Final = transforms.Quantity(
    3_000_000, 8_000_000, 30_000_000, message("measured on a CPU with torch 2.13 and 1 or 4 persistent workers")
)
_SLOW_NS: Final = transforms.Quantity(
    500_000_000, 505_000_000, 515_000_000, message("measured on a CPU with paddle 3.3 and 1 or 4 persistent workers")
)


def find(facts: RuleInput) -> list[Candidate]:
    trace, rows = facts.trace, facts.batch_rows
    if len(facts.steps) < 3:
        raise NotEvaluableError(
            message("fewer than three steps were recorded, so the start of an epoch cannot be recognised")
        )
    if not batches.in_workers(trace, rows).any():
        return []
    # a step waits during the loader's calls, and between these calls while no other host event runs
    calls, start, end = facts.of_rank(rows), trace.ints("start_ns"), trace.end_ns
    loading = trace.rows("kind", DATALOADER)
    other_work = trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP, PYTHON})) & ~loading
    other_work &= ~nesting.lies_in(trace.ints("parent"), loading)
    same = trace.ints("step")[calls[1:]] == trace.ints("step")[calls[:-1]]
    between = intervals.union(end[calls[:-1]][same], start[calls[1:]][same])
    idle = intervals.subtract(between, intervals.union_of(facts.of_rank(np.flatnonzero(other_work)), start, end))
    waits = facts.within_steps(intervals.union(np.append(start[calls], idle[0]), np.append(end[calls], idle[1])))
    longer = waits - int(np.median(waits))
    at = np.flatnonzero(longer > facts.thresholds.epoch_gap_steps * facts.step_ns)
    begins = facts.steps.only(facts.mine).position(trace, rows[batches.begins_epoch(trace, rows)])
    # The first recorded step does not count, because its wait may have begun before the recording. Steps that start no
    # loader do not count either, because their long waits are due to too few workers.
    at = np.intersect1d(at[at > 0], begins)
    longer = longer[at]
    # the time that the first batch of an epoch takes with persistent workers
    again = _SLOW_NS if matching(trace, "name", _SLOW.search)[rows].any() else _AGAIN_NS
    if not len(at) or longer.mean() <= again.mid:
        return []
    total, starts, count = int(longer.sum()), len(at), int(facts.mine.sum())
    mean = round(float(facts.steps.recorded_ns[facts.mine].mean()))
    low, mid, high = (mean - (total - starts * first) / count for first in (again.low, again.mid, again.high))
    rarer = message("recorded; longer epochs make the saving smaller")
    return [Candidate(
        plural(
            "{n} of {count:count} steps starts a loader and waits {longer:ns} longer for data than the other steps. "
            "This wait takes {share:ratio} of the time of all steps (mean step: {mean:ns}).",
            "{n} of {count:count} steps start a loader and wait {longer:ns} longer for data than the other steps. "
            "These waits take {share:ratio} of the time of all steps (mean step: {mean:ns}).",
            starts, count=count, longer=total / starts, mean=mean, share=total / count / mean,
        ),
        evidence={
            "epoch_starts": starts, "gap_ns": total // starts, "gap_ns_per_step": total // count,
            "step_ns": facts.step_ns, "mean_step_ns": mean, "steps": count,
        },
        rows=rows[np.isin(trace.ints("step")[rows], facts.steps.number[facts.mine][at])],
        method="prior",
        base_ns=mean,
        after_ns=transforms.Quantity(low, mid, max(high, mean), message("recorded: the mean step without these waits")),
        ceiling_ns=total // count,
        preconditions=(message("worker processes make the batches"), message("the first recorded step does not count")),
        assumptions=(
            Assumption("steps_per_epoch", f"{count / starts:.0f}", rarer),
            Assumption("first_batch_ns", again, again.source),
        ),
        risks=(message("Persistent workers keep their memory and their copy of the dataset between epochs."),),
    )]  # fmt: skip
