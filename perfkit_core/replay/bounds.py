"""View ``bounds``: the largest causes of the account, and how long a step would be without each of them.

The account says where the time went, not what a change saves. Without a cause, other work may take its place: the host
is then late with the next launch, or the device is still busy. So the recording is replayed without the events of each
cause: their calls and device work take no time, and nothing waits for them. This is a bound: no change of this cause
alone makes the step shorter than that. Bounds do not add up.

What is in flight, has no recorded launch, or follows the last work has no bound, because its reason is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import Text, mark, message
from perfkit_core.causes.account_view import INCOMPLETE, parts_in_steps
from perfkit_core.causes.labels import Labels
from perfkit_core.causes.largest import LEAST, MOST, NO_OPERATOR, STATES
from perfkit_core.causes.segments import COMMUNICATION, COMPUTE, COPY, HOST, LATENCY, WORDS
from perfkit_core.plugins.contracts import Listed, View, ViewRequest
from perfkit_core.replay import played_steps
from perfkit_core.replay.critical_path import contradiction, replay_of
from perfkit_core.replay.graph import LAUNCH, CyclicGraphError, Graph, Replay, play
from perfkit_core.replay.transforms import Case, Remove, Shorten
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import RANK, duration, key
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import roofline
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.tables import group

_STEP: Final = "step"
_KNOWN: Final = 0.8
"""Minimum share of the time of a cause whose FLOPs and bytes are known, for its limit by the roofline."""

Parts = dict[str, IntArray]


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return :data:`COLUMNS`. The first row is the recorded step, and the others are the causes."""
    replay, labels = replay_of(trace), Labels(trace)
    parts = parts_in_steps(trace, request, labels)
    complete = parts[INCOMPLETE] == 0
    if complete.any():
        parts = {name: cells[complete] for name, cells in parts.items()}
    steps = played_steps.steps(replay)
    steps = steps.only(np.isin(steps.number, parts["step"]) | (steps.number < 0))
    if contradiction(replay) is not None or not len(steps) or not len(parts["word"]):
        return pd.DataFrame(columns=[column.name for column in COLUMNS if column is not RANK])
    time_ns, rows = parts["launched_ns"], list[tuple[Any, ...]]()  # while the device does the work of the steps
    host = parts["word"] == WORDS.index(HOST)
    inner = np.where(host & (parts["part"] != NO_ROW), parts["part"], parts["cause"])
    causes = group({"word": parts["word"], "cause": np.where(host, parts["cause"], NO_ROW), "inner": inner})
    total = causes.sum(time_ns)
    largest = [at for at in np.argsort(-total, kind="stable").tolist() if total[at] >= LEAST * time_ns.sum()][:MOST]
    now_ns = _mean_ns(steps, replay, replay.graph)
    rows.append((None, _STEP, 1.0, now_ns, None, None))
    for at in largest:
        word, code = WORDS[causes.keys["word"][at]], int(causes.keys["inner"][at])
        of_cause = {name: cells[causes.code == at] for name, cells in parts.items()}
        state = NO_OPERATOR if word == HOST and not has_device_work(trace) else word
        name = labels.texts[code] if code != NO_ROW else None
        graph = _without(replay, word, of_cause)
        without_ns = None if graph is None else _mean_ns(steps, replay, graph)
        share = int(total[at]) / max(int(time_ns.sum()), 1)
        rows.append((name, state, share, without_ns, *_limit(trace, request, word, of_cause)))
    result = pd.DataFrame(rows, columns=["cause", "state", "ratio", "without_ns", "bound", "limit_ratio"])
    result = result.astype({"without_ns": "Int64", "limit_ratio": "Float64"})
    result.insert(4, "shorter_ratio", (1 - result["without_ns"] / max(now_ns or 0, 1)).astype("Float64"))
    return result


def _mean_ns(steps: played_steps.Steps, replay: Replay, graph: Graph) -> int | None:
    """Return the mean time of the replayed steps in ns, None if the graph cannot be played."""
    try:
        return round(float(steps.lasting_ns(replay, graph, play(graph)).mean()))
    except CyclicGraphError:
        return None


