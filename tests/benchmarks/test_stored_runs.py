"""Large stored runs for benchmarks are valid runs with repeated events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfkit_core
from benchmarks import stored_runs
from perfkit_core.testing.traces import check_trace
from tests.support.small_trace import small_trace


def test_each_copy_of_a_run_has_each_event_once(tmp_path: Path) -> None:
    """The trace has 16 events, two steps and four launches. Three copies have six different steps and twelve
    launches."""
    small = small_trace()
    found = perfkit_core.load(stored_runs.make(small, tmp_path / "run", 40))
    check_trace(found)
    assert len(found) == 48
    assert sorted(found.ints("step")[found.rows("kind", "step")].tolist()) == [0, 1, 2, 3, 4, 5]
    launched = found.ints("launched_by")
    assert len(np.unique(launched[launched >= 0])) == 12
    assert np.array_equal(np.tile(small.ints("dur_ns"), 3), found.ints("dur_ns"))
    inside = found.ints("parent") >= 0
    assert np.array_equal(found.ints("parent")[inside] // 16, np.flatnonzero(inside) // 16)


@pytest.mark.parametrize("file", ["torch/h100-bert-small.json.gz", "torch/mi250-minitoy-train.json.gz"])
def test_a_copied_real_run_keeps_every_promise(traces: Path, tmp_path: Path, file: str) -> None:
    once = perfkit_core.load(traces / file)
    check_trace(perfkit_core.load(stored_runs.make(once, tmp_path / "run", 2 * len(once))))
