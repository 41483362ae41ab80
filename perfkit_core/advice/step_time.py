"""How long is a step once a graph is played? One number of all steps."""

from __future__ import annotations

import math

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.simulate import play


def step_ns(facts: Facts, graph: Graph, period: int = 1) -> float:
    """Median time of a step in ns.

    ``period``: how many steps in a row belong together, of which one does what the others leave out: of such steps the
    median is that of either kind, so the time is that of the periods, as a share of what they took when recorded, by
    the median recorded step. With starved loader workers steps belong together by themselves (``facts.period``). Raises
    CyclicGraphError.
    """
    period = _common(facts, period)
    after = float(np.median(facts.steps.lasting_ns(facts.replay, graph, play(graph), period)))
    if period == 1:
        return after
    now = float(np.median(facts.steps.of_periods(facts.steps.recorded_ns, period)))
    return after / max(now, 1.0) * facts.step_ns


def _common(facts: Facts, period: int) -> int:
    """So many steps that they are whole periods of both kinds, where so many were recorded."""
    both = math.lcm(period, facts.period)
    return both if len(facts.steps.of_periods(facts.steps.recorded_ns, both)) else period
