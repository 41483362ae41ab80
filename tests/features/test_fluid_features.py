"""The report of Paddle 1.x in both frameworks, live and from real traces.

Live numbers are compared with the frameworks' own events, which are nested here only by their times: kineto's events in
torch, and the node tree in Paddle. Numbers from files are compared with the raw JSON, and with what Paddle printed.
"""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

import perfkit_torch
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework
from tests.support.native_nodes import Node, paddle_nodes, roots_of, torch_nodes
from tests.support.paddle_summary import tables, time


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


@pytest.fixture(scope="module")
def live(native: Framework, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, list[Node]]:
    """Record a training. Return perfkit's trace, and the framework's own outermost operators."""
    run = tmp_path_factory.mktemp(native.name)
    roots = roots_of(train(native, run))
    return load(run), roots


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


def test_computation_and_overhead_sum_to_the_operators(live: tuple[Trace, list[Node]]) -> None:
    """The total is the time of the outermost operators. Computation and overhead sum to this total."""
    trace, roots = live
    total = summarize(trace, "fluid_overhead").set_index("name")["total_ns"]
    assert total["total time"] == sum(root.dur for root in roots)
    assert total["computation"] + total["framework overhead"] == total["total time"]
    assert 0 < total["computation"] < total["total time"]
    assert list(total.index) == ["total time", "computation", "framework overhead"]


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


def test_copies_equal_those_of_paddles_summary(traces: Path) -> None:
    """The numbers equal those of Paddle's own summary, which counts the label around each copy."""
    folder = traces / "paddle" / "gpu-synthetic"
    (native,) = tables((folder / "gpu1_by_3.3.1.summary" / "view_MemoryManipulationView.txt").read_text())
    table = summarize(folder / "gpu1.pb", "fluid_memcpy")
    assert [f"{table['name'][0]}:{table['name'][1]}"] == [row.name for row in native.rows]
    assert [str(table["calls"][1])] == [row.cells["Calls"] for row in native.rows]
    assert [time(table["total_ns"][1], native.unit)] == [row.cells["GPU Total"] for row in native.rows]


def test_operators_and_their_events_equal_the_native_ones(live: tuple[Trace, list[Node]]) -> None:
    """Calls, total, minimum and maximum are compared for operators and for the events that they call."""
    trace, roots = live
    frame = summarize(trace, "fluid_events")
    assert measured(frame[frame["depth"] == 0]) == by_name(roots)
    count = 0
    for name in by_name(roots):
        inside = [child for root in roots if root.name == name for child in called(root)]
        assert measured(children_of(frame, name)) == by_name(inside), name
        count += len(by_name(inside))
    assert count > 10
    assert frame[frame["depth"] == 0]["ratio"].sum() == pytest.approx(1)
    assert (frame["cpu_ratio"] == 1).all()


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
