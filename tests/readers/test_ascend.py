"""The readers of Ascend's profiler: text and database give equal tables, which are those of the vendor."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from perfkit_core.base.algorithms import intervals
from perfkit_core.causes.segments import launching_calls
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.ascend.database import FORMAT
from perfkit_core.readers.load import load, stream
from perfkit_core.readers.sqlite_file import opened
from perfkit_core.testing.conformance import check_source
from perfkit_core.testing.traces import check_round_trip, check_trace
from perfkit_core.trace.model.meta import may_lack_work
from perfkit_core.trace.model.side_tables import AWAITED_RANKS, COLLECTIVES, DEVICE_TASKS
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import ascend
from tests.support.ascend import MAIN, NONE, PID, AscendRecording, awaiting, rich, small
from tests.support.events import codes
from tests.support.tables import check_events, view_rows, view_table

pytestmark = pytest.mark.bare

SOURCE = Source("ascend", "recordings", ascend.sniff, ascend.read, ascend.peek, files=ascend.files)
OUTPUT = "ASCEND_PROFILER_OUTPUT"
COLUMNS = "name kind start_ns dur_ns device stream step phase parent launched_by bytes copy_kind"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """Return the text and the database of one recording."""
    return text_and_database(tmp_path_factory.mktemp("ascend"), small)


@pytest.fixture(scope="module")
def rich_both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    return text_and_database(tmp_path_factory.mktemp("ascend"), rich)


def text_and_database(folder: Path, recording: Callable[[], AscendRecording]) -> tuple[Trace, Trace]:
    return load(recording().text(folder / "text")), load(recording().database(folder / "db"))


def test_the_events_of_a_recording(both: tuple[Trace, Trace]) -> None:
    check_events("ascend-events", {"database": both[1]}, COLUMNS)


@pytest.mark.parametrize("arrows", ["calls", "no calls"])
def test_the_calls_at_the_beginning_of_arrows_launch_tasks(
    both: tuple[Trace, Trace], arrows: str, tmp_path: Path
) -> None:
    recording = small()
    recording.arrows = arrows
    text = load(recording.text(tmp_path))
    expected = launches(both[1])
    if arrows == "no calls":  # the ends of the queue around the calls
        of_call = {"aclrtMemcpyAsync": "Dequeue@acl_memcpy_host_to_device", "launch": "Dequeue@aclnnAddmm",
                   "hcom_allReduce_": "Dequeue@HcclAllreduce"}  # fmt: skip
        expected = [(name, of_call[call]) for name, call in expected]
    assert launches(text) == expected
    assert "links-without-events" not in codes(text)


def launches(trace: Trace) -> list[tuple[str, str]]:
    """Return the names of the device's work, and of the calls that launched it."""
    rows = np.flatnonzero(~trace.host & trace.rows("kind", "kernel", "memcpy"))
    names = trace.events["name"].to_pylist()
    return [(names[row], names[launching_calls(trace)[row]]) for row in rows.tolist()]


@pytest.mark.parametrize("recorded", ["both", "rich_both"])
def test_text_and_database_give_equal_tables(recorded: str, request: pytest.FixtureRequest) -> None:
    text, database = request.getfixturevalue(recorded)
    assert text.events.drop(["args"]).to_pylist() == database.events.drop(["args"]).to_pylist()
    for name in (COLLECTIVES, DEVICE_TASKS):
        assert text.tables[name].to_pylist() == database.tables[name].to_pylist() != []
    for name in get_plugins().views():
        if name not in ("findings", "account", "device", "fluid_head"):  # of the file, or with the device's name
            assert view_table(name, text).to_csv() == view_table(name, database).to_csv(), name


def test_ranges_of_mstx_and_the_garbage_collector_lie_in_the_threads_of_the_process(
    rich_both: tuple[Trace, Trace],
) -> None:
    table = rich_both[0].to_pandas().set_index("name")
    found = table.loc[["forward 3", "GC"], ["kind", "category", "pid", "tid"]].values.tolist()
    assert found == [["annotation", "user_annotation", PID, MAIN], ["python", "GC", PID, MAIN]]
    assert not {"unknown-event-types", "tables-not-read"} & {finding.code for finding in rich_both[0].quality}


def test_sizes_and_directions_of_copies(rich_both: tuple[Trace, Trace]) -> None:
    table = rich_both[1].to_pandas().query("kind == 'memcpy'")
    assert table["copy_kind"].tolist() == ["HtoD", "HtoD", "DtoH"]
    assert table["bytes"].dropna().tolist() == [4096, 256]


