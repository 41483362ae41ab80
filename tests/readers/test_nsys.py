"""The reader of Nsight Systems' SQLite exports, on small exports whose numbers are known, and on a real one."""

from __future__ import annotations

import gzip
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.exporters.export import export as export_file
from perfkit_core.plugins.contracts import Source
from perfkit_core.readers.load import load, stream
from perfkit_core.readers.nsys import database, source
from perfkit_core.testing.conformance import check_source
from perfkit_core.testing.traces import check_round_trip, check_trace
from tests.support.events import codes, column, names_of_rows, rows
from tests.support.nsys import DOMAIN, MARK, START_END, Export, global_id, small

pytestmark = pytest.mark.bare

BEGIN_NS = 1_700_000_000 * 10**9 - 1_000
"""Time since 1970 of time 0 in :func:`small`."""
SOURCE = Source("nsys", "exports", source.sniff, source.read, stream=source.stream)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small().write(tmp_path / "small.sqlite")


def test_each_kind_of_event(path: Path, tmp_path: Path) -> None:
    trace = load(path)
    cells = rows(trace, "name", "kind", "start_ns", "dur_ns", "device", "stream")
    assert [(name, kind, start - BEGIN_NS, *more) for name, kind, start, *more in cells] == [
        ("step 3", "annotation", 2_000, 7_000, "cpu", None),
        ("aten::mm", "operator", 2_100, 900, "cpu", None),
        ("cudaLaunchKernel", "runtime", 2_200, 100, "cpu", None),
        ("void scale<4, float>(float*, float)", "kernel", 2_400, 500, "cuda:0", 7),
        ("aten::copy_", "operator", 3_100, 900, "cpu", None),
        ("cudaMemcpyAsync", "runtime", 3_200, 100, "cpu", None),
        ("Memcpy HtoD (Pinned -> Device)", "memcpy", 3_400, 500, "cuda:0", 7),
        ("cudaMemsetAsync", "runtime", 4_100, 100, "cpu", None),
        ("Memset (Device)", "memset", 4_300, 10, "cuda:0", 7),
        ("cudaStreamSynchronize", "sync", 4_400, 100, "cpu", None),
        ("Stream Sync", "sync", 4_410, 80, "cuda:0", 7),
    ]
    assert names_of_rows(trace, "launched_by") == {
        **dict.fromkeys(column(trace, "name")),
        "void scale<4, float>(float*, float)": "cudaLaunchKernel",
        "Memcpy HtoD (Pinned -> Device)": "cudaMemcpyAsync",
        "Memset (Device)": "cudaMemsetAsync",
        "Stream Sync": "cudaStreamSynchronize",
    }
    assert names_of_rows(trace, "parent")["cudaLaunchKernel"] == "aten::mm"
    assert column(trace, "bytes")["Memcpy HtoD (Pinned -> Device)"] == 4096
    assert column(trace, "copy_kind")["Memcpy HtoD (Pinned -> Device)"] == "HtoD pinned"
    assert (column(trace, "shapes")["aten::mm"], column(trace, "sequence")["aten::mm"]) == ("[[2,3],[3,4]]", 4)
    assert column(trace, "op_name")["aten::mm"] == "matmul"
    assert {(pid, tid) for pid, tid in rows(trace, "pid", "tid") if pid} == {(5, 6)}
    assert (trace.meta.framework, trace.meta.clock, trace.meta.ranks) == ("torch", "epoch", ())
    assert trace.meta.thread_names == {"-:5:6": "python3"}
    assert "secret" not in repr(trace.meta)
    check_trace(trace)
    check_round_trip(trace, tmp_path)


def test_the_reader_keeps_the_rules_of_readers(path: Path) -> None:
    check_source(SOURCE, path)


