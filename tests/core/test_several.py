"""Sources named together are the ranks of one job; everything else is refused, never mixed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfkit_core.errors import SourceError
from perfkit_core.loading import load

DATA = Path(__file__).resolve().parent.parent / "data"


def test_frameworks_do_not_mix() -> None:
    with pytest.raises(SourceError, match=r"paddle and torch are not one run.*compare"):
        load([DATA / "torch-mlp.json.gz", DATA / "paddle-mlp.pb"])


def test_the_same_file_twice_is_refused() -> None:
    with pytest.raises(SourceError, match="named twice"):
        load([DATA / "torch-mlp.json.gz", DATA / ".." / "data" / "torch-mlp.json.gz"])


def test_unknown_ranks_are_numbered_in_the_order_given(tmp_path: Path) -> None:
    other = shutil.copy(DATA / "torch-mlp.json.gz", tmp_path / "other.json.gz")
    trace = load([DATA / "torch-mlp.json.gz", other])
    assert trace.meta.ranks == (0, 1)
    assert "ranks-by-order" in [finding.code for finding in trace.quality]
    rank = trace.ints("rank")
    assert (rank[: len(rank) // 2] == 0).all()
    assert (rank[len(rank) // 2 :] == 1).all()


def test_one_rank_cannot_have_the_same_steps_twice(traces: Path, tmp_path: Path) -> None:
    first = traces / "torch" / "dlrm-8xv100" / "rank0.json"
    copy = shutil.copy(first, tmp_path / "again.json")
    with pytest.raises(SourceError, match="same steps of the same rank"):
        load([first, copy])
