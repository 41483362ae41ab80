"""Tests of run folders: the ranks and cycles of the last run are read; older runs, missing cycles and ranks are
reported."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from perfkit_core.base.system import processes
from perfkit_core.errors import SourceError
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace, with_rank
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from perfkit_core.trace.storage.stored_file import StoredFile
from tests.support.events import codes, host, trace
from tests.support.golden import check_golden
from tests.support.small_trace import small_trace


def record(
    folder: Path,
    label: str,
    begin: int,
    rank: int | None = 0,
    recording: str = "a",
    cycle: int = 0,
    world_size: int | None = None,
    job: str | None = None,
) -> Path:
    small = small_trace(label)
    meta = msgspec.structs.replace(
        small.meta,
        ranks=() if rank is None else (rank,),
        recording=recording,
        job=job,
        cycle=cycle,
        world_size=world_size,
        window_ns=(begin, begin + 100),
    )
    of_rank = small if rank is None else with_rank(small, rank)
    return store.write_cycle(Trace(of_rank.events, meta, small.quality), folder)


ABOUT_FOLDERS = ("older-recordings", "ranks-by-order", "ranks-missing", "jobs-mixed", "missing-cycles")


def labels(trace: Trace) -> list[str]:
    return [name for name in trace.events["name"].to_pylist() if name.startswith("run")]


Recorded = tuple[str, int, int | None, str, int, int | None] | tuple[str, int, int | None, str, int, int | None, str]
"""A label, the begin, the rank, the recording, the cycle, the world size and perhaps the job of a file."""


def older(rank: int | None, world: int | None, *recorded: tuple[int | None, int | None]) -> list[Recorded]:
    """Return a newest recording after others, each with its rank and its world size."""
    before: list[Recorded] = [("run old", at, one, f"old{at}", 0, size) for at, (one, size) in enumerate(recorded)]
    return [*before, ("run new", 5000, rank, "new", 0, world)]


FOLDERS: dict[str, list[Recorded]] = {
    "two ranks at one time are one run": [("run rank 1", 10, 1, "b", 0, None), ("run rank 0", 0, 0, "a", 0, None)],
    "cycles of one recording are one run, in order":
        [(f"run cycle {cycle}", 1000 * cycle, 0, "a", cycle, None) for cycle in (10, 9, 0)],
    "a second run in a folder replaces the first": [
        ("run old", 0, 0, "a", 0, None), ("run old", 0, 1, "b", 0, None),
        ("run new", 5000, 0, "c", 0, None), ("run new", 5000, 1, "d", 0, None),
    ],
    "a job of one rank, after two ranks": older(0, 1, (0, 2), (1, 2)),
    "a job of four, after a job of two": older(0, 4, (0, 2), (1, 2)),
    "a job of two, after a rank of a job of unknown size": older(0, 2, (1, None)),
    "a process without a rank, after two ranks": older(None, None, (0, 2), (1, 2)),
    "a process without a rank, after a rank of a job of unknown size": older(None, None, (3, None)),
    "a job of one rank, after a process without a rank": older(0, 1, (None, None)),
    "ranks of one job may follow one another": [
        (f"run {rank}.{cycle}", 5000 * rank + 1000 * cycle, rank, f"of {rank}", cycle, 2)
        for rank in (0, 1) for cycle in (0, 1)
    ],
    "processes of one recorded script, after those of another": [
        (f"run {name}", 5000 * at, None, name, 0, None, job)
        for at, (name, job) in enumerate((("old", "one"), ("a", "two"), ("b", "two")))
    ],
    "the same ranks twice in one recorded script": [
        (f"run {name}", 5000 * at, 0, name, 0, 1, "one") for at, name in enumerate(("old", "new"))
    ],
    "processes without a rank that recorded at one time, as a launcher without variables starts them, are numbered": [
        (f"run {name}{cycle}", 200 * cycle + late, None, name, cycle, None)
        for cycle in (0, 1) for name, late in (("a", 0), ("b", 50))
    ],
}  # fmt: skip


def test_the_last_run_of_a_folder_is_read(tmp_path: Path) -> None:
    texts = []
    for number, (heading, files) in enumerate(FOLDERS.items()):
        for file in files:
            record(tmp_path / str(number), *file)
        found = load(tmp_path / str(number))
        assert found.meta.source == str(tmp_path / str(number))
        events = zip(found.events["name"].to_pylist(), found.events["rank"].to_pylist(), strict=True)
        lines = dict.fromkeys(f"{name}, rank {rank}" for name, rank in events if name.startswith("run"))
        lines |= dict.fromkeys(f"{one.code}: {one.message}" for one in found.quality if one.code in ABOUT_FOLDERS)
        texts.append("\n".join([f"# {heading}", f"ranks {found.meta.ranks}", *lines, ""]))
    text = "\n".join(texts).replace(str(tmp_path), "FOLDER")
    check_golden("readers/run_folders.txt", re.sub(r"-host\w*-", "-HOST-", text))


def test_ranks_that_another_folder_holds_are_not_missing(tmp_path: Path) -> None:
    for rank in range(4):
        record(tmp_path / f"{rank // 2}", "run", rank, rank, f"of {rank}", world_size=4)
    assert "ranks-missing" in codes(load(tmp_path / "0"))
    assert "ranks-missing" not in codes(load([tmp_path / "0", tmp_path / "1"]))


@pytest.mark.parametrize(("step", "same"), [(0, "same steps of the same rank"), (5, "same time of rank 0")])
def test_two_recordings_of_one_rank_at_one_time_are_refused(tmp_path: Path, step: int, same: str) -> None:
    for begin, recording, number in ((0, "a", 0), (50, "b", step)):
        events = [host("step", "step", begin, 100, step=number), host("op", "operator", begin + 5, 10)]
        cycle = trace(events, rank=0).with_meta(recording=recording, cycle=0, window_ns=(begin, begin + 100))
        store.write_cycle(cycle, tmp_path)
    for source in (tmp_path, sorted(tmp_path.iterdir())):
        with pytest.raises(SourceError, match=same):
            load(source)


def test_cycles_of_one_recording_are_accepted_without_reading_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any step numbers, and if the end of one cycle overlaps the beginning of the next."""
    asked: list[str] = []
    for cycle in (0, 1):
        record(tmp_path, f"run {cycle}", 90 * cycle, cycle=cycle)
    with monkeypatch.context() as watched:
        watched.setattr(StoredFile, "read", lambda file, groups, fields: asked.extend(fields.names))
        load(tmp_path)
    assert asked == []
    assert labels(load(tmp_path)) == ["run 0"] * 2 + ["run 1"] * 2