def test_streaming_gives_the_same_trace(path: Path, tmp_path: Path) -> None:
    assert stream(path, tmp_path / "streamed.perfkit.parquet") == 11
    streamed = load(tmp_path / "streamed.perfkit.parquet")
    assert streamed.events.equals(load(path).events)
    assert streamed.quality == load(path).quality


def test_a_compressed_export(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "small.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed).events.equals(load(path).events)


def test_a_compressed_export_does_not_fill_the_disk(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "small.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(database, "LEAST_FREE_BYTES", 1 << 62)
    assert "unpacking it needs more than 0 MiB" in refusal(packed)


def test_processes_with_device_work_are_ranks(tmp_path: Path) -> None:
    """Both processes use device 0 of their own and the same correlation ids. A third process only calls the runtime."""
    export = Export()
    for pid, gpu in ((8, 0), (7, 3)):
        export.call("cudaLaunchKernel_v7000", 10, 20, 1, pid, tid=pid)
        export.kernel(f"kernel{pid}", 100, 150, 1, pid)
        export.add("TARGET_INFO_CUDA_DEVICE", pid=pid, cudaId=0, gpuId=gpu)
    export.call("cudaGetDevice_v3020", 5, 6, 1, pid=9)
    export.add("TARGET_INFO_GPU", id=0, name="GPU A", totalMemory=10, smCount=2, computeMajor=9)
    trace = load(export.write(tmp_path / "two.sqlite"))
    assert trace.meta.ranks == (0, 1)
    assert rows(trace, "rank", "name", "pid") == [
        (0, "cudaLaunchKernel", 8), (0, "kernel8", None), (1, "cudaLaunchKernel", 7), (1, "kernel7", None),
    ]  # fmt: skip
    assert trace.ints("launched_by").tolist() == [-1, 0, -1, 2]
    assert {"ranks-by-order", "processes-left-out", "no-ranges", "no-clock-origin"} <= codes(trace)
    (gpu,) = trace.meta.devices
    assert (gpu.id, gpu.name, gpu.memory_bytes) == ("cuda:0", "GPU A", 10)
    assert gpu.properties == {"totalGlobalMem": 10, "numSms": 2, "computeMajor": 9}
    stream(tmp_path / "two.sqlite", tmp_path / "two.perfkit.parquet")
    assert load(tmp_path / "two.perfkit.parquet").events.equals(trace.events)


def test_a_call_of_another_process_launches_nothing(tmp_path: Path) -> None:
    export = Export()
    export.call("cudaEventCreate_v3020", 5, 6, 1, pid=9)
    export.kernel("kernel", 100, 150, 1)
    trace = load(export.write(tmp_path / "one.sqlite"))
    assert rows(trace, "name", "pid") == [("cudaEventCreate", 9), ("kernel", None)]
    assert trace.ints("launched_by").tolist() == [-1, -1]


@pytest.mark.parametrize(
    "without",
    [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
         "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "ThreadNames", "TARGET_INFO_SESSION_START_TIME", "StringIds",
         "ANALYSIS_DETAILS", "META_DATA_EXPORT"),
        ("graphNodeId", "graphId", "globalPid", "contextId", "srcKind", "dstKind", "memKind", "domainId", "textId",
         "endGlobalTid", "eventType", "staticSharedMemory", "registersPerThread", "gridZ", "syncType", "shortName"),
        ("globalTid", "correlationId", "streamId", "deviceId", "demangledName", "nameId", "bytes", "copyKind"),
    ],
    ids=["only the kernel table", "optional columns", "important columns"],
)  # fmt: skip
def test_tables_and_columns_may_be_missing(tmp_path: Path, without: tuple[str, ...]) -> None:
    trace = load(small().write(tmp_path / "less.sqlite", without))
    kernels = trace.rows("kind", "kernel")
    assert trace.ints("dur_ns")[kernels].tolist() == [500]
    if "StringIds" in without:
        assert (len(trace), trace.meta.clock, trace.ints("start_ns").tolist()) == (1, "relative", [2_400])
        assert trace.events["name"].to_pylist() == ["unnamed kernel"]
        assert trace.meta.framework is None
    else:
        assert len(trace) == 11
        check_trace(trace)


def test_texts_domains_and_ranges_of_nvtx(tmp_path: Path) -> None:
    export = Export()
    export.range("NCCL", 0, None, eventType=DOMAIN, domainId=2)
    export.range(None, 10, 90, textId=export.text("registered"))
    export.range("ncclAllReduce", 20, 30, domainId=2)
    export.range("aten::mm", 31, 32, domainId=2)  # another library's range
    export.range("moved", 35, 45, eventType=START_END, endGlobalTid=global_id(5, 99))
    export.range("point", 40, None, eventType=MARK)
    export.range("open", 50, None)
    export.range("open too", 60, 0)
    export.range("backwards", 80, 70)
    export.range("before", -30, -10)  # the session began in between
    export.range("at the start", -30, 0, tid=7)
    trace = load(export.write(tmp_path / "nvtx.sqlite"))
    assert rows(trace, "name", "start_ns", "dur_ns", "tid", "args") == [
        ("at the start", -30, 30, 7, None),
        ("before", -30, 20, 6, None),
        ("registered", 10, 80, 6, None),
        ("ncclAllReduce", 20, 10, 6, '{"domain": "NCCL"}'),
        ("aten::mm", 31, 1, 6, '{"domain": "NCCL"}'),
        ("moved", 35, 10, None, None),
        ("point", 40, 0, 6, None),
        ("backwards", 80, 0, 6, None),
    ]
    assert set(trace.events["kind"].to_pylist()) == {"annotation"}
    assert names_of_rows(trace, "parent")["ncclAllReduce"] == "registered"
    (unended,) = (finding for finding in trace.quality if finding.code == "unended-ranges")
    assert unended.message.startswith("2 ranges had not ended")
    assert "negative-durations" in codes(trace)
    assert trace.meta.framework is None


def test_graphs_are_kept_as_one_event_or_as_their_kernels(tmp_path: Path) -> None:
    export = Export()
    export.call("cudaGraphLaunch_v10000", 10, 20, 1)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_id(5)}
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=30, end=90, correlationId=1, graphId=4, graphExecId=5, **place)
    export.call("cudaGraphLaunch_v10000", 110, 120, 2)
    export.kernel("first", 130, 140, 2, graphId=6, graphNodeId=7)
    export.kernel("second", 140, 160, 2, graphId=6, graphNodeId=8)
    trace = load(export.write(tmp_path / "graphs.sqlite"))
    work = [row for row in rows(trace, "name", "dur_ns", "launched_by", "args") if row[2] >= 0]
    launch = '"registers per thread":32,"shared memory":24,"grid":[1,1,1],"block":[1,1,1]'
    assert work == [
        ("CUDA graph 4", 60, 0, '{"graph id":4,"graph exec id":5}'),
        ("first", 10, 2, f'{{"context":1,{launch},"graph id":6,"graph node id":7}}'),
        ("second", 20, 2, f'{{"context":1,{launch},"graph id":6,"graph node id":8}}'),
    ]
    assert "graphs-without-kernels" in codes(trace)


