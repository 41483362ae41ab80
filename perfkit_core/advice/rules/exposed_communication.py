"""Rule 31, exposed-communication: ranks exchange data while nothing is computed.
Detected: communication without computation takes more than ``exposed_share`` of the step. If several ranks were
recorded, or devices recorded which rank they wait for, waits for the last rank do not count.
Predicted: the step time if communication overlaps computation. The worst case is no change. In the best case,
communication overlaps as much computation as the step has."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.rule_input import Assumption, Candidate, RuleInput
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import Message, message
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.views.communication import instances, stragglers
from perfkit_core.views.steps.activity import activities

_LIKELY_OVERLAP: Final = 0.5
_OVERLAP: Final = message("estimate: between no overlap and all the overlap that the computation of the step allows")
_LARGE_BYTES: Final = 4 << 20
"""Smaller messages are limited by latency."""
_SLOW_BYTES_PER_NS: Final = 5.0
"""A link between devices of one machine is faster, even over PCIe 3 (12 GB/s)."""
_STEADY: Final = 2
"""Calls that wait for a late rank differ by more than this factor."""


def find(facts: RuleInput) -> list[Candidate]:
    communicates = instances.communication(facts.trace)
    rows = np.flatnonzero(communicates.device | communicates.host)
    if not len(rows):
        return []
    facts.need_steps()
    rows = rows[facts.trace.ints("step")[rows] >= 0]
    times = _times_ns(facts)
    median = {name: float(times[name].median()) for name in times.columns}
    exposed = median["exposed_ns"]
    if not facts.exceeds(exposed, facts.thresholds.exposed_share):
        return []
    hidden = min(exposed, median["room_ns"]) / median["transfer_ns"]
    factor = Quantity(max(1 - hidden, 0.0), max(1 - _LIKELY_OVERLAP * hidden, 0.0), 1.0, _OVERLAP)
    waits, uncounted = message("waits for the last rank are not counted"), None
    if not facts.replay.tied and not median["waiting_ns"]:
        waits = message("waits and transfers cannot be separated, because only one rank was recorded")
        uncounted = message(", including waits for ranks that were not recorded")
    ratio = exposed / facts.step_ns
    slowest, speed = _slowest(facts, rows)
    return [Candidate(
        message(
            "Communication runs for {time} while nothing is computed ({share:ratio}{uncounted}).{speed}",
            time=facts.of_step(exposed), share=ratio, uncounted=uncounted, speed=speed,
        ),
        evidence={**slowest, **{name: round(value) for name, value in median.items()}, "exposed_ratio": ratio},
        rows=rows,
        method="replay" if facts.replay.tied else "none",
        transforms=(Scale(rows, factor),),
        ceiling_ns=round(exposed),
        preconditions=(message("the step has computation that overlaps no transfer yet"),) if hidden else (),
        vetoes=() if hidden else (message("more overlap, which is impossible: no computation is left for it"),),
        assumptions=(Assumption("communication_factor", factor, _OVERLAP), Assumption("waiting", waits, "recorded")),
        words={"link": "slow" if speed else "unknown", "ranks": "several" if facts.replay.tied else "one"},
        risks=(message("Larger gradient buckets start later and need more memory."),),
    )]  # fmt: skip


def _slowest(facts: RuleInput, rows: IntArray) -> tuple[dict[str, float], Message | None]:
    """Return, for the kind of collective with the longest time, its shortest call, bytes and rate, and a sentence if
    even the shortest call of several is far below the rate of a link between devices. Waits for other ranks differ from
    call to call, so the shortest call contains the least of them."""
    calls = instances.instances(facts.trace)
    calls = calls[calls["row"].isin(rows) & (calls["bytes"].fillna(0) >= _LARGE_BYTES)]
    kinds = ["collective", "bytes"]
    each = calls.groupby(kinds)["dur_ns"].agg(["sum", "min", "max"])
    of_ranks = calls.fillna({"rank": -1}).groupby([*kinds, "rank"]).size()  # all ranks wait together for the last one
    each = each[of_ranks.groupby(kinds).max() > 1]
    if each.empty:
        return {}, None
    each = each.reset_index().sort_values("sum")
    size, least_ns, most_ns = (int(each[name].iloc[-1]) for name in ("bytes", "min", "max"))
    rate = size / max(least_ns, 1)
    evidence = {"collective_bytes": size, "shortest_ns": least_ns, "bytes_per_ns": round(rate, 2)}
    if rate >= _SLOW_BYTES_PER_NS or most_ns > _STEADY * least_ns:
        return evidence, None
    return evidence, message(
        " The largest part is a collective of {size:bytes}, which takes at least {time:ns} in every call: {rate:count} "
        "GB/s. A transport this slow, not a late rank, is the cause.", size=size, time=least_ns, rate=rate,
    )  # fmt: skip


def _times_ns(facts: RuleInput) -> pd.DataFrame:
    """Return the times of communication, transfers and waits in ns, with one row per step of each rank. The steps are
    those of the device if it works late."""
    trace = facts.trace
    steps = pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "total": 0, "exposed": 0, "compute": 0})
    for rank in facts.ranks:
        activity, here = activities(trace).of(trace, rank), facts.steps.rank == rank
        windows = facts.windows(here, device=True)
        alone = intervals.subtract(activity.communication, activity.compute)
        for name, part in (("total", activity.communication), ("exposed", alone), ("compute", activity.compute)):
            steps.loc[here, name] = intervals.covered_ns(part, *windows)
    recorded = stragglers.awaited(trace)
    rows = np.flatnonzero(recorded.rank != NO_ROW)
    waits = pd.DataFrame({name: trace.ints(name)[rows] for name in ("rank", "step")})
    waiting = _per_step(steps, waits.assign(wait_ns=(recorded.end_ns - recorded.start_ns)[rows]))
    if len(np.unique(trace.ints("rank"))) > 1:  # only other ranks can be waited for
        arrivals = stragglers.arrivals(instances.reduce_each(trace, ViewRequest()))
        waits = arrivals[["rank", "step", "wait_ns"]].fillna(-1).astype("int64")
        waiting = waiting.clip(lower=_per_step(steps, waits[waits["wait_ns"] >= 0]))
    total, exposed = steps["total"], steps["exposed"]
    return pd.DataFrame({
        "communication_ns": total,  # transfers and waits
        "exposed_ns": (exposed - waiting).clip(lower=0),  # transfers while nothing is computed
        "transfer_ns": (total - waiting).clip(lower=1),
        "waiting_ns": waiting,  # waits for the last rank; 0 if neither several ranks nor these waits were recorded
        "room_ns": steps["compute"] - (total - exposed),  # computation without communication
    })  # fmt: skip


def _per_step(steps: pd.DataFrame, waits: pd.DataFrame) -> pd.Series[int]:
    """Return the sum of the waits in each step of each rank."""
    waited = waits.groupby(["rank", "step"])["wait_ns"].sum().reset_index()
    return steps.merge(waited, on=["rank", "step"], how="left")["wait_ns"].fillna(0).astype("int64")