def test_sizes_of_groups(rich_both: tuple[Trace, Trace]) -> None:
    assert view_rows("collectives", rich_both[1], "collective group_size") == [("all_reduce", 2)]


GROUP = {"tensor parallel": {"group_name": "tp", "global_ranks": [0, 4, 8, 12]}}


@pytest.mark.parametrize(
    ("recording", "waits", "world"),
    [
        (lambda: awaiting(485), [(2, 6_000, 74_000)], 4),  # not the wait behind the transfer
        (lambda: awaiting(485, groups=GROUP), [(8, 6_000, 74_000)], None),
        (lambda: awaiting(440), [(2, 6_000, 74_000)], 4),  # the transfer with rank 3 does not end the wait for rank 2
        (lambda: awaiting(), [], 4),  # a wait without a transfer may be the transfer of the other rank
        (lambda: awaiting(485, number=1), [], None),  # number 1 of rank 0 is no rank
    ],
)
def test_the_rank_that_a_collective_waits_for(
    tmp_path: Path,
    recording: Callable[[], AscendRecording],
    waits: list[tuple[int, int, int]],
    world: int | None,
) -> None:
    for trace in text_and_database(tmp_path, recording):
        table = trace.tables[AWAITED_RANKS].to_pandas()
        assert [*table[["awaited", "after_ns", "wait_ns"]].itertuples(index=False, name=None)] == waits
        assert trace.meta.world_size == world
        assert trace.to_pandas()["name"][table["row"]].tolist() == ["hcom_allReduce__586_0_1"] * len(waits)


def test_work_is_on_the_device_that_the_text_numbers(rich_both: tuple[Trace, Trace]) -> None:
    assert set(rich_both[0].codes("device").values) == {"cpu", "npu:5"}
    kinds = rich_both[0].to_pandas().set_index("name")["kind"]
    assert kinds["VALUE_WAIT"] == "sync"


def test_each_nanosecond_of_the_step(both: tuple[Trace, Trace]) -> None:
    found = dict(view_rows("partition", both[0], "category total_ns"))
    compute, communication, copy = 50 + 20, 110, 40
    assert (found["device_compute"], found["exposed_communication"], found["exposed_copy"]) == (
        compute * 1000, communication * 1000, copy * 1000,
    )  # fmt: skip


def test_the_rules_of_readers_and_files(tmp_path: Path) -> None:
    folder = small().database(tmp_path)
    check_source(SOURCE, folder / OUTPUT / "ascend_pytorch_profiler_0.db")
    trace = load(folder)
    check_trace(trace)
    check_round_trip(trace, tmp_path)


@pytest.mark.parametrize("write", ["text", "database"])
def test_the_folders_of_several_ranks_are_one_run(tmp_path: Path, write: str) -> None:
    for rank in (0, 1):
        getattr(small(rank), write)(tmp_path)
    tmp_path.joinpath("gpu.json").write_text("{}")
    trace = load(tmp_path)
    assert "files-left-out" in {finding.code for finding in trace.quality}
    assert (trace.meta.ranks, trace.meta.world_size) == ((0, 1), 2)
    kernels = trace.to_pandas().query("kind == 'kernel'")
    assert Counter(zip(kernels["rank"], kernels["device"], strict=True)) == {(0, "npu:0"): 3, (1, "npu:1"): 3}
    assert sorted(view_rows("stragglers", trace, "rank collectives")) == [(0, 1), (1, 1)]


def test_ranks_of_different_levels_are_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        small(rank).database(tmp_path)
    info = tmp_path / "rank0_ascend_pt" / "profiler_info_0.json"
    assert "levels-mixed" not in codes(load(tmp_path))
    info.write_text(info.read_text().replace("Level1", "Level0"))
    (text,) = [finding.message for finding in load(tmp_path).quality if finding.code == "levels-mixed"]
    assert "(Level0: rank 0; Level1: rank 1)" in text


def test_a_text_without_the_vendors_tables(tmp_path: Path) -> None:
    trace = load(small().text(tmp_path, tables=False))
    kinds = Counter(trace.events["kind"].to_pylist())
    assert (kinds["kernel"], kinds["memcpy"], kinds["memory"], len(trace.tables[DEVICE_TASKS])) == (3, 1, 0, 0)


@pytest.mark.parametrize("write", ["text", "database"])
def test_allocations_whose_table_is_missing_are_reported(tmp_path: Path, write: str) -> None:
    folder = getattr(small(), write)(tmp_path)
    info = folder / "profiler_info_0.json"
    stated = json.loads(info.read_text())
    assert "allocations-missing" not in codes(load(folder))
    if write == "text":
        (folder / OUTPUT / "operator_memory.csv").unlink()
    else:
        execute(folder, "DROP TABLE OP_MEMORY")
    for profiled in (True, False):
        stated["config"]["common_config"]["profile_memory"] = profiled
        info.write_text(json.dumps(stated))
        assert ("allocations-missing" in codes(load(folder))) == profiled


