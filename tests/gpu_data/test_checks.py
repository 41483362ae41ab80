"""Recordings of perfkit's other ways to record on a GPU, against numbers of torch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.views.memory import memory_blocks, memory_pools
from tests.support.gpu_data import CHECKS


def test_a_snapshot_equals_the_allocators_statistics(tmp_path: Path) -> None:
    """torch's allocator counts what was requested, as the entries of its history do."""
    snapshot = tmp_path / "snapshot.pickle"
    snapshot.write_bytes(gzip.decompress((CHECKS / "snapshot" / "snapshot.pickle.gz").read_bytes()))
    stats = json.loads((CHECKS / "snapshot" / "memory-stats.json").read_text())
    trace = load(snapshot)
    (place,) = memory_pools.places_table(trace, ViewRequest()).to_dict("records")
    assert place["end_bytes"] == stats["requested_bytes.all.current"]
    assert place["peak_bytes"] == stats["requested_bytes.all.peak"]
    assert place["peak_reserved_bytes"] == stats["reserved_bytes.all.peak"]
    assert (place["allocations"], place["frees"]) == (stats["allocation.all.allocated"], stats["allocation.all.freed"])
    peak = memory_blocks.peak_table(trace, ViewRequest())
    assert peak["bytes"].sum() == stats["requested_bytes.all.peak"]
    assert peak["blocks"].sum() == stats["allocation.all.peak"]


def test_the_throughput_equals_the_time_of_the_block() -> None:
    """The last of the three loops: its 60 steps of 256 samples took the time of the last block, from the start to the
    end of the device's work. The ten steps of the warm-up are not counted."""
    found = json.loads((CHECKS / "throughput.json").read_text())
    block_ms, summary = found["blocks_ms"][-1], found["summary"]
    assert (summary["steps"], summary["warmup_steps"], summary["samples"]) == (50, 10, 50 * 256)
    total_ns = summary["batch_cost"]["total_ns"]
    assert total_ns / 50 / 1e6 == pytest.approx(block_ms, rel=0.1)
    assert total_ns < 60 * block_ms * 1e6
    assert summary["ips"]["avg_per_s"] == pytest.approx(50 * 256 / total_ns * 1e9)
    assert summary["timed_by"] == "CUDA events of cuda:0"


def test_steps_on_demand() -> None:
    """``perfkit capture --steps 5`` said that steps 588 to 592 would be recorded."""
    trace = load(CHECKS / "on-demand")
    assert trace.ints("step")[trace.host & trace.rows("kind", "step")].tolist() == [588, 589, 590, 591, 592]
    assert trace.rows("kind", "kernel").any()
