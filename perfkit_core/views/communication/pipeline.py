"""View ``pipeline``: the bubbles of each rank, and the ideal bubble of the schedule.

A bubble is the time in a step in which a send or receive is in progress and nothing is computed. It includes the
transfer of the message. The stages and the
microbatches follow from the messages. Ranks are the stages of a pipeline if each exchanges messages with at most two
others, in one line. The first stage begins its steps with a send, and the last with a receive. A microbatch sends one
tensor of each size over each link, in each direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Text
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import RANK, count, duration, key, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import POINT_TO_POINT, Partial, instances, together
from perfkit_core.views.communication.point_to_point import NO_MESSAGES, messages
from perfkit_core.views.steps import step_rows
from perfkit_core.views.steps.activity import activities, exclusive_ns
from perfkit_core.views.tables import ratio

GROUPINGS: Final = ("step",)
_PARTS: Final = ("compute_ns", "bubble_ns", "collective_ns")
_CALLS: Final = {"sends": "send", "receives": "recv"}
_SUMS: Final = ("steps", "step_ns", *_PARTS, *_CALLS)


def reduce(trace: Trace, request: ViewRequest) -> Partial:
    """Return ``steps``: the time of each part of the chosen steps. ``messages``: the ends of messages in them."""
    rows = step_rows.chosen_steps(trace, request)
    steps = step_rows.step_frame(trace, rows).rename(columns={"dur_ns": "step_ns"}).assign(steps=1)
    ends, collectives = messages(trace), instances(trace)
    collectives = collectives[collectives["collective"].notna() & ~collectives["collective"].isin(POINT_TO_POINT)]
    parts = np.zeros((len(rows), len(_PARTS) + 1), np.int64)
    start, end, rank = trace.ints("start_ns")[rows], trace.end_ns[rows], trace.ints("rank")[rows]
    for number in np.unique(rank).tolist():
        layers = [activities(trace).of(trace, number).compute, _times(ends, number), _times(collectives, number)]
        parts[rank == number] = exclusive_ns(layers, start[rank == number], end[rank == number])
    steps[list(_PARTS)] = parts[:, :-1]
    in_steps = ends["step"].isin(steps["step"])
    return {"steps": steps, "messages": ends.loc[in_steps, ["rank", "step", "collective", "peer", "bytes"]]}


def _times(calls: pd.DataFrame, rank: int) -> intervals.Intervals:
    calls = calls[(calls["rank"].fillna(NO_ROW) == rank) & calls["start_ns"].notna()]
    start = calls["start_ns"].to_numpy(np.int64)
    return intervals.union(start, start + calls["dur_ns"].to_numpy(np.int64))


def merge(partials: Sequence[Partial], request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank with messages (and step, if grouped), with :data:`COLUMNS`."""
    steps, ends = (together(partials, name) for name in ("steps", "messages"))
    steps, ends = (frame.assign(rank=frame["rank"].fillna(NO_ROW)) for frame in (steps, ends))
    by_step = ["rank", "step"]
    for name, call in _CALLS.items():
        calls = ends[ends["collective"] == call].groupby(by_step).size().rename(name)
        steps = steps.join(calls.astype("Int64"), on=by_step).fillna({name: 0})
    steps = steps[steps["rank"].isin(ends["rank"])]
    keys = by_step if "step" in request.by else ["rank"]
    result = steps.groupby(keys)[list(_SUMS)].sum().reset_index()
    stages = pd.DataFrame(_stages(ends), columns=["rank", "stage", "stages", "microbatches"]).set_index("rank")
    result = result.join(stages.astype("Int64"), on="rank")
    bubble = ratio(result["bubble_ns"], result["step_ns"])
    ideal = (result["stages"] - 1) / (result["microbatches"] + result["stages"] - 1)
    result = result.assign(rank=result["rank"].where(result["rank"] >= 0), bubble_ratio=bubble, ideal_ratio=ideal)
    result = result.astype({"rank": "Int64", "ideal_ratio": "Float64", **dict.fromkeys(_CALLS, "int64")})
    return result[[column.name for column in COLUMNS if column.name in result]]


def _stages(ends: pd.DataFrame) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield the rank, the stage, the number of stages and of microbatches (None if unknown) of each rank in a pipeline
    whose ranks were all recorded. ``ends`` is in order of issue on each rank."""
    with_peer = ends[ends["peer"].notna() & (ends["rank"] >= 0)]
    links = with_peer[["rank", "peer"]].drop_duplicates().astype(int)
    peers: dict[int, set[int]] = {rank: set() for rank in links["rank"].tolist()}
    for rank, peer in zip(links["rank"].tolist(), links["peer"].tolist(), strict=True):
        peers[rank].add(peer)
    first = with_peer.groupby(["rank", "step"])["collective"].first()
    for rank in sorted(peers):
        # The first stage sends first in each step.
        line, before = [rank], set[int]()
        while len(after := peers.get(line[-1], {NO_ROW}) - before) == 1 and len(line) <= len(peers):
            before = {line[-1]}
            line += after
        is_pipeline = not after and len(line) > 1 and all(len(peers[member]) <= 2 for member in line)
        if is_pipeline and (first[rank] == "send").all() and (first[line[-1]] == "recv").all():
            of_line = with_peer[with_peer["rank"].isin(line)]
            calls = of_line.groupby(["rank", "step", "peer", "collective", "bytes"], dropna=False).size()
            microbatches = int(calls.iloc[0]) if calls.nunique() == 1 else None
            yield from ((member, stage, len(line), microbatches) for stage, member in enumerate(line))


def explain(partials: Sequence[Partial]) -> Text:
    """Return why the table is empty."""
    return NO_MESSAGES if any(len(partial["steps"]) for partial in partials) else WITHOUT_STEPS


COLUMNS: Final = (
    RANK,
    key("step", "Step", by=("step",)),
    count("stage", "Stage", "place in the pipeline, from 0", exact=True),
    count("steps", "Steps", exact=True),
    duration("step_ns", "Step time", over="steps"),
    duration("compute_ns", "Compute", over="steps"),
    duration("bubble_ns", "Bubble", "nothing is computed while a message is in progress", over="steps"),
    share("bubble_ratio", "Bubble", description="share of the step time"),
    share("ideal_ratio", "Ideal bubble", description="of GPipe and 1F1B with equal stages"),
    duration("collective_ns", "Exposed collectives", "a collective runs, and nothing is computed", over="steps"),
    count("stages", "Stages", exact=True),
    count("microbatches", "Microbatches", "in a step", exact=True),
    count("sends", "Sends", exact=True, over="steps"),
    count("receives", "Receives", exact=True, over="steps"),
)

VIEW = View(
    name="pipeline",
    title="Pipeline bubbles",
    description="time in which a rank computes nothing during a message (bubble), and the ideal of the schedule",
    table=Reduced(reduce, merge, explain),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: explain([reduce(trace, ViewRequest())]),
)
