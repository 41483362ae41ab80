"""Step times of a recording that is replayed after some changes."""

from __future__ import annotations

import numpy as np

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import Replay, play
from perfkit_core.replay.played_steps import steps
from perfkit_core.replay.transforms import Transform, transformed
from perfkit_core.trace.model.trace import Trace


def rows(trace: Trace, name: str, rank: int | None = None) -> IntArray:
    """Return the rows of the events of a name, on one rank or on all."""
    mask = trace.rows("name", name)
    return np.flatnonzero(mask if rank is None else mask & (trace.ints("rank") == rank)).astype(np.int64)


def played_ns(recording: Trace | Replay, *changes: Transform) -> list[int]:
    replay = build(recording) if isinstance(recording, Trace) else recording
    return steps(replay).played_ns(play(transformed(replay, changes))).tolist()


def played_us(recording: Trace | Replay, *changes: Transform) -> list[int]:
    return [ns // 1000 for ns in played_ns(recording, *changes)]