def test_other_activities_have_their_kinds(tmp_path: Path) -> None:
    export = small()
    export.add("PROFILER_OVERHEAD", start=1, end=4, globalTid=global_id(5, 6), nameId=export.text("Buffer Flush"))
    export.add("CUBLAS_EVENTS", start=2_110, end=2_990, globalTid=global_id(5, 6), nameId=export.text("cublasSgemm"))
    export.add("OSRT_API", start=1, end=2, globalTid=global_id(5, 6), nameId=export.text("read"))
    export.copy(5_000, 5_010, 0, 8, copyKind=10, srcKind=2, dstKind=2)
    export.copy(5_020, 5_030, 0, 8, copyKind=11, srcKind=None, dstKind=None)
    export.copy(5_040, 5_050, 0, 8, copyKind=2, srcKind=2, dstKind=0)
    export.call("cuMemcpyHtoDAsync_v2", 5_000, 5_001, 40)
    trace = load(export.write(tmp_path / "more.sqlite"))
    kinds, copies, categories = (column(trace, name) for name in ("kind", "copy_kind", "category"))
    assert (kinds["Buffer Flush"], kinds["cublasSgemm"]) == ("overhead", "annotation")
    assert copies["Memcpy PtoP (Device -> Device)"] == "PtoP"
    assert (copies["Memcpy HtoD"], copies["Memcpy DtoH (Device -> Pageable)"]) == ("HtoD", "DtoH pageable")
    assert (categories["cuMemcpyHtoDAsync_v2"], categories["cudaMemcpyAsync"]) == ("cuda_driver", "cuda_runtime")
    assert [f.message for f in trace.quality if f.code == "tables-not-read"] == [
        "perfkit does not read these tables: OSRT_API"
    ]


