"""Data loading: the calls of loaders, the waits of the steps, and the cores that loader workers run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Message, message, plural
from perfkit_core.recording.environment import CORES, HOST, PROCESSES, THREADS
from perfkit_core.replay.batches import begins_epoch, loads
from perfkit_core.replay.quantity import Quantity

HANDOVER_NS: Final = Quantity(
    100_000, 500_000, 2_000_000, message("prior: a batch from a worker is unpickled and pinned")
)
_NAMES: Final = {
    CORES: ("cores", "cpu_count", "cpu_cores"),
    THREADS: ("threads", "num_threads", "intra_op_threads", "omp_num_threads"),
    PROCESSES: ("processes", "local_world_size"),
}
"""What recorders call the numbers of the host."""


def batches(facts: Facts) -> IntArray:
    """Return the rows of the events in which the steps get their batches. Raises NotEvaluableError."""
    facts.need_steps()
    trace = facts.trace
    rows = loads(trace)
    rows = rows[(trace.ints("step")[rows] >= 0) & (facts.replay.first[rows] >= 0)]
    if not len(rows):
        raise NotEvaluableError(
            message("no data loading was recorded"), message("the framework's own DataLoader records it")
        )
    return rows


def batches_per_step(facts: Facts, rows: IntArray) -> float:
    """Return how many batches a step gets on average; steps in which an epoch begins call their loader more often."""
    steps = facts.steps.only(facts.mine)
    calls, begins = (steps.position(facts.trace, part) for part in (rows, rows[begins_epoch(facts.trace, rows)]))
    count = np.bincount(calls[calls >= 0], minlength=len(steps))
    usual = np.setdiff1d(np.arange(len(steps)), begins)
    return float(np.mean(count[usual] if count[usual].any() else count))


def loading_ns(facts: Facts) -> float:
    """Return what the loader takes of the typical step."""
    return facts.typical(facts.within_steps(facts.activity.loading))


def recorded_number(facts: Facts, what: str) -> int | None:
    """Return how many CORES, THREADS or PROCESSES there were; None where that was not recorded."""
    meta = facts.trace.meta
    places: list[Mapping[str, Any]] = [meta.options, meta.extra]
    host = meta.extra.get(HOST)
    if isinstance(host, Mapping):
        places.insert(0, host)
    for place in places:
        for name in _NAMES[what]:
            number = place.get(name)
            if isinstance(number, int) and not isinstance(number, bool) and number > 0:
                return number
    return None


def cores(facts: Facts) -> int | None:
    """Return the cores for each process of the training; None where they were not recorded."""
    of_machine = recorded_number(facts, CORES)
    return None if of_machine is None else max(of_machine // (recorded_number(facts, PROCESSES) or 1), 1)


def cores_text(count: int) -> Message:
    """Return ``8 cores``."""
    return plural("{n} core", "{n} cores", count)