def test_parents_and_launches_stay_inside_their_part(tmp_path: Path) -> None:
    record(tmp_path, "run a", 0, rank=0, recording="a")
    record(tmp_path, "run b", 0, rank=1, recording="b")
    found, half = load(tmp_path), len(small_trace())
    for column in ("parent", "launched_by"):
        rows = found.ints(column)
        assert ((rows[:half] < half) & (rows[:half] >= -1)).all()
        assert ((rows[half:] >= half) | (rows[half:] == -1)).all()
        assert (rows >= 0).any()


def test_missing_cycles_are_a_finding_unless_the_mark_names_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        files = [record(tmp_path, "run", 200 * cycle + rank, rank, f"of {rank}", cycle) for cycle in range(4)]
        assert "missing-cycles" not in codes(load(tmp_path))
    files[0].unlink()
    files[2].unlink()
    (finding,) = (finding for finding in load(tmp_path).quality if finding.code == "missing-cycles")
    assert finding.message == "2 earlier cycles are missing from the folder"
    (tmp_path / INCOMPLETE_MARK).write_text("process 1, cycle 0: why\nprocess 1, cycle 2: why\n", encoding="utf-8")
    assert "missing-cycles" not in codes(load(tmp_path))


def test_the_incomplete_mark_is_a_finding(tmp_path: Path) -> None:
    record(tmp_path, "run", 0)
    (tmp_path / INCOMPLETE_MARK).write_text("process 1, cycle 3: OSError: disk full\n", encoding="utf-8")
    message = next(f.message for f in load(tmp_path).quality if f.code == "incomplete-run")
    assert "1 cycles" in message
    assert "disk full" in message


def test_an_empty_mark_is_reported(tmp_path: Path) -> None:
    record(tmp_path, "run", 0)
    (tmp_path / INCOMPLETE_MARK).touch()
    message = next(f.message for f in load(tmp_path).quality if f.code == "incomplete-run")
    assert message.startswith("1 cycles could not be saved")


