"""Tests that a stored trace is complete or absent, and that no two recordings have the same file name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.readers import run_folder
from perfkit_core.testing.conformance import check_round_trip
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.storage import store, writer
from tests.support.events import trace
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare


def test_a_stored_trace_reads_the_same_in_pandas_polars_duckdb(tmp_path: Path) -> None:
    check_round_trip(small_trace(), tmp_path)


def test_a_trace_without_events_can_be_stored(tmp_path: Path) -> None:
    full = small_trace()
    check_round_trip(type(full)(full.events.slice(0, 0), full.meta, full.quality), tmp_path)


def test_all_metadata_comes_back(tmp_path: Path) -> None:
    small = small_trace()
    meta = msgspec.structs.replace(
        small.meta,
        hostname="h",
        recording="r",
        cycle=2,
        options={"a": [1, {"b": None}]},
        cpu_utilisation={"process": 0.5},
    )
    path = store.write_trace(type(small)(small.events, meta, (Finding("a-b", "text ü"),)), tmp_path / "t.parquet")
    again = run_folder.read_stored(path)
    assert (again.meta, again.quality) == (meta, (Finding("a-b", "text ü"),))


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_write_leaves_no_file_and_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    path = tmp_path / "run" / "t.perfkit.parquet"
    if existing:
        store.write_trace(small_trace("old"), path)

    def half(table: pa.Table, file: BinaryIO, *options: Any) -> None:
        file.write(b"PAR1 half a file")
        raise OSError("disk full")

    monkeypatch.setattr(writer, "write", half)
    with pytest.raises(OSError, match="disk full"):
        store.write_trace(small_trace("new"), path)
    assert [file.name for file in path.parent.iterdir()] == ([path.name] if existing else [])
    if existing:
        assert "old" in run_folder.read_stored(path).events["name"].to_pylist()


def test_while_writing_the_name_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, and a glob for recordings, never see a file that is being written."""
    path, seen = tmp_path / f"t{store.SUFFIX}", []
    write = writer.write

    def watched(table: pa.Table, file: BinaryIO, *options: Any) -> None:
        write(table, file, *options)
        seen.append((path.exists(), list(tmp_path.glob(f"*{store.SUFFIX}")), Path(file.name).parent == tmp_path))

    monkeypatch.setattr(writer, "write", watched)
    store.write_trace(small_trace(), path)
    assert seen == [(False, [], True)]
    assert path.exists()


def name(rank: int | None, cycle: int, recording: str, host: str = "node-1") -> str:
    ranks = () if rank is None else (rank,)
    return store.cycle_name(
        TraceMeta(source="", format="", ranks=ranks, cycle=cycle, recording=recording, hostname=host)
    )


def test_names_differ_by_rank_cycle_host_and_sort_by_cycle() -> None:
    names = {name(r, c, i, h) for r in (None, 0, 1) for c in (0, 1, 10) for i in ("1-a", "2-b") for h in ("n1", "n2")}
    assert len(names) == 3 * 3 * 2 * 2
    assert sorted([name(0, 10, "a"), name(0, 9, "a")]) == [name(0, 9, "a"), name(0, 10, "a")]


@pytest.mark.parametrize("host", ["../../etc", "a/b\\c:d", "ü ñ", "x" * 300])
def test_a_hostname_cannot_lead_out_of_the_folder(host: str) -> None:
    found = name(0, 0, "r", host)
    assert Path(found).name == found
    assert found.isascii()
    assert len(found) < 150
    assert host not in found


def test_processes_have_different_recordings() -> None:
    code = "from perfkit_core.trace.storage import store; print(store.new_recording())"
    ids = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert len({*ids, store.new_recording()}) == 3


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(SourceError, match="was not written by perfkit"):
        run_folder.read_stored(path)


def test_a_file_of_a_newer_perfkit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
        path = store.write_trace(small_trace(), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"newer perfkit.*upgrade"):
        run_folder.read_stored(path)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_cut_file_is_refused(tmp_path: Path, part: float) -> None:
    path = store.write_trace(small_trace(), tmp_path / "t.parquet")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(SourceError, match=r"t\.parquet"):
        run_folder.read_stored(path)


def test_repeated_texts_are_stored_once(tmp_path: Path) -> None:
    """The file of a hundred thousand events with long names is small because of dictionaries and zstd."""
    rows = [
        {"name": f"operator {i % 7} " + "x" * 500, "kind": "operator", "start_ns": i, "dur_ns": 1, "device": "cpu"}
        for i in range(100_000)
    ]
    path = store.write_trace(trace(rows), tmp_path / "t.parquet")
    assert path.stat().st_size < 1_000_000
