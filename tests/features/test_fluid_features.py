"""The report of Paddle 1.x in both frameworks, live and from real traces.

Live numbers are compared with the frameworks' own events, which are nested here only by their times: kineto's events in
torch, and the node tree in Paddle. Numbers from files are compared with the raw JSON, and with what Paddle printed.
"""

from __future__ import annotations

import gc
import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import perfkit_torch
from perfkit_core.api import summarize
from perfkit_core.cli.main import main
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework
from tests.support.native_nodes import Node, paddle_nodes, roots_of, torch_nodes
from tests.support.paddle_summary import tables, time

COMPUTES = re.compile("compute$|kernel launch$")


def train(native: Framework, run: Path) -> list[Node]:
    """Record three steps of a small training. Return the framework's own events."""
    nn = native.module.nn
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = native.optimizer("SGD", net)
    nodes_of = {"torch": torch_nodes, "paddle": paddle_nodes}[native.name]
    seen: list[Node] = []
    handler = native.trace_handler(run, also=[lambda prof: seen.extend(nodes_of(prof))])
    schedule = native.schedule(wait=0, warmup=1, active=3, repeat=1)
    with native.profiler(schedule, on_trace_ready=handler) as prof:
        for _ in range(5):
            net(native.module.rand([4, 8])).mean().backward()
            optimizer.step()
            native.clear_gradients(optimizer)
            prof.step()
    del prof
    gc.collect()  # Paddle allows one profiler per process
    return seen


@dataclass(frozen=True)
class Live:
    """A training recorded by this test: the run folder, perfkit's trace, and the framework's own outermost
    operators."""

    framework: str
    run: Path
    trace: Trace
    roots: list[Node]


@pytest.fixture(scope="module")
def live(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> Live:
    run = tmp_path_factory.mktemp(native.name)
    roots = roots_of(train(native, run))
    return Live(native.name, run, load(run), roots)


def by_name(nodes: list[Node]) -> dict[str, tuple[int, ...]]:
    """Return for each name the number of calls and the total, minimum and maximum duration."""
    found = defaultdict(list)
    for node in nodes:
        found[node.name].append(node.dur)
    return {name: (len(durs), sum(durs), min(durs), max(durs)) for name, durs in found.items()}


def called(node: Node) -> list[Node]:
    """Return the events that an operator calls. If an operator's only child has the same name, both are one event."""
    again = len(node.children) == 1 and node.children[0].name == node.name
    return called(node.children[0]) if again else node.children


def measured(frame: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    columns = ["calls", "total_ns", "min_ns", "max_ns"]
    return dict(zip(frame["name"], frame[columns].itertuples(index=False, name=None), strict=True))


def children_of(frame: pd.DataFrame, root: str) -> pd.DataFrame:
    """Return the rows one level below a root."""
    under = frame["name"].where(frame["depth"] == 0).ffill() == root
    return frame[under & (frame["depth"] == 1)]


def test_the_head_names_framework_steps_and_threads(live: Live) -> None:
    head = summarize(live.trace, "fluid_head", by="thread").set_index("setting")["value"]
    assert head["place"] == "CPU"
    assert head["framework"].split()[0] == live.framework
    assert head["steps"].startswith("all 3 recorded")
    assert head["threads"] == "apart"
    assert head["thread0"].startswith("tid ")


@pytest.mark.parametrize("source", ["torch/h100-bert-small.json.gz", "paddle/gpu-synthetic/gpu1.pb"])
def test_the_head_names_the_device(traces: Path, source: str) -> None:
    head = summarize(traces / source, "fluid_head").set_index("setting")["value"]
    assert re.fullmatch(r"All: CPU and cuda:0 \(NVIDIA .+\)", head["place"])


def test_computation_and_overhead_sum_to_the_operators(live: Live) -> None:
    """The total is the time of the outermost operators. Computation and overhead sum to this total."""
    rows = summarize(live.trace, "fluid_overhead").set_index("name")
    total = rows["total_ns"]
    assert total["total time"] == sum(root.dur for root in live.roots)
    assert total["computation"] + total["framework overhead"] == total["total time"]
    assert 0 < total["computation"] < total["total time"]
    assert list(total.index) == ["total time", "computation", "framework overhead"]


@pytest.mark.parametrize("framework", ["paddle"], indirect=True)
def test_computation_of_paddle_is_its_launches_and_leaves(native: Framework, tmp_path: Path) -> None:
    """Computation consists of the recorded kernel launches, and of operators without recorded phases."""
    roots = roots_of(train(native, tmp_path))
    total = summarize(tmp_path, "fluid_overhead").set_index("name")["total_ns"]
    assert total["computation"] == sum(computed(root) for root in roots)


def computed(node: Node) -> int:
    if COMPUTES.search(node.name) or (node.operator and not node.children):
        return node.dur
    return sum(computed(child) for child in node.children)


def test_computation_of_torch_is_its_products_and_leaves(tmp_path: Path) -> None:
    """In a linear layer, computation is the matrix product with everything that it calls, and every other operator that
    calls nothing."""
    torch = pytest.importorskip("torch", reason="needs torch")
    seen: list[Node] = []
    handler = perfkit_torch.trace_handler(tmp_path, also=[lambda prof: seen.extend(torch_nodes(prof))])
    with torch.profiler.profile(on_trace_ready=handler), torch.no_grad():
        torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64), torch.ones(64))
    roots = roots_of([node for node in seen if node.name not in ("aten::ones", "aten::empty", "aten::fill_")])
    total = summarize(tmp_path, "fluid_overhead", pattern="^aten::(linear|addmm|t|transpose|as_strided)$")
    total = total.set_index("name")["total_ns"]
    assert {root.name for root in roots} == {"aten::linear"}
    assert total["total time"] == sum(root.dur for root in roots)
    assert total["computation"] == sum(product_or_leaf(root) for root in roots)


