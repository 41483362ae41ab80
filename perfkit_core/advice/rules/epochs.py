"""Rule 12: at the start of each epoch the training waits until new loader workers have started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import intervals, nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.loader import batches
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import DATALOADER, NESTED_KINDS, PYTHON, STEP
from perfkit_core.trace import IntArray

_SEVERAL: Final = r"multi[-_ ]?process"


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Steps (positions among those of the recording) in which an epoch began, and how much longer each waited for its
    batch than steps do."""

    at: IntArray
    longer_ns: IntArray


def epoch_gap(facts: Facts) -> list[Candidate]:
    """Rule 12: a wait for the loader, longer than some steps, where an epoch begins."""
    rows = batches(facts)
    if len(facts.steps) < 3:
        raise NotEvaluableError("fewer than three steps were recorded: nothing tells an epoch's start from other steps")
    if not calls.named(facts.trace, _SEVERAL)[rows].any():
        return []
    found = _epochs(facts, _waits(facts, rows))
    return [_persistent(facts, rows, found)] if len(found.at) else []


def _waits(facts: Facts, rows: IntArray) -> IntArray:
    """Of each step the time in the loader, and in nothing at all between two of its calls, shape (steps,)."""
    trace = facts.trace
    start, end = trace.ints("start_ns"), trace.end_ns
    loading = trace.rows("kind", DATALOADER)
    others = trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP, PYTHON})) & ~loading
    others = np.sort(start[others & ~nesting.lies_in(trace.ints("parent"), loading)])
    same = trace.ints("step")[rows[1:]] == trace.ints("step")[rows[:-1]]
    quiet = same & (np.searchsorted(others, end[rows[:-1]]) == np.searchsorted(others, start[rows[1:]]))
    waits = intervals.union(np.append(start[rows], end[rows[:-1]][quiet]), np.append(end[rows], start[rows[1:]][quiet]))
    return facts.within_steps(waits)


def _epochs(facts: Facts, waits: IntArray) -> _Epochs:
    """The first step recorded is none: what came before it is not known."""
    longer = waits - int(np.median(waits))
    at = np.flatnonzero(longer > facts.thresholds.epoch_gap_steps * facts.step_ns)
    at = at[at > 0]
    return _Epochs(at, longer[at])


def _persistent(facts: Facts, rows: IntArray, found: _Epochs) -> Candidate:
    total, count = int(found.longer_ns.sum()), len(facts.steps)
    mean = float(facts.steps.recorded_ns.mean())
    left = 1 - total / count / mean
    spread = "recorded: without the waits, spread over the steps"
    after = Quantity(facts.step_ns * left, facts.step_ns * left, facts.step_ns, spread)
    epoch = Assumption(
        "steps_per_epoch", f"{count / len(found.at):.0f}", "recorded; in longer epochs the saving is less"
    )
    at = np.isin(facts.trace.ints("step")[rows], facts.steps.number[found.at])
    return Candidate(
        f"{len(found.at)} of {count} steps wait {total / len(found.at) / 1e6:.1f} ms longer for "
        f"their batch than the others, as an epoch's first step does while workers start; a step takes "
        f"{facts.step_ns / 1e6:.1f} ms",
        evidence={
            "epoch_starts": len(found.at), "gap_ns": total // len(found.at), "gap_ns_per_step": total // count,
            "step_ns": facts.step_ns, "mean_step_ns": round(mean), "steps": count,
        },
        rows=rows[at],
        method="prior",
        after_ns=after,
        ceiling_ns=round(facts.step_ns * (1 - left)),
        preconditions=("workers make the batches", "the first step of the recording is left out"),
        assumptions=(epoch,),
        risks=("workers that live on keep their memory and their copy of the dataset between epochs",),
    )  # fmt: skip


RULES: Final = (Rule("epoch-gap", 12, 1, "Keep loader workers between epochs", epoch_gap),)
