"""Kernels of replayed graphs get the operators and layers that the recording of the capture has."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import SourceError, load, summarize
from perfkit_core.cli.main import main
from perfkit_core.testing import traces as promises
from perfkit_core.trace.assembly.graph_capture import captured_graphs
from perfkit_core.trace.model.trace import Trace
from tests.support.server_trace import Server
from tests.support.tables import check_tables

ATTRIBUTED = "graph-kernels-attributed"
Plan = list[tuple[str, list[str | None]]]
"""Operators, each with the kernels that it launches."""


def capture(path: Path, batch: int, operators: Plan) -> Path:
    """A recording of the capture of a graph. Each operator launches kernels (None: the name was not recorded)."""
    server = Server()
    server.range(f"capture_{batch}_FULL", 0, 10_000)
    server.add("cuda_runtime", "cudaStreamBeginCapture", 10, 2)
    server.add("python_function", "nn.Module: Model_0", 20, 9_000)
    start = 30
    for name, kernels in operators:
        server.operator(name, start, 80, **{"Input Dims": [[batch, 4]]})
        for number, kernel in enumerate(kernels):
            args = {} if kernel is None else {"kernel": kernel}
            server.add("cuda_runtime", "cudaLaunchKernel", start + 10 * number, 5, correlation=start + number, **args)
        start += 100
    server.add("cuda_runtime", "cudaStreamEndCapture", 9_500, 2)
    return server.write(path)


def replay(path: Path, kernels: list[str], batch: int = 4, **each: Any) -> Path:
    server = Server()
    server.range(f"step[DECODE bs={batch}]", 0, 100)
    server.launch("cudaGraphLaunch", 10, [(name, 20 + 10 * n, 10) for n, name in enumerate(kernels)], **each)
    return server.write(path)


def operators(trace: Trace) -> dict[str, str]:
    """Return the operator of each kernel, by the names of both."""
    table = summarize(trace, "kernels", by="operator")
    return dict(zip(table["name"], table["operator"], strict=True))


def finding(trace: Trace, code: str = ATTRIBUTED) -> str:
    return next(each.message for each in trace.quality if each.code == code)


PLAN: list[tuple[str, list[str | None]]] = [
    ("aten::mm", ["gemm"]),
    ("aten::add", ["add", "add2"]),
    ("aten::mul", ["mul"]),
]


def test_kernels_get_their_operators_and_layers(tmp_path: Path) -> None:
    capture(tmp_path / "t.capture.json", 4, PLAN)
    trace = load(replay(tmp_path / "t.json", ["gemm", "add", "add2", "mul"]))
    table = summarize(trace, "operators").set_index("name")
    assert table.loc["aten::add", ["calls", "self_device_ns", "self_cpu_ns"]].tolist() == [1, 20_000, 0]
    modules = summarize(trace, "modules").set_index("name")
    assert modules.loc["Model_0", "total_device_ns"] == 40_000


UNNAMED: Plan = [("aten::mm", [None]), ("aten::add", [None, None])]
REPLAYS: dict[str, tuple[Plan | None, list[str]]] = {
    "the captured kernels": (PLAN, ["gemm", "add", "add2", "mul"]),
    "without a capture": (None, ["gemm"]),
    "streams may change the order": (PLAN, ["add", "gemm", "mul", "add2"]),
    "a kernel that the capture lacks stays without operator": (PLAN, ["gemm", "other", "add", "add2", "mul"]),
    "another graph is not used": (PLAN, ["a", "b", "c", "d"]),
    "CUDA does not record the kernel of a captured launch: calls match in order": (UNNAMED, ["gemm", "add", "mul"]),
    "then the numbers must be equal": (UNNAMED, ["gemm", "add"]),
}


def test_the_operators_of_replayed_kernels(tmp_path: Path) -> None:
    tables = {}
    for number, (name, (plan, kernels)) in enumerate(REPLAYS.items()):
        if plan:
            capture(tmp_path / f"{number}.capture.json", 4, plan)
        trace = load(replay(tmp_path / f"{number}.json", kernels))
        promises.check_trace(trace)
        promises.check_launches(trace)
        tables[name] = summarize(trace, "kernels", by="operator")
        findings = summarize(trace, "findings")
        tables[f"{name}: findings"] = findings[findings["code"].str.startswith("graph")]
    check_tables("trace/graph_capture.txt", tables)


def test_node_ids_give_the_order(tmp_path: Path) -> None:
    """Equal kernels of different operators are told apart by their node ids, not by time."""
    capture(tmp_path / "t.capture.json", 4, [("aten::mm", ["k"]), ("aten::add", ["k"])])
    server = Server()
    server.launch("cudaGraphLaunch", 10, [("k", 20, 10), ("k", 40, 30)], graph_node_id=[9, 3])
    trace = load(server.write(tmp_path / "t.json"))
    table = summarize(trace, "operators").set_index("name")
    assert table.loc[["aten::mm", "aten::add"], "self_device_ns"].tolist() == [30_000, 10_000]


def test_the_batch_size_chooses_the_capture(tmp_path: Path) -> None:
    """A step of 5 requests replays the graph for 8. The damaged file of another batch size is not read."""
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    capture(folder / "one.json", 4, [("four::mm", ["gemm"])])
    capture(folder / "two.json", 8, [("eight::mm", ["gemm"])])
    (folder / "bs_64_rank0.json").write_text("damaged")
    details = [{"file": "one.json", "batch_size": 4}, {"file": "two.json", "batch_size": 8}]
    (folder / "execution_details.json").write_text(json.dumps(details))
    assert operators(load(replay(tmp_path / "t.json", ["gemm"], batch=5))) == {"gemm": "eight::mm"}
    assert operators(load(replay(tmp_path / "u.json", ["gemm"], batch=4))) == {"gemm": "four::mm"}


def test_each_replay_has_its_operators(tmp_path: Path) -> None:
    capture(tmp_path / "t.capture.json", 4, PLAN)
    server = Server()
    for start in (0, 1000, 2000):
        server.range("step[DECODE bs=4]", start, 500)
        names = ["gemm", "add", "add2", "mul"]
        server.launch("cudaGraphLaunch", start + 10, [(name, start + 20 + 10 * n, 10) for n, name in enumerate(names)])
    trace = load(server.write(tmp_path / "t.json"))
    table = summarize(trace, "operators", by="step")
    assert Counter(table["step"]) == {0: 3, 1: 3, 2: 3}
    assert table["self_device_ns"].sum() == 120_000


def test_a_folder_has_no_rank_of_captures(tmp_path: Path) -> None:
    capture(tmp_path / "t.capture.json", 4, PLAN)
    replay(tmp_path / "t.json", ["gemm", "add", "add2", "mul"])
    trace = load(tmp_path)
    assert operators(trace)["gemm"] == "aten::mm"
    assert "capture_4_FULL" not in trace.column("name").to_pylist()


def test_a_capture_may_be_another_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = capture(tmp_path / "elsewhere.json", 4, PLAN)
    path = replay(tmp_path / "t.json", ["gemm", "add", "add2", "mul"])
    assert operators(load(path, graph_capture=other))["gemm"] == "aten::mm"
    arguments = ["summary", str(path), "--view", "operators", "--format", "csv"]
    assert main([*arguments, "--graph-capture", str(other)]) == 0
    assert "aten::mm" in capsys.readouterr().out
    with pytest.raises(SourceError, match="no graph was captured in this recording"):
        load(path, graph_capture=path)
    assert main([*arguments, "--graph-capture", str(tmp_path / "missing.json")]) == 2
    assert "no such file or folder" in capsys.readouterr().err
    unused = load(other, graph_capture=other)
    assert "not used" in finding(unused, "graph-capture-unused")
    with pytest.raises(SourceError, match="no such file or folder"):  # also if the recording has no replays
        load(other, graph_capture=tmp_path / "missing.json")


def test_a_given_folder_without_a_suitable_capture(tmp_path: Path) -> None:
    path, folder = replay(tmp_path / "t.json", ["gemm"], batch=4), tmp_path / "captures"
    folder.mkdir()
    with pytest.raises(SourceError, match="contains no recording of a graph capture"):
        load(path, graph_capture=folder)
    capture(folder / "bs_2_rank0.json", 2, PLAN)
    assert "batch size" in finding(load(path, graph_capture=folder), "graph-capture-unused")


def test_captures_of_several_threads(tmp_path: Path) -> None:
    """A capture has the launches of its own thread, up to the next end. The batch size is that of the range around it.
    Without an end, it is no capture."""
    server = Server()
    server.range("capture_2_FULL", 0, 100)
    server.range("capture_4_FULL", 200, 100)
    runtime = [
        ("cudaStreamBeginCapture", 10, 1), ("cudaStreamBeginCapture", 12, 2), ("cudaLaunchKernel", 14, 1),
        ("cudaLaunchKernel", 16, 2), ("cudaStreamEndCapture", 18, 1), ("cudaLaunchKernel", 20, 1),
        ("cudaStreamEndCapture", 22, 2), ("cudaStreamBeginCapture", 210, 1), ("cudaMemcpyAsync", 212, 1),
        ("cudaStreamEndCapture", 214, 1), ("cudaStreamBeginCapture", 310, 1), ("cudaStreamEndCapture", 312, 1),
        ("cudaStreamBeginCapture", 320, 1),
    ]  # fmt: skip
    for number, (name, start, tid) in enumerate(runtime):
        server.add("cuda_runtime", name, start, 1, correlation=number + 1, kernel=f'"\\é{start}')
        server.events[-1]["tid"] = tid
    graphs = captured_graphs(load(server.write(tmp_path / "t.json")), batch=64)
    assert [(each.kinds, each.names, each.batch) for each in graphs] == [
        (("kernel",), ('"\\é14',), 2),
        (("kernel",), ('"\\é16',), 2),
        (("memcpy",), ('"\\é212',), 4),
        ((), (), 64),
    ]


@pytest.mark.parametrize("number", ["9" * 5000, '"9"', "-1", "9.5", "null"])
def test_node_ids_that_are_no_numbers_leave_the_order_of_time(tmp_path: Path, number: str) -> None:
    capture(tmp_path / "t.capture.json", 4, [("aten::mm", ["k"]), ("aten::add", ["k"])])
    path = replay(tmp_path / "t.json", ["k", "k"], graph_node_id=["ID", 3])
    path.write_text(path.read_text().replace('"ID"', number))
    table = summarize(load(path), "operators").set_index("name")
    assert table.loc[["aten::mm", "aten::add"], "self_device_ns"].tolist() == [10_000, 10_000]


@pytest.mark.parametrize(
    "content", ['{"traceEvents":[{"ph"', "", "text", pytest.param("[" * 100_000, id="deep")]
)  # fmt: skip
@pytest.mark.parametrize("name", ["t.capture.json", "capture_traces/bs_4_rank0.json"])
def test_a_damaged_file_beside_the_trace_is_not_used(
    tmp_path: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note names the file. It is an error only if the user gave the file."""
    path, damaged = replay(tmp_path / "t.json", ["gemm"]), tmp_path / name
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_text(content)
    trace = load(path)
    assert finding(trace, "graph-capture-unreadable").startswith(f"{damaged}: ")
    assert operators(trace).keys() == {"gemm"}
    assert "--graph-capture" in finding(trace, "graph-kernels-without-operators")
    assert main(["summary", str(path), "--graph-capture", str(damaged)]) == 2
    error = capsys.readouterr().err
    assert str(damaged) in error
    assert "unexpected" not in error


