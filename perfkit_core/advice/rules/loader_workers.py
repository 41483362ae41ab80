"""Rule 10, loader-workers: the training process makes its batches itself, on the training thread or on another thread.
Detected: a loader without worker processes that takes more than ``loader_share`` of the step, or an iterable of
``perfkit.profile`` for which a step waits that long. How such an iterable makes its batches is not recorded.
The place is the line of the dataset or of the generator that takes most of this time, if frames were sampled or
recorded.
Predicted: the step time if worker processes make the batches. ``--what-if loader-workers=N`` sets their number."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.loader_place import slow_line
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.language.messages import Message, message, plural
from perfkit_core.errors import UsageError
from perfkit_core.replay import batches
from perfkit_core.replay.batches import in_thread, in_workers
from perfkit_core.replay.transforms import Load, Quantity, Scale, Transform
from perfkit_core.trace.assembly.labels import parse_input_label
from perfkit_core.trace.model.meta import THREADS
from perfkit_core.trace.model.schema import STEP

WORKERS: Final = 4
_MOST_WORKERS: Final = 1024
_AHEAD: Final = 2
HANDOVER_NS: Final = Quantity(
    100_000, 500_000, 2_000_000, message("estimate: a batch from a worker is unpickled and pinned")
)
CONTENTION: Final = Quantity(
    0.85, 1.0, 1.25,
    message("measured factor: 0.9–1.1 in small CPU training runs, 1.2 between two recordings of a ResNet-50 on a V100"),
)  # fmt: skip
"""Factor by which workers change the time of other host work. It may exceed 1: workers share cores and caches with the
training. It may be below 1: the training process itself no longer loads batches, so its caches stay warm."""
_SHARED_CORES: Final = Quantity(
    0.85, 1.2, 2.0, message("measured factor: up to 1.9 in small CPU training runs whose operators used all cores")
)
"""The same factor if operators use all cores: a thread whose core runs a worker makes the other threads wait."""
MAKING: Final = Quantity(1.0, 1.1, 1.4, message("estimate: parallel workers slow each other down"))
_FROM_THREAD: Final = Quantity(
    0.85, 1.0, 1.4,
    message("measured factor: 1.0 in small CPU training runs; workers compete for cores, but threads for Python's GIL"),
)  # fmt: skip
"""Time to make a batch in a worker process, divided by the time in a thread of the training process."""


def find(facts: RuleInput) -> list[Candidate]:
    """Return the advice to use :data:`WORKERS` workers, or one worker per core if there are fewer cores."""
    rows, loading = facts.batch_rows, facts.loading_ns
    if in_workers(facts.trace, rows).any() or not facts.exceeds(loading, facts.thresholds.loader_share):
        return []
    workers = WORKERS if facts.cores is None else min(WORKERS, facts.cores)
    useful = loading > facts.batches_per_step * HANDOVER_NS.mid  # handing over the batches must take less time
    if in_thread(facts.trace, rows).any():
        useful = workers > 1  # one worker is no faster than the thread
    return [what_if(facts, workers)] if useful else []


def what_if(facts: RuleInput, workers: float) -> Candidate:
    """Return the advice to use this number of workers. Raises UsageError for an invalid number. Raises
    NotEvaluableError if workers already make the batches, or if no data loading was recorded."""
    if not 1 <= workers <= _MOST_WORKERS or workers % 1:
        raise UsageError(f"loader-workers={workers:g}: not a number from 1 to {_MOST_WORKERS}", "give a whole number")
    rows, waiting = facts.batch_rows, facts.loading_ns
    if in_workers(facts.trace, rows).any():
        raise NotEvaluableError(
            message("worker processes already make the batches; their number was not recorded"),
            message("see the rule more-workers"),
        )
    times, making = {"waiting": waiting, "step": facts.step_ns}, MAKING
    what = message("Each step spends {waiting:ns} of {step:ns} on making its batch.", **times)
    preconditions, unknown = [message("batches are made in the training process")], list[Message]()
    name = facts.trace.codes("name")
    sources = [parse_input_label(name.values[code]) for code in np.unique(name.codes[rows])]
    iterables = [source for source in sources if source is not None]
    if iterables:
        what = message("Each step waits {waiting:ns} of {step:ns} for the next item of {names:and}.",
                       **times, names=iterables)  # fmt: skip
        preconditions = []
        unknown = [message(
            "Whether {names:and} makes its batches in the training process was not recorded. If it waits for other "
            "processes, files or the network, the saving differs.",
            names=iterables,
        )]  # fmt: skip
    # an iteration that begins in the steps waits for its first batch, which no worker can make before
    begin = rows[batches.begins_iteration(facts.trace, rows)]
    first_ns = facts.typical(facts.totals(begin, facts.trace.ints("dur_ns")[begin]))
    loads: tuple[Transform, ...] = (
        Scale(rows, MAKING), Load(rows, workers, handover_ns=HANDOVER_NS, not_ahead=begin)
    )  # fmt: skip
    if in_thread(facts.trace, rows).any():
        making = _FROM_THREAD
        what = message("Each step waits {waiting:ns} of {step:ns} for a batch made by a background thread.", **times)
        # the steps wait for the thread, so it never pauses: it makes the batches of one step in one step time
        each_ns = facts.step_ns / facts.batches_per_step
        batch = Quantity(each_ns * making.low, each_ns * making.mid, each_ns * making.high, making.source)
        loads = (Load(rows, workers, batch, HANDOVER_NS, not_ahead=begin),)
    started = [message("Each step begins an iteration over the loader, and waits {first:ns} for its first batch.",
                       first=first_ns)] if first_ns else []  # fmt: skip
    steps = np.flatnonzero(facts.trace.rows("kind", STEP) & (facts.replay.first >= 0))
    contention = _SHARED_CORES if _operators_use_all_cores(facts) else CONTENTION
    # a step takes at least the time of the device work, and at least ``CONTENTION.low`` times the other host work
    device = facts.typical(facts.within_steps(facts.activity.compute, device=True)) if facts.on_device else 0.0
    least_ns = max(CONTENTION.low * (facts.step_ns - waiting) + first_ns, device)
    return Candidate(
        what,
        evidence={**facts.part("loader", waiting), "workers": 0, "proposed_workers": workers, "cores": facts.cores},
        rows=rows,
        transforms=(*loads, Scale(steps, contention, device=False)),
        ceiling_ns=round(facts.step_ns - least_ns),
        share_ns=round(waiting),
        preconditions=(*preconditions, message("making a batch needs no device")),
        assumptions=assume(host_factor=contention, handover_ns=HANDOVER_NS, making_factor=making),
        risks=(
            *unknown,
            *started,
            message("Each worker holds a copy of the dataset object and {ahead:count} batches.", ahead=_AHEAD),
            _crowding(int(workers), facts.cores),
        ),
        fill={"workers": f"{workers:.0f}"},
        place=slow_line(facts),
    )  # fmt: skip


def _operators_use_all_cores(facts: RuleInput) -> bool:
    threads, cores = facts.recorded_number(THREADS), facts.cores
    return not facts.on_device and threads is not None and cores is not None and threads >= cores


def _crowding(workers: int, cores: int | None) -> Message:
    count = plural("{n} worker", "{n} workers", workers)
    if cores is None:
        return message("The number of cores was not recorded. The training and each worker need one core.")
    if workers < cores:
        return message("There are {cores} for {workers} and the training.", workers=count, cores=cores_text(cores))
    return message(
        "{workers} and the training share {cores}. While workers compute, they slow down each other and the "
        "training. While they wait for files, they do not.",
        workers=count, cores=cores_text(cores),
    )  # fmt: skip


def cores_text(count: int) -> Message:
    return plural("{n} core", "{n} cores", count)