def test_times_that_were_exported_as_utc_stay(tmp_path: Path) -> None:
    export = small()
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    trace = load(export.write(tmp_path / "utc.sqlite"))
    assert (trace.meta.clock, int(trace.ints("start_ns")[0])) == ("epoch", 2_000)


def refusal(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def foreign(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as other:
        for statement in statements:
            other.execute(statement)
        other.commit()
    return path


def test_files_that_are_no_export(tmp_path: Path) -> None:
    report = tmp_path / "train.nsys-rep"
    report.write_bytes(b"a report")
    assert "nsys export --type sqlite train.nsys-rep" in refusal(report)
    assert "not an export of Nsight Systems" in refusal(foreign(tmp_path / "a.sqlite", "CREATE TABLE cookies (id)"))
    nvprof = foreign(tmp_path / "b.sqlite", "CREATE TABLE StringTable (_id_, value)",
                     "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_, start)")  # fmt: skip
    assert "not an export of Nsight Systems" in refusal(nvprof)
    assert load(small().write(tmp_path / "d.sqlite")).meta.format == "nsys"
    assert len(load(tmp_path)) == 11  # other SQLite files and reports in a folder are left out
    # a view may compute for ever
    endless = (
        "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start AS end FROM n"
    )
    hostile = foreign(tmp_path / "c.sqlite", f"CREATE VIEW NVTX_EVENTS AS {endless}")
    assert "not an export of Nsight Systems" in refusal(hostile)


@pytest.mark.parametrize(
    ("name", "value"), [("start", "soon"), ("correlationId", b"x"), ("streamId", "seven"), ("deviceId", "cpu")]
)
def test_values_of_a_wrong_type_are_named(tmp_path: Path, name: str, value: object) -> None:
    export = small()
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][0][name] = value
    assert "table CUPTI_ACTIVITY_KIND_KERNEL" in refusal(export.write(tmp_path / "wrong.sqlite"))


def test_rows_without_a_device_or_a_thread(tmp_path: Path) -> None:
    """The context of a row tells its device. The device of another context is unknown, also in an exported file."""
    export = small()
    (kernel,), (call, *_) = (export.tables[f"CUPTI_ACTIVITY_KIND_{name}"] for name in ("KERNEL", "RUNTIME"))
    for number, context in ((31, kernel["contextId"]), (32, 99)):
        export.kernel(f"k{number}", 5_000, 5_100, number, deviceId=None, contextId=context)
    export.tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append({**call, "globalTid": None, "nameId": export.text("lost")})
    export.add("ThreadNames", nameId=export.text("lost thread"), priority=20, globalTid=None)
    trace = load(export.write(tmp_path / "nulls.sqlite"))
    check_trace(trace)
    check_round_trip(trace, tmp_path)
    export_file(trace, tmp_path / "exported.json")
    assert column(load(tmp_path / "exported.json"), "device") == column(trace, "device")
    assert (column(trace, "device")["k31"], column(trace, "device")["k32"]) == ("cuda:0", None)
    assert (column(trace, "device")["lost"], column(trace, "tid")["lost"]) == ("cpu", None)
    assert "lost thread" not in trace.meta.thread_names.values()


def test_hostile_texts_and_numbers_are_read_or_refused(tmp_path: Path) -> None:
    export = small()
    kernel = export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][0]
    kernel |= {"gridX": '1],"x":[', "contextId": "one", "globalPid": "two"}
    export.range("\0</script>" + "<" * 5_000, 1, 2)
    trace = load(export.write(tmp_path / "hostile.sqlite"))
    assert '"grid":[1,1,1]' in column(trace, "args")["void scale<4, float>(float*, float)"]
    export.tables["TARGET_INFO_SESSION_START_TIME"][0]["utcEpochNs"] = 2**63 - 1
    assert "64-bit" in refusal(export.write(tmp_path / "late.sqlite"))


