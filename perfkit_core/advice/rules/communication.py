"""Rules 31 and 33: ranks exchange data while nothing is computed, or more often than the optimizer needs it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules.collective_waits import waited_ns
from perfkit_core.advice.rules.passes import Pass, repeated_passes
from perfkit_core.advice.rules.phrases import part_of_step
from perfkit_core.advice.wording import size
from perfkit_core.analyses.communication.communicating import communication
from perfkit_core.analyses.communication.instances import instances
from perfkit_core.analyses.step.activity import activities
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import NO_ROW, STEP
from perfkit_core.trace import IntArray, Trace

_HALF: Final = 0.5
_UNTOLD: Final = in_english("; waiting for other ranks counts, as they were not recorded")
_OVERLAP: Final = in_english("prior: between nothing and all that computation of the same step leaves room for")


def exposed(facts: Facts) -> list[Candidate]:
    """Rule 31: transfers take a share of each step in which no kernel computes."""
    talk = communication(facts.trace)
    rows = np.flatnonzero(talk.device | talk.host)
    if not len(rows):
        return []
    facts.need_steps()
    times = _times(facts.trace)
    median = {name: float(times[name].median()) for name in times.columns}
    if median["exposed_ns"] <= facts.thresholds.exposed_share * facts.step_ns:
        return []
    return [_overlapped(facts, rows[facts.trace.ints("step")[rows] >= 0], median)]


def _overlapped(facts: Facts, rows: IntArray, median: dict[str, float]) -> Candidate:
    hidden = min(median["exposed_ns"], median["room_ns"]) / median["transfer_ns"]
    factor = Quantity(max(1 - hidden, 0.0), max(1 - _HALF * hidden, 0.0), 1.0, _OVERLAP)
    tied = facts.replay.tied > 0
    waits = (
        say("what ranks wait for the last one is not counted")
        if tied
        else say("one rank cannot tell waiting from transfer")
    )
    share = median["exposed_ns"] / facts.step_ns
    return Candidate(
        say(
            "communication takes {part} in which nothing is computed ({share:.0%}{untold})",
            part=part_of_step(facts, median["exposed_ns"]),
            share=share,
            untold=say(_UNTOLD) if not tied else "",
        ),
        evidence={name: round(value) for name, value in median.items()} | {"exposed_ratio": share},
        rows=rows,
        edits=(Scale(rows, factor),),
        ceiling_ns=round(median["exposed_ns"]),
        preconditions=(say("the step computes while nothing is transferred, so that there is room to overlap"),),
        vetoes=() if hidden else (say("no computation of the step is left to hide it behind"),),
        assumptions=(Assumption("communication_factor", factor, _OVERLAP), Assumption("waiting", waits, "recorded")),
        risks=(say("larger buckets begin later, and hold more memory"),),
    )


def _times(trace: Trace) -> pd.DataFrame:
    """Each step of each rank: communication_ns, exposed_ns (of transfers, nothing is computed), transfer_ns, waiting_ns
    (for the last rank, where several were recorded), room_ns (computation during which nothing is transferred)."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP))
    frame = pd.DataFrame({"rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows]})
    parts = [_covered(trace, rows[frame["rank"] == rank], int(rank)) for rank in frame["rank"].unique()]
    waited = waited_ns(trace)
    frame = frame.join(pd.concat(parts).reindex(rows).reset_index(drop=True))
    waiting = frame.merge(waited, on=["rank", "step"], how="left")["wait_ns"].fillna(0).astype("int64")
    talk, alone, compute = frame["talk"], frame["alone"], frame["compute"]
    return pd.DataFrame(
        {
            "communication_ns": talk,
            "exposed_ns": (alone - waiting).clip(lower=0),
            "transfer_ns": (talk - waiting).clip(lower=1),
            "waiting_ns": waiting,
            "room_ns": compute - (talk - alone),
        }
    )


def _covered(trace: Trace, rows: IntArray, rank: int) -> pd.DataFrame:
    """Communication, that without computation, and computation within steps of one rank, by row."""
    found = activities(trace).of(rank)
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    sets = {
        "talk": found.communication,
        "alone": intervals.subtract(found.communication, found.compute),
        "compute": found.compute,
    }
    return pd.DataFrame({name: covered_ns(one, start, end) for name, one in sets.items()}, index=rows)


def every_pass(facts: Facts) -> list[Candidate]:
    """Rule 33: gradients are summed over the ranks after each of several backward passes of an optimizer step."""
    found = repeated_passes(facts.trace)
    return [] if found is None else [_once(facts, found)]


def _once(facts: Facts, found: Pass) -> Candidate:
    trace = facts.trace
    events = instances(trace)["row"].to_numpy(np.int64)[found.needless]
    call = communication(trace).call[events]
    calls = np.unique(np.where(call == NO_ROW, events, call))
    time = facts.per_step(int(trace.ints("dur_ns")[events].sum()))
    amount = "" if found.bytes is None else f" ({size(found.bytes)})"
    return Candidate(
        say(
            "gradients{amount} are exchanged after each of {count} backward passes of an optimizer step",
            amount=amount, count=found.count,
        ),
        evidence={
            "passes": found.count, "collectives_per_pass": found.collectives, "bytes_per_pass": found.bytes,
            "needless_communication_ns": round(time), "step_ns": facts.step_ns,
        },
        rows=calls,
        edits=(Remove(calls),),
        ceiling_ns=round(time),
        preconditions=(
            say("every backward pass exchanges the same"),
            say("the optimizer runs after the last of them only"),
        ),
        vetoes=(say("each pass has an optimizer of its own: it has not"),),
        risks=(say("ranks drift apart until the last pass, whose collective then waits for the slowest one"),),
        fill={"micro_steps": str(found.count)},
    )  # fmt: skip


RULES: Final = (
    Rule("exposed-communication", 31, 1, "Overlap communication with computation", exposed),
    Rule("accumulation-sync", 33, 1, "Exchange gradients once an optimizer step", every_pass),
)
