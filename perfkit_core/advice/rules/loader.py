"""Rules 10 and 13: the training waits for its data."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import loader_cores
from perfkit_core.advice.rules.phrases import millis
from perfkit_core.errors import UsageError
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.batches import begins_epoch, in_thread, in_workers, loads
from perfkit_core.replay.edits.concurrency import Load
from perfkit_core.replay.edits.contract import Edit
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import STEP
from perfkit_core.trace import IntArray

WORKERS: Final = 4
MOST_WORKERS: Final = 1024
_AHEAD: Final = 2
CONTENTION: Final = Quantity(
    0.85, 1.0, 1.25,
    in_english("0.9 to 1.1 measured on small trainings on a CPU; 1.2 between two recordings of a ResNet-50 on a V100"),
)  # fmt: skip
"""Factor of the host's own time once workers run beside it. They share cores and caches with the training; on the other
hand a training that does not stop for its data runs with warm caches, and the profiler's own time, which the recorded
host time holds, is no part of it."""
HANDOVER_NS: Final = Quantity(
    100_000, 500_000, 2_000_000, in_english("prior: a batch from a worker is unpickled and pinned")
)
MAKING: Final = Quantity(1.0, 1.1, 1.4, in_english("prior: making a batch in a worker, beside other workers"))
FROM_THREAD: Final = Quantity(
    0.85, 1.0, 1.4,
    in_english("1.0 measured on small trainings on a CPU; workers share cores, a thread shares the interpreter"),
)  # fmt: skip
"""Factor of the time in which a thread of the training's process makes a batch, once workers do."""


def batches(facts: Facts) -> IntArray:
    """Rows of the events in which the training gets its batches, those of the steps. Raises NotEvaluableError."""
    facts.need_steps()
    trace = facts.trace
    rows = loads(trace)
    rows = rows[(trace.ints("step")[rows] >= 0) & (facts.replay.first[rows] >= 0)]
    if not len(rows):
        raise NotEvaluableError(say("no data loading was recorded: the framework's own DataLoader records it"))
    return rows


def no_workers(facts: Facts) -> list[Candidate]:
    """Rule 10: the training makes its batches itself, or in a thread beside it, and that takes a share of each step."""
    rows, share = batches(facts), _share(facts)
    if in_workers(facts.trace, rows).any() or share <= facts.thresholds.loader_share:
        return []
    workers = loader_cores.most_useful(facts, WORKERS)
    if in_thread(facts.trace, rows).any():
        useful = workers > 1  # one does no more than the thread
    else:
        useful = _waiting_ns(facts) > _batches_a_step(facts, rows) * HANDOVER_NS.mid  # getting it takes so long, too
    return [with_workers(facts, workers)] if useful else []


def more_workers(facts: Facts) -> list[Candidate]:
    """Rule 13: the training waits for batches although workers make them; that getting one takes long is no wait."""
    rows = batches(facts)
    waiting = facts.typical(facts.waited_ns)
    if not in_workers(facts.trace, rows).any() or waiting <= facts.thresholds.loader_share * facts.step_ns:
        return []
    return [_twice_as_many(facts, rows, waiting)]


def with_workers(facts: Facts, workers: float) -> Candidate:
    """What so many workers would do for a training that makes its batches itself. Raises NotEvaluableError, and
    UsageError for what is no number of workers."""
    if not 1 <= workers <= MOST_WORKERS or workers % 1:
        raise UsageError(f"loader-workers={workers:g}: not a number of workers", f"ask for 1 to {MOST_WORKERS}")
    rows = batches(facts)
    if in_workers(facts.trace, rows).any():
        raise NotEvaluableError(say("workers make the batches already; how many is not recorded: ask for more-workers"))
    waiting = _waiting_ns(facts)
    steps = np.flatnonzero(facts.trace.rows("kind", STEP) & (facts.replay.first >= 0))
    thread = bool(in_thread(facts.trace, rows).any())
    making = FROM_THREAD if thread else MAKING
    what = (
        in_english("each step waits {waiting} of {step_ns} ms for the batch that a thread makes beside it")
        if thread
        else in_english("each step makes its own batch for {waiting} of {step_ns} ms before it can begin")
    )
    return Candidate(
        say(what, waiting=millis(waiting), step_ns=millis(facts.step_ns)),
        evidence={
            "loader_ns": round(waiting), "loader_ratio": _share(facts), "step_ns": facts.step_ns, "workers": 0,
            "proposed_workers": workers, "cores": loader_cores.cores(facts),
        },
        rows=rows,
        edits=(
            *(_made_beside(facts, rows, workers) if thread else _made_within(rows, workers)),
            Scale(steps, CONTENTION, device=False),
        ),
        ceiling_ns=_ceiling_ns(facts, waiting),
        share_ns=round(waiting),
        preconditions=(say("batches are made in the training's own process"), say("making a batch needs no device")),
        assumptions=tuple(
            Assumption(name, quantity, quantity.source)
            for name, quantity in (("host_factor", CONTENTION), ("handover_ns", HANDOVER_NS), ("making_factor", making))
        ),
        risks=(
            say("each worker holds a copy of the dataset object and {ahead} batches", ahead=_AHEAD),
            loader_cores.crowded(facts, workers),
        ),
        fill={"workers": f"{workers:.0f}"},
    )  # fmt: skip


