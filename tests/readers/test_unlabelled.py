"""Events without a category, from other writers of Chrome traces, and the processes of merged files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice import reports
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import render
from perfkit_core.output.report import summary
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.chrome import process_ids
from perfkit_core.readers.load import load, stream
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.trace.model import account
from perfkit_core.trace.model.meta import NO_DEVICE, PROCESSES_MIXED, UNKNOWN_EVENTS, may_lack_work
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import source
from tests.support.chrome import event, raw, write
from tests.support.paths import DATA
from tests.support.scanned import both
from tests.support.tables import check_events

pytestmark = pytest.mark.bare


def process(pid: Any, name: str, label: str = "") -> list[dict[str, Any]]:
    told = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}]
    return told + [{"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}] * bool(label)


def task(name: str, ts: float, dur: float = 2, **more: Any) -> dict[str, Any]:
    """Return an event without a category on stream 4 of process 800."""
    return {"ph": "X", "name": name, "pid": 800, "tid": 4, "ts": ts, "dur": dur, "args": {}, **more}


def kinds(trace: Trace) -> list[tuple[str, str, str]]:
    columns = (trace.events[name].to_pylist() for name in ("name", "kind", "device"))
    return sorted(zip(*columns, strict=True))


USUAL = "rounded-clock no-clock-origin no-steps no-phases"
"""The codes of the warnings about all these files."""
STREAM_4 = {"ph": "M", "name": "thread_name", "pid": 800, "tid": 4, "args": {"name": "Stream 4"}}


def test_device_work_without_categories(tmp_path: Path) -> None:
    """Labels of processes say what is device work, and links which operator launched it. The legacy profiler of torch
    wrote lists, with operators without their namespace, and kernels by device, some of which have the name of their
    operator. Categories of any back end are read."""
    link = {"cat": "async_npu", "name": "torch_to_npu", "tid": 1, "pid": 1}
    ends = [
        {**link, "ph": "s", "id": 5, "ts": 1}, {**link, "ph": "f", "id": 5, "pid": 800, "tid": 4, "ts": 3},
        {**link, "ph": "s", "id": 6, "ts": 77}, {**link, "ph": "f", "id": 6, "pid": 800, "tid": 4, "ts": 78},
    ]  # fmt: skip
    host = {"ph": "X", "pid": "CPU functions", "tid": 1, "args": {}}
    flow = {"name": "addmm", "tid": 1, "pid": "CPU functions", "id": 0, "cat": "cpu_to_cuda"}
    legacy = [
        {**host, "name": "my range", "ts": 0, "dur": 20},
        {**host, "name": "addmm", "ts": 1, "dur": 9},
        {**host, "name": "AddmmBackward", "ts": 11, "dur": 5},
        {**flow, "ph": "s", "ts": 1},
        {**flow, "ph": "f", "name": "gemm", "ts": 6, "tid": 2, "pid": "CUDA functions"},
        {"ph": "X", "name": "gemm", "ts": 6, "dur": 3, "tid": 2, "pid": "CUDA functions", "args": {}},
        {**host, "name": "add", "ts": 17, "dur": 2},
        {**flow, "ph": "s", "id": 1, "ts": 17},
        {**flow, "ph": "f", "id": 1, "ts": 18, "tid": 2, "pid": "CUDA functions"},
        {"ph": "X", "name": "add", "ts": 18, "dur": 4, "tid": 2, "pid": "CUDA functions", "args": {}},
    ]
    place = {"device": 3, "stream": 7, "correlation": 5}
    categories = ("npu_kernel", "MUSA_Memset", "gpu_memcpy", "gaudi_runtime", "tpu_driver")
    cases = {
        "labels of processes": [
            event("aten::mm", 1, 5), task("MatMulV3", 3), task("MEMCPY_ASYNC", 6), task("EVENT_WAIT", 9), STREAM_4,
            *process(800, "Hardware", "NPU 1"),
        ],
        "links": [
            event("aten::mm", 1, 5), task("MatMulV3", 3), *ends, *process(800, "Ascend Hardware", "NPU"), STREAM_4,
        ],
        "categories of back ends": [
            event("aten::mm", 1, 5),
            *(event(name, 3 + 2 * at, cat=name, args=place) for at, name in enumerate(categories)),
        ],
        "a file of the legacy profiler": legacy,
    }  # fmt: skip
    traces = {}
    for name, events in cases.items():
        path = raw(tmp_path / f"{name}.json", json.dumps(events).encode())
        traces[name] = load(path)
        assert not both(path)
    check_events("readers/unlabelled.txt", traces, "kind device stream launched_by", USUAL)


def test_what_cannot_be_interpreted_is_counted_and_silences(tmp_path: Path) -> None:
    """Nothing becomes host work for want of a category, and nothing says that no device worked."""
    events = [event("aten::mm", 1, 5), task("mystery", 3, 7), {**task("strange", 5), "cat": "quantum"}]
    trace = load(write(tmp_path / "t.json", events))
    assert kinds(trace)[1:] == [("mystery", "unknown", "cpu"), ("strange", "unknown", "cpu")]
    findings = {finding.code: finding for finding in trace.quality}
    assert (
        findings[UNKNOWN_EVENTS].message
        == "2 events of unknown types (9.00 µs) were not interpreted: no category (1), quantum (1)"
    )
    assert "no device work was recognised, but 2 events" in findings[NO_DEVICE].message
    assert not findings[NO_DEVICE].note
    assert may_lack_work(trace.quality)
    assert "No saving can be predicted" in render(next(iter(reports.headline(advise(trace), "recording"))))
    brief = summary.summary_report(trace, summary.choose_views(["overview"]), ViewRequest(), brief=True)
    assert "No verdict: events that were not interpreted" in render(brief.headline[0])


def test_a_few_unknown_events_are_only_noted(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", [event("aten::mm", 1, 5000), task("mystery", 3, 7)]))
    assert [finding.note for finding in trace.quality if finding.code == UNKNOWN_EVENTS] == [True]
    assert not may_lack_work(trace.quality)


def launch(pid: Any, device: Any, correlation: int, ts: float, name: str, **more: Any) -> list[dict[str, Any]]:
    args = {"correlation": correlation, "stream": 7, "device": 0}
    call = event("cudaLaunchKernel", ts + 1, 1, cat="cuda_runtime", pid=pid, args={"correlation": correlation})
    kernel = event(f"k_{name}", ts + 5, 10, cat="kernel", pid=device, tid=7, args=args)
    return [event(f"aten::{name}", ts, 4, pid=pid, **more), call, kernel]


def launched(trace: Trace) -> set[tuple[int | None, str, str]]:
    rows = trace.events.to_pylist()
    return {
        (row["rank"], row["name"], rows[row["launched_by"]]["name"] if row["launched_by"] >= 0 else "")
        for row in rows
        if row["kind"] == "kernel"
    }


def callers(trace: Trace) -> set[tuple[int | None, int | None]]:
    return {(row["rank"], row["pid"]) for row in trace.events.to_pylist() if row["kind"] == "operator"}


@pytest.mark.parametrize(
    ("first", "second", "ranks"),
    [("[TP00] ", "[TP03] ", (0, 3)), ("[TP01-DP00] ", "[TP00-DP01] ", (0, 1)), ("rank 4 pid ", "rank 2 pid ", (2, 4))],
)
def test_ranks_in_the_ids_of_processes_are_read(
    tmp_path: Path, first: str, second: str, ranks: tuple[int, int]
) -> None:
    """Both ranks have the same process, device and correlation numbers."""
    events = launch(f"{first}83", f"{first}0", 1, 10, "mm") + launch(f"{second}83", f"{second}0", 1, 12, "add")
    path = write(tmp_path / "t.json", events)
    trace = load(path)
    assert trace.meta.ranks == ranks
    assert {(name, caller) for _, name, caller in launched(trace)} == {
        ("k_mm", "cudaLaunchKernel"),
        ("k_add", "cudaLaunchKernel"),
    }
    assert len({rank for rank, _, _ in launched(trace)}) == 2
    assert {pid for _, pid in callers(trace)} == {83}
    assert account.total(trace.account) == len(events)
    assert not both(path)


def test_ranks_in_a_file_of_paddle_are_read(tmp_path: Path) -> None:
    whole = load(DATA / "paddle-mlp.json.gz")
    content = json.loads(gzip.decompress((DATA / "paddle-mlp.json.gz").read_bytes()))
    events = [one for one in content["traceEvents"] if one]
    content["traceEvents"] = [one | {"pid": f"rank {rank} pid {one['pid']}"} for rank in (0, 1) for one in events]
    found = load(raw(tmp_path / "t.json", json.dumps(content).encode()))
    assert found.meta.ranks == (0, 1)
    assert found.events["rank"].to_pylist() == [0] * len(whole) + [1] * len(whole)
    assert sorted(found.events["name"].to_pylist()) == sorted(whole.events["name"].to_pylist() * 2)
    assert set(found.events["pid"].to_pylist()) == set(whole.events["pid"].to_pylist())


@pytest.mark.parametrize("prefix", ["python3 ", "node7.example ", "GPU 0 "])
def test_other_numbers_in_the_id_of_a_process_are_no_rank(tmp_path: Path, prefix: str) -> None:
    trace = load(write(tmp_path / "t.json", launch(f"{prefix}83", 0, 1, 10, "mm")))
    assert trace.meta.ranks == ()
    assert launched(trace) == {(None, "k_mm", "cudaLaunchKernel")}


def test_processes_with_numbers_are_ranks_if_their_launches_differ(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", launch(83, 0, 1, 10, "mm") + launch(84, 0, 2, 12, "add")))
    assert launched(trace) == {(0, "k_mm", "cudaLaunchKernel"), (1, "k_add", "cudaLaunchKernel")}
    assert callers(trace) == {(0, 83), (1, 84)}
    assert process_ids.SEVERAL in {finding.code for finding in trace.quality}


def test_launches_that_may_be_of_any_process_are_not_added_up(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "t.json", launch(83, 0, 1, 10, "mm") + launch(84, 1, 1, 12, "add")))
    assert launched(trace) == {(None, "k_mm", ""), (None, "k_add", "")}
    assert [finding.message for finding in trace.quality if finding.code == PROCESSES_MIXED] == [
        "2 processes use the same correlation ids, and 2 device events may belong to any of them: these belong to no "
        "operator, step or phase. Record each process to a file of its own"
    ]


def test_a_streamed_file_is_read_alike(tmp_path: Path) -> None:
    """Labels and other processes may follow the events, so they are evaluated when the stored file is loaded."""
    events = launch("[TP00] 83", "[TP00] 0", 1, 10, "mm") + launch("[TP01] 83", "[TP01] 0", 1, 12, "add")
    sums = {"ph": "X", "name": "Computing", "pid": 900, "tid": 0, "ts": 3, "dur": 2}
    npu = [event("aten::mm", 1, 5), task("MatMulV3", 3), sums, STREAM_4, *process(800, "Ascend Hardware", "NPU")]
    for name, content in (("ranks", events), ("npu", [*npu, *process(900, "Overlap Analysis")])):
        path = write(tmp_path / f"{name}.json", content)
        stream(path, tmp_path / f"{name}.parquet")
        whole, stored = source.read(path), read_stored(tmp_path / f"{name}.parquet")
        assert kinds(stored) == kinds(whole)
        assert launched(stored) == launched(whole)
        assert stored.account == whole.account
        assert stored.meta.ranks == whole.meta.ranks
    assert account.total(stored.account, account.SUM) == 1
