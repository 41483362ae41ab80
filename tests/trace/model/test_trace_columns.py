"""Columns in memory, joined, changed and in a file have the same values. Columns are read only on demand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perfkit_core
from perfkit_core.base.algorithms.arrays import constant, nullable, texts, to_codes, to_int64
from perfkit_core.cli.main import main
from perfkit_core.errors import SourceError
from perfkit_core.readers import run_folder
from perfkit_core.testing.traces import plain
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.trace.storage import store, stored_file, writer
from tests.support.events import device, host, trace
from tests.support.small_trace import small_trace


@pytest.fixture
def large(tmp_path: Path) -> tuple[Trace, Trace]:
    """Return a trace in memory, and the same trace from a file with several row groups."""
    rows = [
        host(f"op{i % 5}", "operator", 10 * i, 4, bytes=i if i % 3 else None, args=f'{{"i":{i}}}' if i % 2 else None)
        for i in range(200)
    ]
    made = trace(rows + [device("k", "kernel", 10 * i, 4) for i in range(50)], rank=2)
    path = store.write_trace(made, tmp_path / "t.parquet")
    table = pq.read_table(path)
    with path.open("wb") as file:
        writer.write(table, file, 64, {})
    return made, run_folder.read_stored(path)


def equal(found: Trace, expected: Trace) -> None:
    assert len(found) == len(expected)
    for column in schema.COLUMNS:
        assert plain(found.events, column.name).equals(plain(expected.events, column.name)), column.name
        by_column = pa.table({column.name: found.column(column.name)})
        assert plain(by_column, column.name).equals(plain(expected.events, column.name)), column.name
        if pa.types.is_integer(column.type):
            assert np.array_equal(found.ints(column.name, -7), expected.ints(column.name, -7)), column.name
        elif pa.types.is_dictionary(column.type):
            codes = found.codes(column.name)
            named = [codes.values[code] if code >= 0 else None for code in codes.codes]
            assert named == expected.events[column.name].to_pylist(), column.name
        assert found.has_values(column.name) == (expected.events[column.name].null_count < len(expected)), column.name


@pytest.mark.parametrize("statistics", [True, False])
def test_a_file_without_names_of_empty_columns_reads_the_same(
    large: tuple[Trace, Trace], tmp_path: Path, statistics: bool
) -> None:
    table = pq.read_table(tmp_path / "t.parquet")
    told = json.loads(table.schema.metadata[b"perfkit"])
    assert "stack" in told.pop("empty")
    silent = table.replace_schema_metadata({"perfkit": json.dumps(told)})
    with (tmp_path / "u.parquet").open("wb") as file:
        writer.write(silent, file, 64, {"write_statistics": statistics})
    equal(run_folder.read_stored(tmp_path / "u.parquet"), large[0])


def test_a_stored_trace_reads_as_the_one_in_memory(large: tuple[Trace, Trace]) -> None:
    equal(large[1], large[0])


def test_joined_traces_are_what_their_tables_are(large: tuple[Trace, Trace]) -> None:
    """Row references of the second part are shifted by the number of rows of the first part."""
    made, stored = large
    small = small_trace()
    whole = concat_traces([stored, small])
    table = small.events
    for name in ("parent", "launched_by"):
        moved = [row + 250 if row >= 0 else row for row in table[name].to_pylist()]
        table = table.set_column(table.column_names.index(name), schema.SCHEMA.field(name), pa.array(moved, pa.int64()))
    equal(whole, Trace(pa.concat_tables([made.events, table]), whole.meta))


def test_another_rank_changes_nothing_else(large: tuple[Trace, Trace]) -> None:
    made, stored = large
    found = with_rank(stored, 9)
    at = schema.COLUMN_NAMES.index("rank")
    ranks = pa.array([9] * 250, pa.int32())
    equal(found, Trace(made.events.set_column(at, schema.SCHEMA.field("rank"), ranks), found.meta))


def test_a_column_of_32_bits_takes_any_number_for_nulls() -> None:
    ranks = pa.array([3, None, 5] + [None] * 13, pa.int32())
    found = small_trace().with_columns(rank=ranks)
    assert found.ints("rank", -(2**63)).tolist()[:4] == [3, -(2**63), 5, -(2**63)]
    assert [block.tolist()[:2] for (block,) in found.blocks("rank", missing=-(2**63))] == [[3, -(2**63)]]


@pytest.mark.parametrize("rows", [[0], [249, 0, 130, 130, 64], [], list(range(250))])
@pytest.mark.parametrize("name", ["args", "name", "bytes", "stack", "parent"])
def test_cells_are_picked_from_files_and_joined_traces(large: tuple[Trace, Trace], name: str, rows: list[int]) -> None:
    made, stored = large
    assert stored.pick(name, np.array(rows, np.int64)).to_pylist() == [made.events[name][i].as_py() for i in rows]
    both = concat_traces([small_trace(), stored])
    further = np.array([row + 16 for row in rows] + [3], np.int64)
    expected = [both.events[name][int(row)].as_py() for row in further]
    assert concat_traces([small_trace(), stored]).pick(name, further).to_pylist() == expected


def test_only_columns_that_are_asked_for_are_read(large: tuple[Trace, Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = stored_file.StoredFile.read

    def watched(self: stored_file.StoredFile, groups: range, fields: pa.Schema) -> pa.Table:
        asked.extend(fields.names)
        return read(self, groups, fields)

    monkeypatch.setattr(stored_file.StoredFile, "read", watched)
    found = concat_traces([large[1], with_rank(large[1], 3)])
    found.ints("start_ns"), found.ints("start_ns"), found.host, found.end_ns, len(found)
    assert found.ints("flops").tolist() == [-1] * 500  # the column has only nulls, as its statistics show
    assert not found.has_values("stack")
    assert set(asked) == {"start_ns", "device", "dur_ns"}


def test_views_of_a_run_folder_leave_the_rest_unread(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write_cycle(perfkit_core.load(traces / "torch" / "h100-bert-small.json.gz"), tmp_path)
    asked: set[str] = set()
    read = stored_file.StoredFile.read

    def watched(self: stored_file.StoredFile, groups: range, fields: pa.Schema) -> pa.Table:
        asked.update(fields.names)
        return read(self, groups, fields)

    monkeypatch.setattr(stored_file.StoredFile, "read", watched)
    assert main(["summary", str(tmp_path), "--view", "overview"]) == 0
    assert "operator" in capsys.readouterr().out
    assert "dur_ns" in asked
    assert not asked & {"args", "stack", "shapes", "dtypes", "address", "total_bytes"}


def test_a_file_that_changed_meanwhile_is_refused(large: tuple[Trace, Trace], tmp_path: Path) -> None:
    store.write_trace(small_trace(), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"t\.parquet: the file was changed"):
        large[1].ints("start_ns")


def test_a_file_that_is_gone_is_an_error_of_one_line(large: tuple[Trace, Trace], tmp_path: Path) -> None:
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(SourceError, match=r"t\.parquet"):
        large[1].codes("name")


def test_a_stored_trace_travels_to_other_processes_unread(large: tuple[Trace, Trace]) -> None:
    sent = pickle.dumps(large[1])
    assert len(sent) < 30_000
    equal(pickle.loads(sent), large[0])


def test_facts_of_a_column_are_dropped_when_it_is_replaced() -> None:
    small = small_trace()
    before = {name: small.ints(name) for name in ("step", "bytes", "dur_ns")}
    end = small.end_ns
    step = np.where(before["step"] == 1, -1, 7)
    found = small.with_ints(step=step).with_columns(dur_ns=pa.array(before["dur_ns"] + 1))
    assert found.ints("step").tolist() == step.tolist()
    assert found.ints("step", -9).tolist() == np.where(step < 0, -9, step).tolist()
    assert found.events["step"].null_count == int((step < 0).sum()) > 0
    assert found.ints("bytes") is before["bytes"]
    assert np.array_equal(found.end_ns, end + 1)


def test_columns_of_nothing_take_no_memory() -> None:
    column = constant(None, pa.int64(), 10_000_000)
    assert (len(column), column.null_count) == (10_000_000, 10_000_000)
    assert column.get_total_buffer_size() < 1_000_000
    assert constant(-1, pa.int64(), 3).to_pylist() == [-1, -1, -1]
    assert constant(None, schema.SCHEMA.field("name").type, 0).to_pylist() == []


def test_numbers_and_codes_of_pieces() -> None:
    assert to_int64([pa.array([1, None]), pa.array([3], pa.int32())], 3, -5).tolist() == [1, -5, 3]
    assert to_int64([], 0, -1).tolist() == []
    pieces = [pa.array(texts).dictionary_encode() for texts in (["a", "b"], ["b", None, "c"], ["a"])]
    codes, values = to_codes(pieces, 6)
    assert (codes.tolist(), values) == ([0, 1, 1, -1, 2, 0], ["a", "b", "c"])


def test_negative_numbers_become_null() -> None:
    assert nullable(np.array([3, -1, 0])).to_pylist() == [3, None, 0]
    assert nullable(np.array([-1, -1])).to_pylist() == [None, None]
    assert nullable(np.array([], np.int64)).to_pylist() == []
    assert texts(np.array([1, -1, 0], np.int32), ["x", "y"]).to_pylist() == ["y", None, "x"]
