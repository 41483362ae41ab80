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
from perfkit_core.readers import sqlite_file
from perfkit_core.readers.load import load, stream
from perfkit_core.readers.nsys import source
from perfkit_core.testing.conformance import check_source
from perfkit_core.testing.traces import check_round_trip, check_trace
from tests.support.events import codes, column
from tests.support.nsys import DOMAIN, MARK, START_END, Export, global_id, small
from tests.support.tables import check_events

pytestmark = pytest.mark.bare

SOURCE = Source("nsys", "exports", source.sniff, source.read, stream=source.stream)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small().write(tmp_path / "small.sqlite")


def test_the_reader_keeps_the_rules_of_readers(path: Path) -> None:
    check_source(SOURCE, path)


def test_a_compressed_export(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "small.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed).events.equals(load(path).events)


def test_a_compressed_export_does_not_fill_the_disk(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "small.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(sqlite_file, "LEAST_FREE_BYTES", 1 << 62)
    assert "unpacking it needs more than 0 MiB" in refusal(packed)


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


COLUMNS = (
    "kind rank start_ns dur_ns device stream pid tid parent launched_by bytes copy_kind op_name shapes sequence "
    "category args"
)


def test_events(tmp_path: Path) -> None:
    """Both of two processes use device 0 of their own and the same correlation ids. A third process only calls the
    runtime."""
    first = small().write(tmp_path / "small.sqlite")
    cases = {"small": first, "two ranks": two_ranks(tmp_path / "ranks.sqlite"),
             "ranges": ranges(tmp_path / "ranges.sqlite"), "graphs": graphs(tmp_path / "graphs.sqlite"),
             "other activities": activities(tmp_path / "activities.sqlite")}  # fmt: skip
    other = Export()
    other.call("cudaEventCreate_v3020", 5, 6, 1, pid=9)
    other.kernel("kernel", 100, 150, 1)
    cases["a call of another process launches nothing"] = other.write(tmp_path / "other.sqlite")
    utc = small()
    utc.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    cases["times that were exported as UTC"] = utc.write(tmp_path / "utc.sqlite")
    traces = {name: load(path) for name, path in cases.items()}
    for name in ("small", "two ranks"):
        stream(cases[name], tmp_path / f"{name}.perfkit.parquet")
        streamed = load(tmp_path / f"{name}.perfkit.parquet")
        assert streamed.events.equals(traces[name].events)
        assert streamed.quality == traces[name].quality
    check_events("readers/nsys.txt", traces, COLUMNS, without="no-steps no-phases")
    trace, ranks = traces["small"], traces["two ranks"]
    assert (trace.meta.framework, trace.meta.clock, trace.meta.ranks) == ("torch", "epoch", ())
    assert trace.meta.thread_names == {"-:5:6": "python3"}
    assert "secret" not in repr(trace.meta)
    check_trace(trace)
    check_round_trip(trace, tmp_path)
    assert ranks.meta.ranks == (0, 1)
    (gpu,) = ranks.meta.devices
    assert (gpu.id, gpu.name, gpu.memory_bytes) == ("cuda:0", "GPU A", 10)
    assert gpu.properties == {"totalGlobalMem": 10, "numSms": 2, "computeMajor": 9}
    assert traces["ranges"].meta.framework is None
    assert traces["times that were exported as UTC"].meta.clock == "epoch"


def two_ranks(path: Path) -> Path:
    export = Export()
    for pid, gpu in ((8, 0), (7, 3)):
        export.call("cudaLaunchKernel_v7000", 10, 20, 1, pid, tid=pid)
        export.kernel(f"kernel{pid}", 100, 150, 1, pid)
        export.add("TARGET_INFO_CUDA_DEVICE", pid=pid, cudaId=0, gpuId=gpu)
    export.call("cudaGetDevice_v3020", 5, 6, 1, pid=9)
    export.add("TARGET_INFO_GPU", id=0, name="GPU A", totalMemory=10, smCount=2, computeMajor=9)
    return export.write(path)


def ranges(path: Path) -> Path:
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
    return export.write(path)


def graphs(path: Path) -> Path:
    """Write a graph that was recorded as one event, and one that was recorded as its kernels."""
    export = Export()
    export.call("cudaGraphLaunch_v10000", 10, 20, 1)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_id(5)}
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=30, end=90, correlationId=1, graphId=4, graphExecId=5, **place)
    export.call("cudaGraphLaunch_v10000", 110, 120, 2)
    export.kernel("first", 130, 140, 2, graphId=6, graphNodeId=7)
    export.kernel("second", 140, 160, 2, graphId=6, graphNodeId=8)
    return export.write(path)


def activities(path: Path) -> Path:
    export = Export()
    for table, start, end, name in (("PROFILER_OVERHEAD", 1, 4, "Buffer Flush"), ("OSRT_API", 1, 2, "read"),
                                    ("CUBLAS_EVENTS", 2_110, 2_990, "cublasSgemm")):  # fmt: skip
        export.add(table, start=start, end=end, globalTid=global_id(5, 6), nameId=export.text(name))
    export.copy(5_000, 5_010, 0, 8, copyKind=10, srcKind=2, dstKind=2)
    export.copy(5_020, 5_030, 0, 8, copyKind=11, srcKind=None, dstKind=None)
    export.copy(5_040, 5_050, 0, 8, copyKind=2, srcKind=2, dstKind=0)
    export.call("cuMemcpyHtoDAsync_v2", 5_000, 5_001, 40)
    return export.write(path)


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


@pytest.mark.parametrize("twentieth", [1, 2, 5, 10, 15, 18, 19])
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
    monkeypatch.setattr(sqlite_file, "BATCH_ROWS", 1_000)
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
