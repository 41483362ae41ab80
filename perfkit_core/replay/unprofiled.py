"""The replay of a training without its profiler.

A profiler works before and after each event on the host. This work lengthens the segments around the event: the time
of the enclosing event, or the gap between two events. :func:`unprofiled` takes it out of the graph. If it is known how
long a step is without the profiler, the cost of an event is chosen such that the replayed step has this length, between
its lowest plausible and its usual value. If no such cost explains the difference, the process ran at another speed
while it was recorded, for example because the profiler's memory displaced the training's from the caches. Then all host
work is scaled by the same factor.

Work on devices keeps its time, because profilers do not slow it down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.base.algorithms.sample_statistics import FloatArray
from perfkit_core.replay.graph import Graph, Replay
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model import schema

_WEIGHTS: Final = {
    **dict.fromkeys(schema.NESTED_KINDS, 1.0), schema.PYTHON: 0.5, schema.SYNC: 0.0, schema.MEMORY: 0.5,
}  # fmt: skip
"""Cost of an event of each kind, relative to an operator."""
_ROUNDS: Final = 3
"""Number of replays that fit the cost of an event, and as many that fit the speed. The fit is nearly linear."""
_SPEEDS: Final = 0.25, 2.0
"""Limits of the factor that scales host work, after waits for a processor have been taken out."""
_FOLLOWS: Final = 0.5
"""The step follows the host if it changes by at least this share of the change of all host work."""

StepTime = Callable[[Graph], float]
"""Returns the median step time of a graph in ns."""


@dataclass(frozen=True, slots=True)
class Unprofiled:
    """A replay without the profiler.

    - ``event_ns``: cost of an operator's recording that was taken out
    - ``speed``: factor by which all host work was scaled
    - ``step_ns``: replayed median step time
    - ``measured_ns``: median time of a step without the profiler, None if it was not measured"""

    replay: Replay
    event_ns: float
    speed: float
    step_ns: float
    measured_ns: int | None

    @property
    def error(self) -> float | None:
        """The base error: how far the replayed step is from the measured step, as a share of the measured step."""
        return None if self.measured_ns is None else abs(self.step_ns - self.measured_ns) / max(self.measured_ns, 1)


def unprofiled(
    replay: Replay, cost: Quantity, measured_ns: int | None, step_time: StepTime, lost: float = 0.0
) -> Unprofiled:
    """Return the replay without the profiler.

    - ``cost``: plausible time in ns to record an operator
    - ``measured_ns``: median time of a step without the profiler, None if unknown. ``cost.mid`` is used then
    - ``lost``: share of the recorded steps in which the process waited for a processor; ``measured_ns`` has none"""
    weight = charges(replay)

    def without(event_ns: float, speed: float) -> Graph:
        graph = replay.graph
        dur = np.maximum(graph.dur_ns - np.rint(weight * event_ns).astype(np.int64), 0)
        scaled = np.rint(dur * speed).astype(np.int64)
        return replace(graph, dur_ns=np.where(graph.on_host, scaled, graph.dur_ns))

    event_ns, speed = cost.mid, 1.0
    if measured_ns is not None:
        event_ns = _fitted(lambda ns: step_time(without(ns, 1.0)), measured_ns, cost.low, cost.mid)
        if event_ns in (cost.low, cost.mid):  # no cost of an event explains the measured step
            speed = _speed(lambda factor: step_time(without(event_ns, factor)), measured_ns, 1 - lost)
    graph = without(event_ns, speed)
    return Unprofiled(replace(replay, graph=graph), event_ns, speed, step_time(graph), measured_ns)


def charges(replay: Replay) -> FloatArray:
    """Return for each node the number of operators whose recording it contains, shape (nodes,). Half of the work of
    recording an event precedes the event, and half follows it."""
    trace, graph = replay.trace, replay.graph
    charge: FloatArray = np.zeros(len(graph))
    for kind, weight in _WEIGHTS.items():
        rows = np.flatnonzero(trace.rows("kind", kind) & (replay.first >= 0))
        before = replay.first[rows] - 1
        before = before[(before >= 0) & (graph.lane[np.maximum(before, 0)] == graph.lane[replay.first[rows]])]
        np.add.at(charge, before, weight / 2)
        np.add.at(charge, replay.after[rows], weight / 2)
    memory = np.flatnonzero(trace.host & trace.rows("kind", schema.MEMORY))
    inside = trace.ints("parent")[memory]
    np.add.at(charge, replay.first[inside[inside >= 0]], _WEIGHTS[schema.MEMORY])
    return charge


def _speed(step_time: Callable[[float], float], wanted_ns: int, left: float) -> float:
    """Return the factor of all host work for which ``step_time`` is closest to ``wanted_ns``. It is 1 if the step
    follows other work, such as a loader's or a device's, because the speed of the host is then unknown."""
    low, high = _SPEEDS
    speed, same = _fitted(step_time, wanted_ns, low * left, high), step_time(1.0)
    return speed if abs(step_time(speed) - same) >= _FOLLOWS * abs(speed - 1) * same else 1.0


def _fitted(step_time: Callable[[float], float], wanted_ns: int, low: float, high: float) -> float:
    """Return the number within the limits for which ``step_time`` is closest to ``wanted_ns``, by the secant method."""
    times = {at: step_time(at) for at in (low, high)}
    for _ in range(_ROUNDS):
        below = [at for at, ns in times.items() if ns <= wanted_ns]
        above = [at for at, ns in times.items() if ns > wanted_ns]
        if not below or not above:
            return min(times, key=lambda at: abs(times[at] - wanted_ns))
        first, second = max(below, key=times.__getitem__), min(above, key=times.__getitem__)
        at = first + (second - first) * (wanted_ns - times[first]) / (times[second] - times[first])
        times[at] = step_time(at)
    return min(times, key=lambda at: abs(times[at] - wanted_ns))