@pytest.mark.parametrize("details", ["[" * 100_000, "{", '[{"file": 1}, 2]'], ids=["deep", "damaged", "foreign"])
def test_damaged_batch_sizes_beside_the_trace(tmp_path: Path, details: str) -> None:
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    capture(folder / "bs_4_rank0.json", 4, PLAN)
    (folder / "execution_details.json").write_text(details)
    trace = load(replay(tmp_path / "t.json", ["gemm", "add", "add2", "mul"]))
    assert operators(trace)["gemm"] == "aten::mm"


def test_a_folder_of_captures_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "capture_traces").mkdir()
    path, iterdir = replay(tmp_path / "t.json", ["gemm"]), Path.iterdir

    def refused(folder: Path) -> Any:
        if folder.name == "capture_traces":
            raise PermissionError(13, "Permission denied")
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", refused)
    text = finding(load(path), "graph-capture-unreadable")
    assert text.startswith(f"{tmp_path / 'capture_traces'}: Permission denied")


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return [one for one in json.load(file, parse_float=Decimal)["traceEvents"] if one.get("ph") == "X"]


def test_the_replay_of_a_real_server(traces: Path) -> None:
    """A join of the two files, made here: the n-th kernel of the replay was launched by the n-th captured launch. Its
    operator is the innermost cpu_op around the launch, its layer the innermost nn.Module."""
    folder = traces / "serving"
    recorded = events(folder / "vllm-decode-graph.json.gz")
    captured = events(folder / "vllm-decode-graph.capture.json.gz")
    graph = next(one["args"]["correlation"] for one in recorded if one["name"] == "hipGraphLaunch")
    kernels = [one for one in recorded if one["cat"] == "kernel" and one["args"]["correlation"] == graph]
    kernels.sort(key=lambda one: one["ts"])
    begin, end = (
        next(one["ts"] for one in captured if one["name"] == name)
        for name in ("hipStreamBeginCapture", "hipStreamEndCapture")
    )
    launches = [one for one in captured if "kernel" in one.get("args", {}) and begin < one["ts"] < end]
    launches = sorted((one for one in launches if one["cat"] == "cuda_runtime"), key=lambda one: one["ts"])
    assert [one["args"]["kernel"] for one in launches] == [one["name"] for one in kernels]

    def innermost(launch: dict[str, Any], wanted: list[dict[str, Any]]) -> str | None:
        around = [one for one in wanted if one["ts"] <= launch["ts"] < one["ts"] + one["dur"]]
        return max(around, key=lambda one: one["ts"])["name"] if around else None

    cpu_ops = [one for one in captured if one["cat"] == "cpu_op"]
    modules = [one for one in captured if one["cat"] == "python_function" and one["name"].startswith("nn.Module: ")]
    times: Counter[str] = Counter()
    named = layered = 0
    for kernel, launch in zip(kernels, launches, strict=True):
        dur = int(kernel["dur"] * 1000)
        operator = innermost(launch, cpu_ops)
        if operator is not None:
            times[operator] += dur
            named += dur
        layered += dur * (innermost(launch, modules) is not None)
    total = sum(int(one["dur"] * 1000) for one in kernels)
    assert min(named, layered) >= 0.9 * total

    trace = load(folder / "vllm-decode-graph.json.gz")
    replayed = summarize(trace, "operators")
    replayed = replayed[replayed["name"].isin(times) & (replayed["self_device_ns"] > 0)]
    assert dict(zip(replayed["name"], replayed["self_device_ns"], strict=True)) == times
    model = summarize(trace, "modules").set_index("name").loc["GptOssForCausalLM_0"]
    assert model["total_device_ns"] == layered
    assert finding(trace).startswith("100% of the device time of graph replays (10.4 ms)")
    promises.check_trace(trace)
    promises.check_launches(trace)


def test_a_stored_run_keeps_the_operators(traces: Path, tmp_path: Path) -> None:
    trace = load(traces / "serving" / "vllm-decode-graph.json.gz")
    assert main(["export", trace.meta.source, "-o", str(tmp_path / "run.parquet")]) == 0
    again = load(tmp_path / "run.parquet")
    assert summarize(again, "operators").equals(summarize(trace, "operators"))