def _made_within(rows: IntArray, workers: float) -> tuple[Edit, ...]:
    """Workers make what the training made: as long as it took for each batch."""
    return Scale(rows, MAKING), Load(rows, workers, handover_ns=HANDOVER_NS)


def _made_beside(facts: Facts, rows: IntArray, workers: float) -> tuple[Edit, ...]:
    """Workers make what a thread made while the steps computed: those of a step took it the whole step where the steps
    wait, and no longer where they do not."""
    every = facts.step_ns / _batches_a_step(facts, rows)
    low, mid, high = (every * factor for factor in (FROM_THREAD.low, FROM_THREAD.mid, FROM_THREAD.high))
    return (Load(rows, workers, Quantity(low, mid, high, FROM_THREAD.source), HANDOVER_NS),)


def _ceiling_ns(facts: Facts, waiting: float) -> int:
    """A step takes no less than the rest of the host's work at its quickest, nor than the device works."""
    device = facts.typical(facts.within_steps(facts.activity.compute)) if facts.on_device else 0.0
    return round(facts.step_ns - max(CONTENTION.low * (facts.step_ns - waiting), device))


def _batches_a_step(facts: Facts, rows: IntArray) -> float:
    """Batches that a step gets on average; steps in which an epoch begins call their loader more often than that."""
    steps = facts.steps.only(facts.mine)
    calls, begins = (steps.position(facts.trace, some) for some in (rows, rows[begins_epoch(facts.trace, rows)]))
    count = np.bincount(calls[calls >= 0], minlength=len(steps))
    usual = np.setdiff1d(np.arange(len(steps)), begins)
    return float(np.mean(count[usual] if count[usual].any() else count))


def _twice_as_many(facts: Facts, rows: IntArray, waiting: float) -> Candidate:
    """Twice the workers, whatever their number: their batches come at least as fast, and at most twice as fast."""
    faster = Quantity(
        0.5, 0.55, 1.0, in_english("twice as many workers deliver up to twice as fast, where cores are left")
    )
    every = facts.step_ns / _batches_a_step(facts, rows)
    batch = Quantity(every * faster.low, every * faster.mid, every * faster.high, faster.source)
    what = (
        in_english("each step waits {waiting} of {step_ns} ms for a batch, although workers make them")
        if facts.period == 1
        else in_english(
            "one step in {period} waits for a batch, although workers make them: {waiting} of {step_ns} ms a step on "
            "average"
        )
    )
    return Candidate(
        say(what, waiting=millis(waiting), step_ns=millis(facts.step_ns), period=facts.period),
        evidence={"loader_ns": round(waiting), "loader_ratio": waiting / facts.step_ns, "step_ns": facts.step_ns},
        rows=rows,
        edits=(Load(rows, 1, batch_ns=batch, handover_ns=HANDOVER_NS),),
        ceiling_ns=round(waiting),
        preconditions=(say("workers make the batches"),),
        assumptions=(
            Assumption("batch_every_ns", batch, faster.source),
            Assumption("handover_ns", HANDOVER_NS, HANDOVER_NS.source),
        ),
        risks=(
            say(
                "more workers than cores make all of them slower; {cores}",
                cores=loader_cores.of_recording(facts),
            ),
        ),
        fill={"workers": "twice as many"},
    )


def _waiting_ns(facts: Facts) -> float:
    """What the loader takes of the typical step."""
    return facts.typical(facts.within_steps(facts.activity.loading))


def _share(facts: Facts) -> float:
    return _waiting_ns(facts) / max(facts.step_ns, 1)


RULES: Final = (
    Rule("loader-workers", 10, 1, "Load data in worker processes", no_workers, with_workers),
    Rule("more-workers", 13, 1, "Use more loader workers", more_workers),
)
