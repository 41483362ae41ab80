"""Sums that leave 64 bits are refused or reported, so that no number is silently wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core import load
from perfkit_core.errors import SourceError
from perfkit_core.readers import overflow_check
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import write_trace
from perfkit_core.trace.storage.stored_file import StoredFile
from tests.support.chrome import event, write
from tests.support.extreme import all_named_apart, trace_of

LARGEST_US = 9 * 10**15


def stored(trace: Trace, folder: Path) -> Path:
    return write_trace(trace, folder / "run.perfkit.parquet")


def test_times_whose_sum_would_overflow_are_not_used(tmp_path: Path) -> None:
    """These events once had a self time of -4.5e18 ns."""
    events = [event("aten::mm", 0, LARGEST_US, tid=number) for number in range(20)]
    events += [event("aten::mm", sign * LARGEST_US) for sign in (-1, 1)]
    trace = load(write(tmp_path / "trace.json", events))
    assert trace.ints("dur_ns").max() == 1000
    assert trace.events["kind"].to_pylist().count("implausible") == 21


def test_ranks_whose_times_would_overflow_are_read(tmp_path: Path) -> None:
    for rank in range(2):
        place = {"rank": rank, "world_size": 2, "backend": "nccl"}
        write(tmp_path / f"rank{rank}.json", [event("aten::mm", 0, 3 * 10**15)], distributedInfo=place)
    assert load(tmp_path).ints("dur_ns").sum() == 0


@pytest.mark.parametrize("name", ["dur_ns", "self_ns"])
@pytest.mark.parametrize(("last", "fits"), [(0, True), (1, False)])
def test_the_limit_is_exact(name: str, last: int, fits: bool, tmp_path: Path) -> None:
    values = np.array([2**61, 2**61 - 1, last, 0])
    path = stored(trace_of(4, **({"dur_ns": values} | {name: values})), tmp_path)
    if fits:
        assert int(load(path).ints(name).sum()) == overflow_check.MOST
        return
    with pytest.raises(SourceError, match="the sum of all durations"):
        load(path)


@pytest.mark.parametrize("name", ["bytes", "flops", "total_bytes"])
@pytest.mark.parametrize("value", [2**62, -(2**63)])
def test_sizes_that_overflow_are_left_out_and_reported(name: str, value: int, tmp_path: Path) -> None:
    trace = load(stored(trace_of(3, **{name: value}), tmp_path))
    assert not trace.has_values(name)
    assert trace.column(name).null_count == 3
    assert trace.column(name).type == schema.SCHEMA.field(name).type
    assert [(each.code, f"column {name} " in str(each.message)) for each in trace.quality] == [
        ("numbers-too-large", True)
    ]


def test_usual_sizes_stay(tmp_path: Path) -> None:
    trace = load(stored(trace_of(3, bytes=-(2**60), flops=2**60, total_bytes=2**61, address=2**62), tmp_path))
    assert not trace.quality
    assert trace.ints("bytes").tolist() == [-(2**60)] * 3


def test_a_stored_run_is_checked_by_its_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(all_named_apart(100), tmp_path)

    def refuse(*_: Any) -> None:
        raise AssertionError("a column was read")

    monkeypatch.setattr(StoredFile, "read", refuse)
    assert len(load(path)) == 100
