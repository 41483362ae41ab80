"""Cycles of processes with unknown ranks: each process is one rank, even if it recorded several cycles."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.errors import SourceError
from perfkit_core.ranks.plan import plan
from perfkit_core.ranks.profile import LoadedProfile, PerRankProfile, opened
from perfkit_core.readers.load import load
from perfkit_core.recording.environment import ProcessRank
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.model.trace import Trace
from tests.support.events import codes, host, trace

SECOND = 10**9


def cycles(starts: tuple[int, ...]) -> Iterator[Trace]:
    """Return cycles with a step of 100 ns and an operator of 10 ns. The steps of each cycle are numbered from 0, as in
    Paddle."""
    for start in starts:
        made = trace([host("step 0", "step", start, 100, step=0), host("op", "operator", start + 5, 10)])
        yield made.with_meta(source="live", ranks=(), clock="epoch", window_ns=(start, start + 100))


def record(folder: Path, *starts: int) -> list[Path]:
    """Write the files of the handler of a process that does not know its rank."""
    made = cycles(starts)

    def take(profiler: Any, process_rank: ProcessRank) -> DetachedCycle:
        found = next(made)
        return DetachedCycle(lambda: found, background=False)

    writer: CycleWriter[Any] = CycleWriter(folder, take, process_rank=lambda: ProcessRank(None, None))
    for _ in starts:
        writer(None)
    return writer.written


def operators(*sources: Path, **more: Any) -> list[list[Any]]:
    table = perfkit_core.summarize(list(sources), "operators", **more)
    return table[["name", "calls", "total_cpu_ns"]].to_numpy().tolist()


def test_cycles_of_one_process_are_one_rank(tmp_path: Path) -> None:
    record(tmp_path, 0, SECOND)
    (rank,) = plan([tmp_path]).ranks
    assert (rank.rank, len(rank.paths)) == (None, 2)
    assert isinstance(opened([tmp_path]), LoadedProfile)
    assert operators(tmp_path) == operators(tmp_path, workers=2) == [["op", 2, 20]]
    steps = perfkit_core.summarize(tmp_path, "steps")
    assert steps["start_ns"].tolist() == [0, SECOND]
    assert load(tmp_path).meta.ranks == ()


def test_cycles_named_one_by_one_are_their_folder(tmp_path: Path) -> None:
    first, second = record(tmp_path, 0, SECOND)
    found, folder = load([second, first]), load(tmp_path)
    assert found.events.to_pylist() == folder.events.to_pylist()
    assert found.meta.ranks == ()
    assert operators(second, first) == [["op", 2, 20]]


def test_concurrent_processes_are_ranks_with_own_cycles(tmp_path: Path) -> None:
    record(tmp_path, 0, SECOND)
    record(tmp_path, 50, SECOND + 150)
    assert [(one.rank, len(one.paths)) for one in plan([tmp_path]).ranks] == [(0, 2), (1, 2)]
    assert isinstance(opened([tmp_path]), PerRankProfile)
    assert operators(tmp_path) == operators(*sorted(tmp_path.iterdir())) == [["op", 4, 40]]
    steps = perfkit_core.summarize(tmp_path, "steps")
    by_rank = [part["start_ns"].tolist() for _, part in steps.groupby("rank")]
    assert sorted(by_rank) == [[0, SECOND], [0, SECOND + 100]]  # relative to the first event of the rank
    for found in (load(tmp_path), load(sorted(tmp_path.iterdir()))):
        assert found.meta.ranks == (0, 1)
        assert "ranks-by-order" in codes(found)
        assert perfkit_core.summarize(found, "steps").to_numpy().tolist() == steps.to_numpy().tolist()


def test_successive_processes_are_named_by_their_files(tmp_path: Path) -> None:
    (first,), (second,) = record(tmp_path / "a", 0), record(tmp_path / "b", SECOND)
    for read in (load, operators_of):
        with pytest.raises(SourceError, match="different times") as caught:
            read([first, second])
        assert f"{first} and {second} were recorded" in caught.value.message
        assert caught.value.hint == f"perfkit compare {first} {second}"


def operators_of(sources: list[Path]) -> pd.DataFrame:
    return perfkit_core.summarize(sources, "operators")


def test_a_copy_of_a_cycle_is_refused(tmp_path: Path) -> None:
    (first,) = record(tmp_path, 0)
    copy = Path(shutil.copy(first, tmp_path / "copy.perfkit.parquet"))
    for read in (load, operators_of):
        with pytest.raises(SourceError, match="same steps of the same rank") as caught:
            read([first, copy])
        assert first.name in caught.value.message
        assert copy.name in caught.value.message
