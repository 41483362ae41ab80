"""Rule 31, exposed-communication: ranks exchange data while nothing is computed. Condition: communication, without
waits for the last rank if several were recorded, covers over ``exposed_share`` of the step while no kernel computes.
Transform: as much of it is hidden as the computation has room for."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.facts import Assumption, Candidate, Facts
from perfkit_core.algorithms import intervals
from perfkit_core.language.messages import message
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.views.communication import instances, stragglers
from perfkit_core.views.steps.activity import activities, covered_ns

_HALF: Final = 0.5
"""Likely used share of the room."""
_OVERLAP: Final = message("prior: between nothing and all that computation of the same step leaves room for")


def find(facts: Facts) -> list[Candidate]:
    talk = instances.communication(facts.trace)
    rows = np.flatnonzero(talk.device | talk.host)
    if not len(rows):
        return []
    facts.need_steps()
    rows = rows[facts.trace.ints("step")[rows] >= 0]
    times = _times_ns(facts.trace)
    median = {name: float(times[name].median()) for name in times.columns}
    exposed = median["exposed_ns"]
    if not facts.exceeds(exposed, facts.thresholds.exposed_share):
        return []
    hidden = min(exposed, median["room_ns"]) / median["transfer_ns"]
    factor = Quantity(max(1 - hidden, 0.0), max(1 - _HALF * hidden, 0.0), 1.0, _OVERLAP)
    waits, uncounted = message("waits for the last rank are not counted"), None
    if not facts.replay.tied:
        waits = message("one rank does not separate waiting from transfer")
        uncounted = message("; includes waits for other ranks, which were not recorded")
    ratio = exposed / facts.step_ns
    return [Candidate(
        message(
            "Communication takes {time} during which nothing is computed ({share:.0%}{uncounted}).",
            time=facts.of_step(exposed), share=ratio, uncounted=uncounted,
        ),
        evidence={**{name: round(value) for name, value in median.items()}, "exposed_ratio": ratio},
        rows=rows,
        transforms=(Scale(rows, factor),),
        ceiling_ns=round(exposed),
        preconditions=(message("the step computes while nothing is transferred, so there is room to overlap"),),
        vetoes=() if hidden else (message("remaining computation of the step that can hide it"),),
        assumptions=(
            Assumption("communication_factor", factor, _OVERLAP), Assumption("waiting", waits, "recorded"),
        ),
        risks=(message("Larger buckets start later and need more memory."),),
    )]  # fmt: skip


def _times_ns(trace: Trace) -> pd.DataFrame:
    """Return for each step of each rank: communication_ns, exposed_ns (of transfers, nothing is computed), transfer_ns,
    waiting_ns (for the last rank, if several were recorded), room_ns (computation without any transfer)."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP))
    steps = pd.DataFrame({"rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows]})
    steps = steps.assign(talk=0, alone=0, compute=0)
    for rank in steps["rank"].unique():
        activity, here = activities(trace).of(trace, int(rank)), (steps["rank"] == rank).to_numpy()
        exposed = intervals.subtract(activity.communication, activity.compute)
        for name, part in (("talk", activity.communication), ("alone", exposed), ("compute", activity.compute)):
            steps.loc[here, name] = covered_ns(part, trace.ints("start_ns")[rows[here]], trace.end_ns[rows[here]])
    arrivals = stragglers.arrivals(instances.reduce_each(trace, ViewRequest()))
    waited = arrivals[["rank", "step", "wait_ns"]].fillna(-1).astype("int64")
    waited = waited[waited["wait_ns"] >= 0].groupby(["rank", "step"])["wait_ns"].sum().reset_index()
    waiting = steps.merge(waited, on=["rank", "step"], how="left")["wait_ns"].fillna(0).astype("int64")
    talk, alone = steps["talk"], steps["alone"]
    return pd.DataFrame({
        "communication_ns": talk,
        "exposed_ns": (alone - waiting).clip(lower=0),
        "transfer_ns": (talk - waiting).clip(lower=1),
        "waiting_ns": waiting,
        "room_ns": steps["compute"] - (talk - alone),
    })  # fmt: skip