def product_or_leaf(node: Node) -> int:
    if node.name == "aten::addmm" or not node.children:
        return node.dur
    return sum(product_or_leaf(child) for child in node.children)


COPIES = {"HtoD": "CPU->GPU", "DtoH": "GPU->CPU", "DtoD": "GPU->GPU same device"}


@pytest.mark.parametrize("source", ["torch/dlrm-8xv100/rank0.json", "torch/sampled-rank0.json.gz"])
def test_copies_equal_those_of_a_torch_file(traces: Path, source: str) -> None:
    """Calls and time of each direction equal those in the raw JSON. All copies were started by cudaMemcpyAsync."""
    raw = (traces / source).read_bytes()
    events = json.loads(gzip.decompress(raw) if source.endswith(".gz") else raw)["traceEvents"]
    expected: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("gpu_memcpy", "Memcpy"):
            expected[COPIES[re.search("HtoD|DtoH|DtoD", event["name"])[0]]].append(event["dur"])  # type: ignore[index]
    table = summarize(traces / source, "fluid_memcpy")
    assert table[table["depth"] == 0]["name"].tolist() == ["GpuMemcpyAsync"]
    directions = table[table["depth"] == 1].set_index("name")
    assert directions["calls"].to_dict() == {name: len(durs) for name, durs in expected.items()}
    assert directions["total_ns"].to_dict() == {name: round(1000 * sum(durs)) for name, durs in expected.items()}
    assert len(expected) == 3


def test_synchronous_copies_of_torch(traces: Path) -> None:
    """hipMemcpyWithStream waits for its copy, so its copies are synchronous."""
    table = summarize(traces / "torch" / "mi300x-qwen05b.json.gz", "fluid_memcpy")
    assert table["name"].tolist() == ["GpuMemcpySync", "GPU->GPU same device"]


def test_copies_equal_those_of_paddles_summary(traces: Path) -> None:
    """The numbers equal those of Paddle's own summary, which counts the label around each copy."""
    folder = traces / "paddle" / "gpu-synthetic"
    (native,) = tables((folder / "gpu1_by_3.3.1.summary" / "view_MemoryManipulationView.txt").read_text())
    table = summarize(folder / "gpu1.pb", "fluid_memcpy")
    assert [f"{table['name'][0]}:{table['name'][1]}"] == [row.name for row in native.rows]
    assert [str(table["calls"][1])] == [row.cells["Calls"] for row in native.rows]
    assert [time(table["total_ns"][1], native.unit)] == [row.cells["GPU Total"] for row in native.rows]


def test_without_a_device_there_are_no_copies(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(live.run), "--view", "fluid_memcpy"]) == 0
    assert "no copies to, from or on a device were recorded" in capsys.readouterr().out.lower()