def test_a_folder_without_saved_cycles_names_the_reason(tmp_path: Path) -> None:
    (tmp_path / INCOMPLETE_MARK).write_text("process 1, cycle 0: OSError: disk full\n", encoding="utf-8")
    with pytest.raises(SourceError, match="The first failure: process 1, cycle 0: OSError: disk full"):
        load(tmp_path)


def pend(file: Path, cycle: int, of: str) -> Path:
    name = file.name.removesuffix(store.SUFFIX).replace("cycle00000", f"cycle{cycle:05d}")
    path = file.with_name(f"{name}.{of}{store.PENDING_SUFFIX}")
    path.touch()
    return path


def messages(folder: Path, code: str) -> list[str]:
    return [str(finding.message) for finding in load(folder).quality if finding.code == code]


def test_cycles_that_were_not_written_are_reported(tmp_path: Path) -> None:
    """The process of a pending file was killed, still runs, or ran on another machine. Cycles are not reported twice:
    cycle 1 is no gap, and the pending file of a written cycle does not count."""
    file = record(tmp_path, "run", 0, recording="7-0123456789ab")
    record(tmp_path, "run", 200, recording="7-0123456789ab", cycle=2)
    pid, start, machine = processes.owner().split("-")
    for cycle in (0, 1, 3):
        pend(file, cycle, f"{pid}-1-{machine}")
    (lost,) = messages(tmp_path, "incomplete-run")
    assert lost.startswith("2 cycles were lost, because their process ended before they were written. The first: rank")
    assert messages(tmp_path, "unwritten-cycles") == messages(tmp_path, "missing-cycles") == []
    pend(file, 4, f"{pid}-{start}-{machine}")
    assert messages(tmp_path, "unwritten-cycles") == ["1 cycle is still being written"]
    pend(file, 5, f"{pid}-{start}-00000000")
    assert messages(tmp_path, "unwritten-cycles")[1].startswith(
        "1 cycles are not written. Their process may still write them"
    )


def test_pending_cycles_of_older_recordings_do_not_matter(tmp_path: Path) -> None:
    """Of processes without any written cycle, those are reported that belong to the newest recordings: another rank
    that was killed in its first cycle, but not an earlier run."""
    pid, _, machine = processes.owner().split("-")
    older = record(tmp_path, "old", 0, recording="6-0123456789ab")
    pend(older, 1, f"{pid}-1-{machine}")
    newer = record(tmp_path, "new", 10_000, recording="7-0123456789ab")
    assert messages(tmp_path, "incomplete-run") == []
    killed = pend(newer.with_name(newer.name.replace("7-01", "8-01")), 0, f"{pid}-1-{machine}")
    assert len(messages(tmp_path, "incomplete-run")) == 1
    os.utime(killed, ns=(0, 9_000))
    assert messages(tmp_path, "incomplete-run") == []


def test_a_folder_in_which_no_cycle_was_written_says_why(tmp_path: Path) -> None:
    pid, start, machine = processes.owner().split("-")
    file = tmp_path / f"rank00000-cycle00000-host-7-0123456789ab{store.SUFFIX}"
    killed = pend(file, 0, f"{pid}-1-{machine}")
    with pytest.raises(SourceError, match=r"no cycle was written, because the process was killed before \(rank00000-"):
        load(tmp_path)
    killed.unlink()
    pend(file, 0, f"{pid}-{start}-{machine}")
    with pytest.raises(SourceError, match="no cycle is written yet"):
        load(tmp_path)


def test_a_single_file_of_the_folder_is_a_source_too(tmp_path: Path) -> None:
    path = record(tmp_path, "run", 0)
    assert labels(load(path)) == ["run"] * 2


def test_other_files_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    record(tmp_path, "run", 0)
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / f".half{store.SUFFIX}.1234.tmp").write_bytes(b"PAR1")
    assert labels(load(tmp_path)) == ["run"] * 2


def test_an_empty_folder_and_a_damaged_recording_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="contains no recordings"):
        load(tmp_path)
    path = record(tmp_path, "run", 0)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SourceError, match="not a readable Parquet file") as caught:
        load(tmp_path)
    assert path.name in caught.value.message