def test_damage_whose_description_is_no_text_is_refused(tmp_path: Path) -> None:
    """SQLite quotes the damaged definition of a table in its error."""
    path = small().write(tmp_path / "t.sqlite")
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE") > 3
    path.write_bytes(data.replace(b"CREATE TABLE", b"CREATE \xff\xfe\xff\xfe\xff"))
    assert "cannot be read" in refusal(path)


@pytest.mark.parametrize("twentieth", range(1, 20))
def test_a_truncated_file_is_refused_or_read_in_part(tmp_path: Path, twentieth: int) -> None:
    export = small()
    for number in range(2_000):
        export.kernel("kernel", 10_000 + number, 10_001 + number, 0)
    data = export.write(tmp_path / "whole.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(data[: len(data) * twentieth // 20])
    refusal(path)
    try:
        trace = load(path, partial=True)
    except SourceError:
        return
    assert "truncated" in codes(trace)
    assert trace.meta.incomplete
    assert len(trace) < 2_011


class Counting:
    """A writer that counts what it gets."""

    rows = 0

    def __init__(self) -> None:
        self.batches: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch.num_rows)

    def close(self, *arguments: Any, **more: Any) -> None:
        self.closed = True


def test_streaming_holds_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BATCH_ROWS", 1_000)
    peaks = []
    for count in (5_000, 50_000):
        export = Export()
        for number in range(count):
            export.range(f"aten::mm, op_id = {number}", number, number + 1)
        path = export.write(tmp_path / f"{count}.sqlite")
        del export
        writer = Counting()
        tracemalloc.start()
        source.stream(path, False, writer)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (sum(writer.batches), max(writer.batches)) == (count, 1_000)
    assert peaks[1] < 2 * peaks[0]


def test_times_that_cannot_be_are_not_used(tmp_path: Path) -> None:
    """A call without times, and a kernel that runs over the next one of its stream."""
    export = Export()
    for number in range(3):
        export.call("cudaLaunchKernel", 1000 * number + 10, 1000 * number + 20, number + 1)
        export.kernel("k", 1_000_000 * number + 10_000, 1_000_000 * number + 900_000, number + 1)
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][1]["end"] = 4 * 10**9
    export.call("cudaMalloc", 0, 0, 9)
    path = export.write(tmp_path / "times.sqlite")
    trace = load(path)
    kinds = trace.events["kind"].to_pylist()
    assert (kinds.count("kernel"), kinds.count("implausible"), kinds.count("runtime")) == (2, 1, 3)
    messages = {finding.code: finding.message for finding in trace.quality}
    assert messages["events-without-start"].startswith("1 of 7 events ")
    assert messages["durations-too-long"].startswith("1 event ")
    stream(path, tmp_path / "streamed.perfkit.parquet")
    streamed = load(tmp_path / "streamed.perfkit.parquet")
    assert streamed.events.equals(trace.events)
    assert streamed.quality == trace.quality
