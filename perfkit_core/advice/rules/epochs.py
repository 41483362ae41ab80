"""Rule 12: when a loader is begun, for an epoch or for a validation between steps, the training waits until new workers
have started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import intervals, nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.loader import batches
from perfkit_core.advice.rules.phrases import millis, verb
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.batches import begins_epoch, in_workers
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import DATALOADER, NESTED_KINDS, PYTHON, STEP
from perfkit_core.trace import IntArray

_SLOW: Final = r"DataLoaderIterMultiProcess"
"""Loaders that wait for half a second until workers that live on have begun a new epoch."""
_AGAIN_NS: Final = Quantity(
    3_000_000, 8_000_000, 30_000_000, in_english("measured on CPU, torch 2.13: 1 and 4 workers live on")
)
_SLOW_NS: Final = Quantity(
    500_000_000, 505_000_000, 515_000_000, in_english("measured on CPU, paddle 3.3: 1 and 4 workers live on")
)


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Steps (positions among those of the recording) in which an epoch began, and how much longer each waited for its
    batch than steps do."""

    at: IntArray
    longer_ns: IntArray


def epoch_gap(facts: Facts) -> list[Candidate]:
    """Rule 12: a wait for the loader, longer than some steps, in a step in which an epoch is seen to begin."""
    rows = batches(facts)
    if len(facts.steps) < 3:
        raise NotEvaluableError(
            say("fewer than three steps were recorded: nothing tells an epoch's start from other steps")
        )
    if not in_workers(facts.trace, rows).any():
        return []
    found = _epochs(facts, _waits(facts, rows), rows[begins_epoch(facts.trace, rows)])
    gains = len(found.at) and found.longer_ns.mean() > _again_ns(facts, rows).mid
    return [_persistent(facts, rows, found)] if gains else []


def _waits(facts: Facts, rows: IntArray) -> IntArray:
    """Of each step of ``facts.rank`` the time in the loader, and between two of its calls what is not in other events,
    shape (steps,)."""
    trace, rows = facts.trace, facts.of_rank(rows)
    start, end = trace.ints("start_ns"), trace.end_ns
    loading = trace.rows("kind", DATALOADER)
    others = trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP, PYTHON})) & ~loading
    others &= ~nesting.lies_in(trace.ints("parent"), loading)
    same = trace.ints("step")[rows[1:]] == trace.ints("step")[rows[:-1]]
    between = intervals.union(end[rows[:-1]][same], start[rows[1:]][same])
    idle = intervals.subtract(between, intervals.union_of(facts.of_rank(np.flatnonzero(others)), start, end))
    return facts.within_steps(intervals.union(np.append(start[rows], idle[0]), np.append(end[rows], idle[1])))


def _epochs(facts: Facts, waits: IntArray, begins: IntArray) -> _Epochs:
    """The first step recorded is none: what came before it is not known. ``begins``: calls of the loader in steps in
    which an epoch begins; other long waits are for workers that are too few."""
    longer = waits - int(np.median(waits))
    at = np.flatnonzero(longer > facts.thresholds.epoch_gap_steps * facts.step_ns)
    at = np.intersect1d(at[at > 0], facts.steps.only(facts.mine).position(facts.trace, begins))
    return _Epochs(at, longer[at])


def _again_ns(facts: Facts, rows: IntArray) -> Quantity:
    """What the first batch of an epoch takes when the workers live on."""
    return _SLOW_NS if calls.named(facts.trace, _SLOW)[rows].any() else _AGAIN_NS


def _persistent(facts: Facts, rows: IntArray, found: _Epochs) -> Candidate:
    total, starts, count = int(found.longer_ns.sum()), len(found.at), int(facts.mine.sum())
    mean, again = round(float(facts.steps.recorded_ns[facts.mine].mean())), _again_ns(facts, rows)
    low, mid, high = (mean - (total - starts * first) / count for first in (again.low, again.mid, again.high))
    source = in_english("recorded; where that is rarer the saving is less")
    epoch = Assumption("steps_per_epoch", f"{count / starts:.0f}", source)
    at = np.isin(facts.trace.ints("step")[rows], facts.steps.number[facts.mine][found.at])
    return Candidate(
        say(
            "{starts} of {count} steps, in which a loader is begun, {verb} {longer} ms longer for data than the "
            "others: {share:.0%} of the time of all steps, which take {mean} ms on average",
            starts=starts,
            count=count,
            verb=verb(starts, "waits", "wait"),
            longer=millis(total / starts),
            mean=millis(mean),
            share=total / count / mean,
        ),
        evidence={
            "epoch_starts": starts, "gap_ns": total // starts, "gap_ns_per_step": total // count,
            "step_ns": facts.step_ns, "mean_step_ns": mean, "steps": count,
        },
        rows=rows[at],
        method="prior",
        base_ns=mean,
        after_ns=Quantity(low, mid, max(high, mean), in_english("recorded: without the waits, spread over the steps")),
        ceiling_ns=total // count,
        preconditions=(say("workers make the batches"), say("the first step of the recording is left out")),
        assumptions=(epoch, Assumption("first_batch_ns", again, again.source)),
        risks=(say("workers that live on keep their memory and their copy of the dataset between epochs"),),
    )  # fmt: skip


RULES: Final = (Rule("epoch-gap", 12, 1, "Keep loader workers between epochs", epoch_gap),)