def test_a_database_without_the_tasks_of_its_collectives(tmp_path: Path) -> None:
    folder = small().database(tmp_path)
    assert "columns-missing" not in codes(load(folder))
    execute(folder, "DROP TABLE COMMUNICATION_TASK_INFO")
    (text,) = [finding.message for finding in load(folder).quality if finding.code == "columns-missing"]
    assert text.endswith(": COMMUNICATION_TASK_INFO")
    execute(folder, "DELETE FROM COMMUNICATION_OP")
    assert "columns-missing" not in codes(load(folder))


@pytest.mark.parametrize("content", ["[]", "\ufeff[ ]\n", '{"traceEvents": []}'])
def test_a_text_without_events(tmp_path: Path, content: str) -> None:
    path = small().text(tmp_path) / OUTPUT / "trace_view.json"
    path.write_text(content)
    assert refusal(path).startswith(f"{path}: the list of events is empty")


def test_a_mark_on_the_device_is_no_kernel(tmp_path: Path) -> None:
    path = small().text(tmp_path) / OUTPUT / "trace_view.json"
    events = json.loads(path.read_text())
    task = next(event for event in events if event["name"] == "EVENT_RECORD")
    mark = task | {"name": "layer 0", "args": {"Physic Stream Id": 2, "Task Id": 77}}
    path.write_text(json.dumps([*events, mark]))
    assert load(path).to_pandas().set_index("name")["kind"]["layer 0"] == "overhead"


def test_a_text_without_events_of_the_host(tmp_path: Path) -> None:
    path = small().text(tmp_path) / OUTPUT / "trace_view.json"
    events = [event for event in json.loads(path.read_text()) if event["pid"] != PID]
    path.write_text(json.dumps(events))
    assert Counter(load(path.parent).events["kind"].to_pylist())["kernel"] == 3


def test_a_streamed_text_lacks_the_vendors_tables(tmp_path: Path) -> None:
    path = small().text(tmp_path) / OUTPUT / "trace_view.json"
    stream(path, tmp_path / "run.perfkit.parquet")
    trace, whole = load(tmp_path / "run.perfkit.parquet"), load(path)
    assert "tables-not-read" in {finding.code for finding in trace.quality}
    assert (trace.meta.ranks, trace.meta.options) == ((0,), whole.meta.options)
    assert set(trace.ints("rank")) == {0}


def test_a_database_of_an_older_version(tmp_path: Path) -> None:
    recordings = [small().database(tmp_path / name) / OUTPUT / "ascend_pytorch_profiler_0.db" for name in ("a", "b")]
    with closing(sqlite3.connect(recordings[1])) as connection:
        connection.execute("DROP TABLE ENUM_API_TYPE")
        connection.execute("UPDATE CANN_API SET name = NULL")
        connection.commit()
    new, old = (Counter(load(path).events["kind"].to_pylist()) for path in recordings)
    assert old == new + Counter(runtime=1, sync=0) - Counter(sync=1)  # a wait has no name
    with closing(sqlite3.connect(recordings[0])) as connection:
        connection.execute("ALTER TABLE PYTORCH_API DROP COLUMN type")
        connection.commit()
    queue = load(recordings[0]).to_pandas().query("category in ['enqueue', 'dequeue']")
    assert queue["kind"].tolist() == ["runtime"] * 6