def _without(replay: Replay, word: str, parts: Parts) -> Graph | None:
    """Return the graph without the events of a cause, None if it is unknown what the cause waits for."""
    trace, event = replay.trace, parts["event"]
    recorded = (event != NO_ROW) & ~trace.rows("kind", schema.STEP)[event]
    rows = np.unique(event[recorded])
    links = replay.graph.edges
    launch = np.where(links.cause == LAUNCH, replay.graph.row[links.src], NO_ROW)  # a lag begins when the call begins
    if word == LATENCY:
        late = (launch != NO_ROW) & np.isin(links.dst, replay.work[rows])
        lag_ns = np.where(late, np.minimum(links.lag_ns, trace.ints("dur_ns")[launch]), links.lag_ns)
        return replace(replay.graph, edges=replace(links, lag_ns=lag_ns))
    if word not in (COMPUTE, COMMUNICATION, COPY, HOST):
        return None
    called = (launch != NO_ROW) & np.isin(launch, rows)
    lag_ns = np.where(called, np.maximum(links.lag_ns - trace.ints("self_ns", 0)[launch], 0), links.lag_ns)
    graph = replace(replay.graph, edges=replace(links, lag_ns=lag_ns))
    if len(rows):
        graph = Remove(rows, below=False).apply(replay, graph, Case.LIKELY)
    if word == HOST and not recorded.all():
        start, end = parts["start_ns"], parts["start_ns"] + np.maximum(parts["time_ns"], parts["launched_ns"])
        gaps = {
            rank: intervals.union(start[mask], end[mask])
            for rank in np.unique(parts["rank"]).tolist()
            if (mask := ~recorded & (parts["rank"] == rank)).any()
        }
        graph = Shorten(gaps, 0).apply(replay, graph, Case.LIKELY)
    return graph


def _limit(trace: Trace, request: ViewRequest, word: str, parts: Parts) -> tuple[str | None, float | None]:
    """Return what limits the kernels or operators of a cause by the roofline, and the limit divided by their time; None
    if this is unknown for a fifth of the time."""
    if word != COMPUTE:
        return None, None
    chosen = np.zeros(len(trace), np.bool_)
    chosen[parts["event"]] = True
    items = roofline.timed(trace, chosen)
    limits, main = roofline.limits(trace, request, items), roofline.main_items(trace, items)
    time_ns = trace.ints("dur_ns")[items.row]
    known = ~np.isnan(limits.compute_ns) & ~np.isnan(limits.memory_ns)
    of_known = int(time_ns[known].sum())
    if not of_known or of_known < _KNOWN * trace.ints("dur_ns")[chosen].sum():
        return None, None
    compute_ns, memory_ns = (float(times[known & main].sum()) for times in (limits.compute_ns, limits.memory_ns))
    longest = np.maximum(limits.compute_ns, limits.memory_ns)[known & main].sum()
    return roofline.COMPUTE if compute_ns >= memory_ns else roofline.MEMORY, float(longest) / of_known


COLUMNS: Final = (
    RANK,
    key("cause", "Cause", thing="cause"),
    key("state", "State", words=((_STEP, mark("the recorded step")), *STATES)),
    columns.share("ratio", "Share", description="share of the time of the devices in these steps"),
    duration("without_ns", "Without it", "mean of the replayed steps without the events of the cause: a bound"),
    columns.share("shorter_ratio", "Shorter", description="at most, of the replayed step"),
    columns.text("bound", "Bound", "which limit of the roofline is longer", words=(roofline.COMPUTE, roofline.MEMORY)),
    columns.share("limit_ratio", "Roofline", description="limit by the roofline, divided by the time"),
)


def _explain(trace: Trace) -> Text:
    return contradiction(replay_of(trace)) or message("neither device work nor operators were recorded")


VIEW = View(
    name="bounds",
    title="Steps without each cause",
    description="the largest causes, what limits them, and the replayed step without each of them: a bound, not a "
    "prediction; bounds do not add up",
    table=Listed(table),
    columns=COLUMNS,
    explain_empty=_explain,
)
