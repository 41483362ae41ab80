"""How well does the unchanged graph repeat the recording, and how much of it is merely copied from the recording?

A start that no recorded cause explains is kept by giving the likeliest cause the whole recorded lag. Such a graph still
repeats the recording to the nanosecond, but would repeat that lag whatever is changed: the share of such work is the
honest measure of how much the graph knows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay.build import Replay
from perfkit_core.replay.device_work import UNEXPLAINED_NS
from perfkit_core.replay.graph import CAUSES, Edges
from perfkit_core.replay.simulate import play
from perfkit_core.replay.steps import Steps

_USUAL: Final = 0.1
"""Quantile of the lags of a cause that is usual for it."""
_TYPICAL_NS: Final = 5_000
"""A lag that counts with the recorded ones: a single lag is not usual because there is no other."""


def step_errors(replay: Replay, found: Steps) -> npt.NDArray[np.float64]:
    """|played − recorded| ÷ recorded time of each step, shape (steps,). Steps of no length have no error."""
    played = found.played_ns(play(replay.graph))
    off = np.abs(played - found.recorded_ns)
    errors: npt.NDArray[np.float64] = off / np.maximum(found.recorded_ns, 1)
    return errors


def unexplained_ratio(replay: Replay) -> float | None:
    """Share of the time of device work whose start nothing recorded explains: it starts more than
    ``UNEXPLAINED_NS`` later than usual after the last thing that it is known to wait for, or waits for nothing at all.
    None without device work."""
    graph = replay.graph
    work = np.flatnonzero(~graph.on_host)
    total = int(graph.dur_ns[work].sum())
    if not total:
        return None
    unknown = ~_explained(replay)[work]
    return int(graph.dur_ns[work][unknown].sum()) / total


def _explained(replay: Replay) -> BoolArray:
    """Nodes with an edge that binds them (they start when it allows) and whose lag is no longer than usual."""
    graph, links = replay.graph, replay.graph.edges
    begin = graph.start_ns[links.src] + np.where(links.from_start, 0, graph.dur_ns[links.src]) + links.lag_ns
    binds = (begin == graph.start_ns[links.dst]) & ~graph.on_host[links.dst]
    usual = _usual(links, binds)
    close = binds & (links.lag_ns <= usual[links.cause] + UNEXPLAINED_NS)
    found = np.zeros(len(graph), np.bool_)
    found[links.dst[close]] = True
    return found


def _usual(links: Edges, binds: BoolArray) -> IntArray:
    """The usual lag of each cause, 0 where it never binds, shape (causes,)."""
    found = np.zeros(len(CAUSES), np.int64)
    for cause in np.unique(links.cause[binds]):
        lags = np.append(links.lag_ns[binds & (links.cause == cause)], _TYPICAL_NS)
        found[cause] = int(np.quantile(lags, _USUAL))
    return found