def execute(folder: Path, statement: str) -> None:
    """Change the database in a folder."""
    (path,) = folder.rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def files_in(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def refusal(path: Path) -> str:
    """Return the error of reading a path, after which nothing may be written in its folder."""
    folder = path if path.is_dir() else path.parent
    before = files_in(folder)
    with pytest.raises(SourceError) as caught:
        load(path)
    assert files_in(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_that_was_not_analysed(tmp_path: Path) -> None:
    folder = small().text(tmp_path)
    shutil.rmtree(folder / OUTPUT)
    assert "the recording was not analysed yet: run torch_npu.profiler.profiler.analyse" in refusal(folder)
    assert "was not analysed yet" in refusal(tmp_path)

    (folder / OUTPUT).mkdir()
    (folder / OUTPUT / "analysis.db").touch()
    assert "has only tables of the vendor, but not the events" in refusal(folder)
    raw = tmp_path / "PROF_000001_20230628101435646_FKFLNPEP"
    raw.mkdir()
    assert "was not analysed yet" in refusal(raw)


def test_damaged_tables_are_read_in_part(tmp_path: Path) -> None:
    folder = small().text(tmp_path)
    kernels, memory = (folder / OUTPUT / name for name in ("kernel_details.csv", "operator_memory.csv"))
    kernels.write_bytes(kernels.read_bytes()[:-30])
    memory.write_text("")
    (folder / "profiler_metadata.json").write_text("{")
    for file in ("profiler_metadata.json: not JSON", "kernel_details.csv: not a readable table (CSV parse error"):
        assert refusal(folder).startswith(f"{folder}/")
        assert file in refusal(folder)
        (folder / "profiler_metadata.json").write_text("{}")
    (folder / "profiler_metadata.json").write_text("{")
    trace = load(folder, partial=True)
    said = {finding.code: str(finding.text) for finding in trace.quality}
    assert said["truncated"].endswith(": profiler_metadata.json, kernel_details.csv, operator_memory.csv")
    assert said["kernels-without-rows"].startswith("1 kernel has no row")
    assert view_rows("device_tasks", trace, "type calls") == [("MatMulV2", 1)]
    assert trace.meta.options["record_shapes"]
    kernels.unlink()
    assert "kernels-without-rows" in codes(load(folder, partial=True))


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    folder = small().text(tmp_path)
    whole = load(folder)
    for path in folder.rglob("*.*"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(folder).events.equals(whole.events)


@pytest.mark.parametrize("write", ["text", "database"])
def test_work_that_the_profiler_left_out_is_reported(tmp_path: Path, write: str) -> None:
    """At its level ``none``, the profiler records neither tasks nor calls of CANN."""
    recording = small()
    recording.tasks, recording.calls, recording.collectives = [], [], []
    for event in recording.host:
        event.connections = ()
    folder = getattr(recording, write)(tmp_path)
    if write == "text":
        path = folder / OUTPUT / "trace_view.json"
        path.write_text(json.dumps([event for event in json.loads(path.read_text()) if event["pid"] == PID]))
    trace = load(folder)
    assert "device-work-missing" in codes(trace)
    assert trace.rows("kind", "memory").sum() == 5
    assert str(may_lack_work(trace.quality)) == "the program launched work on the device, but it was not recorded"


def test_damaged_files(tmp_path: Path) -> None:
    output = small().database(tmp_path / "db") / OUTPUT
    database = output / "ascend_pytorch_profiler_0.db"
    content = database.read_bytes()
    database.write_bytes(content[: len(content) // 2])
    assert "cannot be read" in refusal(output.parent)
    database.write_bytes(b"")
    assert "the file is empty" in refusal(output.parent)
    with closing(sqlite3.connect(output / "analysis.db")) as connection:
        connection.execute("CREATE TABLE StepTraceTime (step TEXT)")
    assert "analysis.db has only sums" in refusal(output / "analysis.db")
    text = small().text(tmp_path / "text") / OUTPUT
    (text / "kernel_details.csv").write_bytes(b'Name,Start Time(us),Duration(us)\n"cut')
    assert refusal(text.parent).startswith(f"{text}/kernel_details.csv: not a readable table")
    for rows, part in (
        ("Name,Start Time(us),Duration(us)\nmm,soon,1\n", "'soon', row 1 of the column Start Time(us)); let the"),
        ("Name,Name,Start Time(us),Duration(us)\na,b,1,1\n", "exists 2 times"),
        ("Name,Start Time(us),Duration(us),Block Dim\nmm,1,1,few\n", "'few' in the column Block Dim is not a number"),
        (
            "Name,Duration(us)\na,1\n",
            "kernel_details.csv: not a readable table (it has no column Start Time(us))",
        ),
    ):
        (text / "kernel_details.csv").write_text(rows)
        assert part in refusal(text.parent)
    (text / "kernel_details.csv").unlink()
    (text.parent / "profiler_info_0.json").write_text("[" * 100_000)
    assert "profiler_info_0.json: not JSON" in refusal(text.parent)


def test_a_database_that_another_process_writes(tmp_path: Path) -> None:
    path = small().database(tmp_path) / OUTPUT / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM TASK")
        assert "another process writes this file" in refusal(path)
        writer.execute("ROLLBACK")
        assert len(load(path)) == 31
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("DELETE FROM TASK")
        assert "another process writes this file" in refusal(path)
    before = files_in(path.parent)  # the writer has closed it, and its log is gone
    assert len(load(path)) < 31
    assert files_in(path.parent) == before == {str(path)}


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_that_changes_while_it_is_read(tmp_path: Path, mode: str) -> None:
    path = small().database(tmp_path) / OUTPUT / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute(f"PRAGMA journal_mode = {mode}")
    os.utime(path, (0, 0))

    def read() -> None:
        with opened(path, False, FORMAT) as database, closing(sqlite3.connect(path)) as writer:
            database.value("TASK", "COUNT(*)")
            writer.execute("DELETE FROM TASK")
            writer.commit()

    with pytest.raises(SourceError, match="another process writes"):
        read()


def test_rows_without_times_are_counted(tmp_path: Path) -> None:
    path = small().database(tmp_path) / OUTPUT / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE TASK RENAME COLUMN startNs TO began")
        connection.execute("UPDATE OP_MEMORY SET size = NULL WHERE rowid = 1")
        connection.commit()
    trace = load(path)
    assert "7 of 27 events were left out" in str(
        next(f for f in trace.quality if f.code == "events-without-start").text
    )
    assert sorted(trace.to_pandas().query("kind == 'memory'")["bytes"]) == [-16384, 4096, 16384]


@pytest.mark.parametrize(("size", "most", "extra"), [(0, 15, 0), (0, 15, 1), (64, 0, 0)])
def test_damage_is_said(tmp_path: Path, size: int, most: int, extra: int) -> None:
    """Flip bits of a database (``size`` 0), or set blocks to zero: the tables remain equal, or perfkit says something.
    A wrong number or letter cannot be noticed; it leaves all rows."""
    (path,) = rich().database(tmp_path).rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("ALTER TABLE TASK ADD COLUMN extra INTEGER DEFAULT 0;" * extra)
        connection.executescript("PRAGMA page_size = 512; VACUUM")
    content, random, silent = path.read_bytes(), Random(5), 0
    used = [at for at, value in enumerate(content) if value]
    whole = load(path)
    said = {str(finding.text) for finding in whole.quality}
    for _ in range(60):
        damaged, at = bytearray(content), random.choice(used)
        if size:
            at -= at % size
            damaged[at : at + size] = bytes(size)
        else:
            damaged[at] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        with contextlib.suppress(SourceError):
            trace = load(path)
            equal = trace.events.equals(whole.events) and trace.meta.devices == whole.meta.devices
            if not equal and {str(finding.text) for finding in trace.quality} <= said:
                silent += 1
                assert len(trace) == len(whole)
    assert silent <= most


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("name = 'Op_MEMORY' WHERE name", "table Op_MEMORY cannot be read (its definition is damaged)"),
        ("sql = replace(sql, 'size', 'sizf') WHERE name", "so their values are unknown: OP_MEMORY.size"),
        ("type = 'Table' WHERE name", ""),
        ("rootpage = 2 WHERE name", "cannot be read (its definition is damaged)"),
    ],
)
def test_a_damaged_definition_of_a_table_is_said(tmp_path: Path, change: str, said: str) -> None:
    (path,) = rich().database(tmp_path).rglob("*.db")
    whole = load(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"UPDATE sqlite_master SET {change} = 'OP_MEMORY'")
        connection.commit()
    if "cannot be read" in said:
        assert said in refusal(path)
        return
    trace = load(path)
    assert said in " ".join(str(finding.text) for finding in trace.quality)
    assert trace.events.equals(whole.events) == (not said)


@pytest.mark.parametrize("lost", ["TASK", "PYTORCH_API", "CANN_API", "CONNECTION_IDS", "NPU_INFO", "COMPUTE_TASK_INFO"])
def test_references_to_missing_tables_are_counted(tmp_path: Path, lost: str) -> None:
    (path,) = rich().database(tmp_path).rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DROP TABLE {lost}")
        connection.commit()
    texts = [str(finding.text) for finding in load(path).quality]
    said = "2 kernels have no row" if lost == "COMPUTE_TASK_INFO" else f"{lost} ("
    assert any(said in text for text in texts)


@pytest.mark.parametrize("lost", ["STRING_IDS", "ENUM_HCCL_DATA_TYPE", "CANN_API", "CONNECTION_IDS", "NPU_INFO"])
def test_references_to_missing_rows_are_counted(tmp_path: Path, lost: str) -> None:
    folder = rich().database(tmp_path)
    assert "missing-rows" not in codes(load(folder))
    (path,) = folder.rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {lost} SET {'connectionId' if lost == 'CANN_API' else 'id'} = 99")
        connection.commit()
    (text,) = [str(finding.text) for finding in load(folder).quality if finding.code == "missing-rows"]
    assert f"{lost} (" in text


def test_tasks_of_a_graph_were_called_before_the_recording(tmp_path: Path) -> None:
    folder = rich().database(tmp_path)
    (path,) = folder.rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE TASK ADD COLUMN modelId INTEGER")
    for model, expected in ((NONE, True), (3, False)):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE TASK SET connectionId = 777, modelId = ?", (model,))
            connection.commit()
        assert ("missing-rows" in codes(load(folder))) == expected


def test_rows_of_tables_that_match_no_event_are_counted(tmp_path: Path) -> None:
    folder = rich().text(tmp_path)
    assert "rows-without-events" not in codes(load(folder))
    for name, old, new in (("kernel_details.csv", "Add_Add", "Add_Mul"), ("operator_memory.csv", ",8,", ",,")):
        path = folder / OUTPUT / name
        path.write_text(path.read_text().replace(old, new))
    (text,) = [str(finding.text) for finding in load(folder).quality if finding.code == "rows-without-events"]
    assert text.endswith("1 of kernels, 1 of allocations")


@pytest.mark.parametrize("change", ["steps", "groups", "nothing"])
def test_ranks_of_different_runs_are_reported(tmp_path: Path, change: str) -> None:
    first, other = small(0), small(1)
    if change == "steps":
        other.host[0].name = "ProfilerStep#8"
    if change == "groups":
        other.collectives[0].name = "hcom_allReduce__210_0_1"
    first.database(tmp_path)
    other.database(tmp_path)
    texts = [str(finding.text) for finding in load(tmp_path).quality if finding.code == "runs-mixed"]
    what = {"steps": ["step number"], "groups": ["group of collectives"], "nothing": []}[change]
    assert texts == [f"ranks 0, 1 share no {one} with another rank: they may be recordings of different runs"
                     for one in what]  # fmt: skip


@pytest.mark.parametrize("write", ["text", "database"])
def test_different_ranks_of_one_process_are_reported(tmp_path: Path, write: str) -> None:
    folder = getattr(rich(), write)(tmp_path)
    other = folder.with_name("rank3_ascend_pt")
    folder.rename(other)
    (text,) = [str(finding.text) for finding in load(other).quality if finding.code == "ranks-contradict"]
    assert "13 (rank_id)" in text
    assert "3 (rank3_ascend_pt)" in text


def test_texts_that_are_not_utf_8_are_counted(tmp_path: Path) -> None:
    (path,) = rich().database(tmp_path).rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE STRING_IDS SET value = CAST(x'61ff' AS TEXT) WHERE value = 'aten::to'")
        connection.execute("UPDATE STRING_IDS SET value = char(65533) WHERE value = 'aten::addmm'")
        connection.commit()
    (text,) = [str(finding.text) for finding in load(path).quality if finding.code == "not-utf-8"]
    assert text.startswith("1 texts")


def test_a_streamed_text_knows_the_number_of_ranks(traces: Path, tmp_path: Path) -> None:
    source = traces / "ascend" / "text" / "level1" / "rank0_ascend_pt" / OUTPUT / "trace_view.json.gz"
    stream(source, tmp_path / "streamed.parquet")
    assert load(tmp_path / "streamed.parquet").meta.world_size == 8


def test_the_databases_of_two_ranks_in_one_folder(tmp_path: Path) -> None:
    folder, other = (small(rank).database(tmp_path / str(rank)) / OUTPUT for rank in (0, 1))
    shutil.copy(other / "ascend_pytorch_profiler_1.db", folder)
    assert load(folder).meta.ranks == (0, 1)


def test_a_database_with_values_of_wrong_types(tmp_path: Path) -> None:
    path = small().database(tmp_path) / OUTPUT / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE TASK SET startNs = 'soon' WHERE taskId = 1")
        connection.execute("UPDATE PYTORCH_API SET name = 10000 WHERE sequenceNumber = 5")
        connection.execute("UPDATE COMPUTE_TASK_INFO SET waitNs = x'00'")
        connection.commit()
    trace = load(path)
    assert "MEMCPY_ASYNC" not in trace.codes("name").values
    assert "unnamed" in trace.codes("name").values


def test_kernel_details_of_another_version(tmp_path: Path) -> None:
    folder = small().text(tmp_path)
    path = folder / OUTPUT / "kernel_details.csv"
    with path.open(newline="") as file:
        rows = [[*row, row[2]] for row in csv.reader(file)]
    rows[0][rows[0].index("Block Dim")] = "Block Num"
    rows[1][rows[0].index("Duration(us)")] = "-1"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(row[::-1] for row in rows)
    (folder / "profiler_info_0.json").write_text('{"rank_id": true}')
    trace = load(folder)
    facts = {row["row"]: row for row in trace.tables[DEVICE_TASKS].to_pylist()}
    kernels = trace.to_pandas().loc[list(facts)]
    assert [row["blocks"] for row in facts.values()] == [20, 4]
    assert [row["type"] for row in facts.values()] == [None, None]  # the file has this column twice
    assert kernels["dur_ns"].tolist() == [50_000, 20_000]
    assert trace.meta.ranks == (0,)  # by the name of the file


# The vendor's tables of real recordings.

REAL = ("text/level0/rank0", "text/level1/rank0", "text/level1/rank1", "db/level0/rank0", "db/level1/rank0",
        "db/level1/rank1")  # fmt: skip


@pytest.fixture
def real(traces: Path, request: pytest.FixtureRequest) -> Path:
    return traces / "ascend" / f"{request.param}_ascend_pt" / OUTPUT


def vendor_rows(path: Path) -> list[dict[str, str]]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        return [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(file)]


def ns(microseconds: str | float) -> int:
    return round(Decimal(str(microseconds)) * 1000)


@pytest.mark.parametrize("real", [name for name in REAL if "text" in name], indirect=True)
def test_kernels_are_those_of_kernel_details(real: Path) -> None:
    trace = load(real)
    kernels = trace.to_pandas().query("kind == 'kernel'")
    expected = Counter((row["Name"], ns(row["Duration(us)"])) for row in vendor_rows(real / "kernel_details.csv"))
    assert Counter(zip(kernels["name"], kernels["dur_ns"], strict=True)) == expected
    waits = trace.tables[DEVICE_TASKS]["wait_ns"].to_pylist()
    assert sorted(waits) == sorted(ns(row["Wait Time(us)"]) for row in vendor_rows(real / "kernel_details.csv"))


@pytest.mark.parametrize("real", [name for name in REAL if "text/level1" in name], indirect=True)
def test_types_of_kernels_are_those_of_op_statistic(real: Path) -> None:
    columns = "type core calls min_device_ns max_device_ns total_device_ns"
    found = {row[:2]: row[2:] for row in view_rows("device_tasks", load(real), columns)}
    for row in vendor_rows(real / "op_statistic.csv"):
        calls, least, most, total = found.pop((row["OP Type"], row["Core Type"]))
        assert (calls, least, most) == (int(row["Count"]), ns(row["Min Time(us)"]), ns(row["Max Time(us)"]))
        assert abs(total - ns(row["Total Time(us)"])) <= calls  # the vendor sums up parts of a ns
    assert not found


@pytest.mark.parametrize("real", REAL, indirect=True)
def test_the_step_is_divided_as_in_step_trace_time(real: Path) -> None:
    parts = dict(view_rows("partition", load(real), "category total_ns"))
    if "text" in str(real):
        (row,) = vendor_rows(real / "step_trace_time.csv")
        expected, exact = (row["Computing"], row["Communication(Not Overlapped)"]), 30  # of 190 rounded durations
    else:
        with closing(sqlite3.connect(f"file:{real / 'analysis.db'}?mode=ro&immutable=1", uri=True)) as connection:
            ((*expected,),) = connection.execute(
                "SELECT computing, communication_not_overlapped FROM StepTraceTime"
            ).fetchall()
        exact = 0
    for name, value in zip(("device_compute", "exposed_communication"), expected, strict=True):
        assert abs(parts[name] - ns(value)) <= exact, name


@pytest.mark.parametrize("real", [name for name in REAL if "text/level1" in name], indirect=True)
def test_collectives_are_those_of_communication_json(real: Path) -> None:
    trace = load(real)
    (step,) = json.loads((real / "communication.json").read_text()).values()
    listed = {name.partition("@")[0]: values["Communication Time Info"] for name, values in step["collective"].items()}
    listed.pop("Total Op Info")
    rows = trace.tables[COLLECTIVES]["row"].to_pylist()
    names, durations = (trace.events[name].take(rows).to_pylist() for name in ("name", "dur_ns"))
    assert sorted(names) == sorted(listed)
    for name, duration in zip(names, durations, strict=True):
        assert abs(duration - listed[name]["Elapse Time(ms)"] * 1e6) <= 1
    links = [
        values["Communication Bandwidth Info"]["HCCS"] for name, values in step["collective"].items() if "@" in name
    ]
    table = trace.to_pandas()
    parts = table[(table["kind"] == "other") & table["args"].str.contains('"link type": ?"HCCS"', na=False)]
    assert parts["bytes"].sum() == round(sum(link["Transit Size(MB)"] for link in links) * 1e6)


@pytest.mark.parametrize("real", [name for name in REAL if "text" in name], indirect=True)
def test_operators_are_those_of_operator_details(real: Path) -> None:
    table = load(real).to_pandas()
    host = table[(table["category"] == "cpu_op") & (table["kind"] != "step")]
    expected, calls = Counter[str](), Counter[str]()
    for row in vendor_rows(real / "operator_details.csv.gz"):
        expected[row["Name"]] += ns(row["Host Total Duration(us)"])
        calls[row["Name"]] += 1
    assert dict(Counter(host["name"])) == calls
    assert host.groupby("name", observed=True)["dur_ns"].sum().to_dict() == dict(expected)


@pytest.mark.parametrize("real", REAL, indirect=True)
def test_memory_is_that_of_operator_memory(real: Path) -> None:
    table = load(real).to_pandas().query("kind == 'memory'")
    assert (int((table["bytes"] > 0).sum()), int((table["bytes"] < 0).sum())) == (184, 160)
    if "text" in str(real):
        rows = vendor_rows(real / "operator_memory.csv")
        expected = sum(round(float(row["Size(KB)"]) * 1024) for row in rows)
        assert table.loc[table["bytes"] > 0, "bytes"].sum() == expected
        records = (row for row in vendor_rows(real / "memory_record.csv") if row["Component"] == "PTA+GE")
        assert table["total_bytes"].max() / 2**20 == max(float(row["Total Allocated(MB)"]) for row in records)


@pytest.mark.parametrize("real", [name for name in REAL if "text" in name], indirect=True)
def test_launches_are_at_the_beginning_of_arrows(real: Path) -> None:
    trace = load(real)
    with gzip.open(real / "trace_view.json.gz") as file:
        events = json.load(file)
    arrows = {phase: [event for event in events if event.get("cat") == "HostToDevice" and event["ph"] == phase]
              for phase in "sf"}  # fmt: skip
    begins = {event["id"]: (event["tid"], ns(event["ts"])) for event in arrows["s"]}
    tasks = {event["pid"] for event in events if event["name"] == "process_name"
             and event["args"]["name"] == "Ascend Hardware"}  # fmt: skip
    table, checked = trace.to_pandas(), 0
    for event in arrows["f"]:
        if event["pid"] in tasks:
            work = table[(table["start_ns"] == ns(event["ts"])) & (table["stream"] == event["tid"])]
            (call,) = launching_calls(trace)[work.index]
            thread, begin = begins[event["id"]]
            assert table["tid"][call] == thread
            assert table["start_ns"][call] <= begin <= table["start_ns"][call] + table["dur_ns"][call]
            checked += 1
    assert checked == 211


def test_a_recording_whose_calls_lack_the_ids_of_tasks(traces: Path) -> None:
    """The numbers were computed from the raw events. Compilation while the device is idle takes 42.5 % of the step."""
    path = traces.parent / "reports" / "r01_ascend_trace_view.json.gz"
    if not path.exists():
        pytest.skip("the report r01 is missing")
    trace = load(path)
    work = trace.to_pandas().query("device == 'npu:0'")
    assert len(work) == 276
    starts, durations = (work[column].to_numpy(np.int64) for column in ("start_ns", "dur_ns"))  # objects in old pandas
    assert intervals.length(intervals.union(starts, starts + durations)) == 1790457
    names = trace.events["name"].to_pylist()
    called = Counter(names[call] for call in launching_calls(trace)[work.index].tolist() if call >= 0)
    assert sum(called.values()) == 274
    assert called["aclopCompileAndExecute"] > 50
    shares = dict(view_rows("causes", trace, "cause ratio"))
    assert shares["compilation of operators"] == pytest.approx(0.425, abs=0.002)


@pytest.mark.parametrize(("name", "late"), [("text/level1", 5), ("db/level1", 6)])
def test_both_ranks_of_a_real_run(traces: Path, name: str, late: int) -> None:
    trace = load(traces / "ascend" / name)
    assert (trace.meta.ranks, trace.meta.world_size) == ((0, 1), 8)
    assert trace.tables[AWAITED_RANKS]["awaited"].to_pylist() == [late] * 8  # four collectives of two ranks
    assert [row[0] for row in view_rows("stragglers", trace, "collectives")] == [4, 4]


def test_the_level_of_a_recording_is_known(traces: Path) -> None:
    recordings = [load(traces / "ascend" / name) for name in ("text/level0", "db/level1")]
    assert [trace.meta.extra["ascend"]["profiler_level"] for trace in recordings] == ["Level0", "Level1"]