def test_operators_and_their_events_equal_the_native_ones(live: Live) -> None:
    """Calls, total, minimum and maximum are compared for operators and for the events that they call."""
    frame = summarize(live.trace, "fluid_events")
    assert measured(frame[frame["depth"] == 0]) == by_name(live.roots)
    count = 0
    for name in by_name(live.roots):
        inside = [child for root in live.roots if root.name == name for child in called(root)]
        assert measured(children_of(frame, name)) == by_name(inside), name
        count += len(by_name(inside))
    assert count > 10
    assert frame[frame["depth"] == 0]["ratio"].sum() == pytest.approx(1)
    assert (frame["cpu_ratio"] == 1).all()


def test_the_times_of_each_thread_equal_those_of_a_torch_file(traces: Path) -> None:
    """Forward runs on one thread, and backward on another. The times of each thread equal those in the raw JSON."""
    source = traces / "torch" / "dlrm-8xv100" / "rank0.json"
    events = [
        e for e in json.loads(source.read_bytes())["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")
    ]
    operators = [e for e in events if e["cat"] == "cpu_op" or e["name"].startswith("nccl:")]
    nodes = [Node(e["name"], e["tid"], e["ts"], e["ts"] + e["dur"], True) for e in operators]
    expected = defaultdict(int)
    for root in roots_of(nodes):
        expected[str(root.thread), root.name] += 1000 * root.dur
    frame = summarize(source, "fluid_events", by="thread", depth=0)
    assert threads_of(source, frame) == expected
    assert len({thread for thread, _ in expected}) == 2


def threads_of(source: Path, frame: pd.DataFrame) -> dict[tuple[str, str], int]:
    """Return the CPU time by ``(tid, name)``. The rows in ``frame`` have names such as ``thread0::name``. The tid of
    thread0 comes from the head of the report."""
    head = summarize(source, "fluid_head", by="thread").set_index("setting")["value"]
    tids = {name: text.split()[1] for name, text in head.items() if re.fullmatch(r"thread\d+", name)}
    keys = [(tids[name.split("::")[0]], name.split("::", 1)[1]) for name in frame["name"]]
    return dict(zip(keys, frame["cpu_ns"], strict=True))


def test_the_times_of_each_thread_equal_paddles_table(traces: Path) -> None:
    """The numbers of a static program on several threads equal Paddle's own table with separate threads."""
    folder = traces / "paddle" / "cpu-3.3.1" / "static_pir"
    printed = tables((folder / "cycle0.summary" / "all_us_threadsep_nodetail.txt").read_text())
    (native,) = [table for table in printed if table.title == "Operator Summary"]
    expected = {(row.thread, row.name): row.cells["CPU Total"] for row in native.rows}
    source = folder / "cycle0.pb"
    mine = threads_of(source, summarize(source, "fluid_events", by="thread", depth=0))
    assert {key: time(ns, native.unit) for key, ns in mine.items()} == expected
    assert len({thread for thread, _ in expected}) > 2


def test_operators_events_and_instances(live: Live) -> None:
    """The levels are: operators only, operators with the events that they call, and each instance separately."""
    assert set(summarize(live.trace, "fluid_events", depth=0)["name"]) == {root.name for root in live.roots}
    assert summarize(live.trace, "fluid_events")["depth"].max() >= 1
    frame = summarize(live.trace, "fluid_events", by="instance", depth=0)
    expected, seen = {}, defaultdict(int)
    for root in live.roots:
        expected[f"{root.name}_{seen[root.name]}"] = root.dur
        seen[root.name] += 1
    assert dict(zip(frame["name"], frame["total_ns"], strict=True)) == expected


def test_the_command_sorts_by_any_column(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line sorts by every column, including those of Paddle 1.x: calls, total, max, min and average."""
    columns = ["calls", "total_ns", "max_ns", "min_ns", "avg_ns", "cpu_ns", "device_ns", "ratio", "cpu_ratio"]
    arguments = ["summary", str(live.run), "--view", "fluid_events", "--depth", "0", "--format", "json", "--sort"]
    for column in columns:
        assert main([*arguments, column]) == 0
        values = [row[column] for row in json.loads(capsys.readouterr().out)["views"]["fluid_events"]]
        on_device = column == "device_ns"  # no device was recorded
        assert values == ([None] * len(values) if on_device else sorted(values, reverse=True)), column
        assert len(values) == len(by_name(live.roots))


def test_the_whole_report_is_one_group(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(live.run), "--view", "fluid", "--by", "thread", "--sort", "calls"]) == 0
    titles = ["Profiling Report", "Overhead Summary", "Memcpy Summary", "Event Summary"]
    lines = [line.partition("  --view ")[0] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line in titles] == titles
