"""Predictions on real recordings do not change if a transform has no effect, if independent transforms are reordered,
or if a prediction is repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import document
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.output.renderers import json
from perfkit_core.readers.load import load
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import Replay, play
from perfkit_core.replay.transforms import Insert, Remove, Scale, Transform, transformed
from perfkit_core.trace.model.schema import KERNEL, MEMCPY, OPERATOR
from perfkit_core.trace.storage.store import write_cycle

FILES = (
    "torch/pairs/resnet50-workers0.json.gz", "torch/mi300x-resnet-act-checkpoint-steps.json.gz",
    "torch/h100-bert-small.json.gz", "torch/event-sync-multi-stream.json.gz", "paddle/gpu-synthetic/gpu1.pb",
    "paddle/cpu-3.3.1/mlp_medium/cycle0.pb.gz",
)  # fmt: skip


@pytest.fixture(scope="module", params=FILES)
def replay(request: pytest.FixtureRequest, traces: Path) -> Replay:
    return build(load(traces / request.param))


def rows(replay: Replay, *kinds: str) -> IntArray:
    return np.flatnonzero(replay.trace.rows("kind", *kinds)).astype(np.int64)


def played(replay: Replay, *changes: Transform) -> IntArray:
    return play(transformed(replay, changes))[: len(replay.graph)]


def test_changes_that_change_nothing(replay: Replay) -> None:
    unchanged = played(replay)
    nothing = np.empty(0, np.int64)
    every = np.arange(len(replay.trace))
    assert (unchanged == replay.graph.start_ns).all()
    for transform in (
        Scale(every, 1),
        Scale(nothing, 7),
        Remove(nothing),
        Insert(nothing, 10**6, 10**6),
        Insert(every, 0, 0),
    ):
        assert (played(replay, transform) == unchanged).all(), transform


def test_the_order_of_independent_changes_does_not_matter(replay: Replay) -> None:
    host, kernels = rows(replay, OPERATOR), rows(replay, KERNEL)
    slower, faster = Scale(host, 3, below=False, device=False), Scale(kernels, 0.5, below=False)
    without = Remove(rows(replay, MEMCPY)[:3])
    forth, back = played(replay, slower, faster, without), played(replay, without, faster, slower)
    assert (forth == back).all()
    assert (forth != played(replay)).any()


def test_longer_parts_never_make_a_recording_shorter(replay: Replay) -> None:
    """The start of each node is the length of the longest path to it, so a longer node cannot make a path shorter."""
    slower = Insert(rows(replay, OPERATOR, KERNEL), 1_000, 1_000)
    assert (played(replay, slower) >= played(replay)).all()


def test_a_repeated_prediction_is_the_same(traces: Path, tmp_path: Path) -> None:
    trace = load(traces / FILES[0])
    first = json.document(document(advise(trace), trace))
    again = load(traces / FILES[0])
    assert json.document(document(advise(again), again)) == first
    write_cycle(trace, tmp_path / "run")
    stored = load(tmp_path / "run").with_meta(source=trace.meta.source)
    assert document(advise(stored), stored) == document(advise(trace), trace)
