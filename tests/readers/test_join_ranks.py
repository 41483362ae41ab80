"""Tests of joining sources: they are joined if they can be ranks of one job, and refused otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.readers.join_ranks import one_job
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace, with_rank
from tests.support.events import host, trace
from tests.support.paths import DATA


def test_frameworks_do_not_mix() -> None:
    with pytest.raises(SourceError, match=r"cannot merge paddle and torch sources into one run.*compare"):
        load([DATA / "torch-mlp.json.gz", DATA / "paddle-mlp.pb"])


def test_the_same_file_twice_is_refused() -> None:
    with pytest.raises(SourceError, match="given twice"):
        load([DATA / "torch-mlp.json.gz", DATA / ".." / "data" / "torch-mlp.json.gz"])


def test_unknown_ranks_are_numbered_in_the_order_given(tmp_path: Path) -> None:
    other = shutil.copy(DATA / "torch-mlp.json.gz", tmp_path / "other.json.gz")
    found = load([DATA / "torch-mlp.json.gz", other])
    assert found.meta.ranks == (0, 1)
    assert "ranks-by-order" in [finding.code for finding in found.quality]
    rank = found.ints("rank")
    assert (rank[: len(rank) // 2] == 0).all()
    assert (rank[len(rank) // 2 :] == 1).all()


def test_one_rank_cannot_have_the_same_steps_twice(traces: Path, tmp_path: Path) -> None:
    first = traces / "torch" / "dlrm-8xv100" / "rank0.json"
    copy = shutil.copy(first, tmp_path / "again.json")
    with pytest.raises(SourceError, match="same steps of the same rank"):
        load([first, copy])


def recorded(start_ns: int, end_ns: int, clock: str = "epoch", rank: int | None = None) -> Trace:
    made = trace([host("op", "operator", start_ns, end_ns - start_ns)])
    meta = msgspec.structs.replace(made.meta, source=f"from {start_ns}", clock=clock, window_ns=(start_ns, end_ns))
    whole = Trace(made.events, meta)
    return whole if rank is None else with_rank(whole, rank)


def test_consecutive_recordings_are_not_ranks() -> None:
    with pytest.raises(SourceError, match=r"at different times.*; perfkit compare 'from 10' 'from 21'$"):
        one_job([recorded(10, 20), recorded(15, 30), recorded(21, 40)])


@pytest.mark.parametrize(
    "others",
    [
        [recorded(20, 30)],
        [recorded(21, 30, clock="relative")],
        [recorded(21, 30, rank=1)],
        [recorded(12, 14)],
    ],
    ids=["touching", "no common clock", "one tells its rank", "inside"],
)
def test_recordings_that_may_be_simultaneous_are_ranks(others: list[Trace]) -> None:
    assert one_job([recorded(10, 20), *others]).meta.ranks == (0, 1)


def test_stated_ranks_may_be_recorded_at_different_times() -> None:
    assert one_job([recorded(10, 20, rank=0), recorded(21, 30, rank=1)]).meta.ranks == (0, 1)


def test_two_runs_of_a_framework_are_refused(traces: Path) -> None:
    found = sorted((traces / "paddle" / "cpu-3.3.1").glob("*/*.pb"))[:2]
    with pytest.raises(SourceError, match=r"different times.*perfkit compare"):
        load(found)


@pytest.mark.parametrize("window", [(10, 20), (15, 30), (5, 12), (12, 14)])
def test_cycles_of_a_rank_follow_each_other(window: tuple[int, int]) -> None:
    """A copy without steps, or another run of the same rank, is not accepted as a cycle."""
    with pytest.raises(SourceError, match=r"cover the same time of rank 3; give one source"):
        one_job([recorded(10, 20, rank=3), recorded(*window, rank=3)])


def test_recordings_that_cannot_overlap_are_cycles() -> None:
    first = recorded(10, 20, rank=3)
    assert len(one_job([first, recorded(20, 30, rank=3)])) == 2
    assert len(one_job([first, recorded(15, 20, clock="relative", rank=3)])) == 2
    assert len(one_job([first, recorded(15, 20, rank=4)])) == 2


def test_cycles_of_each_rank_are_in_order_of_time() -> None:
    parts = [recorded(begin, begin + 5, rank=rank) for begin in (30, 10, 20) for rank in (1, 0)]
    joined = one_job(parts)
    assert joined.ints("start_ns").tolist() == [10, 20, 30] * 2
    assert joined.ints("rank").tolist() == [0] * 3 + [1] * 3
