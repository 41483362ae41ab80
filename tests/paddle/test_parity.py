"""Every number of Paddle's ``summary()`` is computed from the same run.

With ``native``, complete tables are compared as printed strings, so that no row and no cell is missing or additional:
in each time unit, with threads separate or merged, with and without operator details, and for each sort key. In ns,
the strings are exact. Rows with equal values may have any order. Without ``native``, the numbers that both define in
the same way equal the raw integers in ``stats.json.gz``.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import distributed
from perfkit_core.views.devices import device, kernels
from perfkit_core.views.memory import memory
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import annotations, operator_tree, operators
from perfkit_core.views.steps import step_phases
from perfkit_paddle import trace_handler
from tests.support.paddle_parity import TABLES, Line, facts, flat_operator, mine, theirs, threads
from tests.support.paddle_summary import Table, tables

EVERYTHING, NATIVE = ViewRequest(), ViewRequest(native=True)
SORTED = {f"{side}{name}": f"{column}_{kind}_ns" for side, kind in (("CPU", "cpu"), ("GPU", "device"))
          for name, column in (("Total", "total"), ("Avg", "avg"), ("Max", "max"), ("Min", "min"))}  # fmt: skip
WORKLOADS = ("amp_custom", "cnn_small", "cnn_small_flags", "mlp_medium", "mlp_medium_mem", "repeat3",
             "static_cond_guard", "static_pir", "to_static")  # fmt: skip
DEVICE = "gpu-synthetic/gpu1"

recorded = cache(load)


# -- with ``native``, as printed -----------------------------------------------------------------------------------


def cycles(folder: Path, suffix: str) -> Iterator[tuple[Trace, Path]]:
    """Return the trace of each cycle, and what Paddle said about it."""
    for said in sorted(folder.glob(f"cycle*{suffix}")):
        (source,) = folder.glob(said.name.removesuffix(suffix) + ".pb*")
        yield recorded(source), said


def texts(printed: Path) -> Iterator[tuple[str, str | None, str]]:
    """Return name, sort key and text of each printed summary."""
    for path in sorted(printed.glob("*.txt")):
        yield path.name, SORTED.get(path.stem.removeprefix("op_sorted_")), path.read_text()


def flat(lines: list[Line]) -> Counter[tuple[Any, ...]]:
    """Return the rows, in any order."""
    return Counter((path, *sorted(cells.items())) for path, cells in lines)


def equal(trace: Trace, table: Table, sort: str | None, where: str) -> int:
    """Return the number of equal cells. Raises AssertionError if some cell differs."""
    ours, native = mine(trace, table, sort), theirs(table)
    where = f"{where}, {table.title}"
    assert flat(native) == flat(ours), (
        f"{where}: only in one {[*((flat(native) - flat(ours)) + (flat(ours) - flat(native)))][:4]}"
    )
    assert in_order(table.title, native, sort) == in_order(table.title, ours, sort), where
    if table.title == "Operator Summary" and not threads(table):
        outermost = [line for line in native if len(line[0]) == 2]
        flat_rows = flat_operator(trace, table, sort)
        assert flat(flat_rows) == flat(outermost), where
    peaks = {head: value for head, value in table.facts.items() if head != "Time unit"}
    assert facts(trace, table) == peaks, where
    return sum(len(cells) for _, cells in native) + len(peaks)


def in_order(title: str, lines: list[Line], sort: str | None) -> dict[str, list[str]]:
    """Return the column by which a table is sorted, at the outermost level of each thread."""
    wanted = next((f"{name[:3]} {name[3:]}" for name, column in SORTED.items() if column == sort), "CPU Total")
    column = {"Operator Summary": wanted, "UserDefined Summary": wanted, "Memory Summary": "Increased Size",
              "Kernel Summary": wanted if "GPU" in wanted else "GPU Total"}.get(title.partition(" - ")[0])  # fmt: skip
    found: dict[str, list[str]] = defaultdict(list)
    for path, cells in lines:
        if column is not None and len(path) == 2:
            found[path[0]].append(cells[column])
    return found


def walk(trace: Trace, text: str, sort: str | None, where: str) -> Counter[str]:
    """Return the number of equal cells of each table in a text."""
    found: Counter[str] = Counter()
    for table in tables(text):
        found[table.title] += equal(trace, table, sort, where)
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_recorded_on_the_cpu(paddle_traces: Path, workload: str) -> None:
    found: Counter[str] = Counter()
    for trace, printed in cycles(paddle_traces / "cpu-3.3.1" / workload, ".summary"):
        for name, sort, text in texts(printed):
            found += walk(trace, text, sort, f"{workload}/{name}")
    print(f"{workload}: {found.total()} cells equal: {dict(found)}")
    assert found.total() > 500
    assert {"Device Summary", "Overview Summary", "Operator Summary"} <= set(found)


def test_recorded_with_a_device(paddle_traces: Path) -> None:
    """Paddle printed eight of the nine tables for a real file with added kernels. The file has no memory events."""
    found: Counter[str] = Counter()
    for name, sort, text in texts(paddle_traces / f"{DEVICE}_by_3.3.1.summary"):
        found += walk(recorded(paddle_traces / f"{DEVICE}.pb"), text, sort, name)
    print(f"device: {found.total()} cells equal: {dict(found)}")
    assert set(found) == set(TABLES) - {"Memory Summary"}
    assert found.total() > 10_000


def test_recorded_with_a_device_in_ns(paddle: Any, paddle_traces: Path) -> None:
    """Paddle reads the file and prints its summary."""
    from paddle.profiler.profiler_statistic import StatisticData, _build_table

    source = paddle_traces / f"{DEVICE}.pb"
    result = paddle.profiler.load_profiler_result(str(source))
    statistic = StatisticData(result.get_data(), result.get_extra_info())
    found = walk(recorded(source), _build_table(statistic, time_unit="ns", row_limit=1000), None, "in ns")
    assert set(found) == set(TABLES) - {"Memory Summary"}


def train(paddle: Any, profiler: Any, steps: int) -> None:
    """Two threads are in Forward at the same time. There is a communication event, an operator whose name only
    resembles communication, and equal labels inside each other, which Paddle counts apart."""
    net, other = (paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU()) for _ in range(2))
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    loader, kept = paddle.io.DataLoader(paddle.io.TensorDataset([paddle.randn([2 * steps, 8])]), batch_size=2), []
    for (batch,) in loader:
        kept.append(paddle.ones([10]))
        thread = threading.Thread(target=lambda batch=batch: other(batch))
        thread.start()
        with paddle.profiler.RecordEvent("iteration"), paddle.profiler.RecordEvent("iteration"):
            net(batch).square().sum().backward()
        thread.join()
        event_type = paddle.base.core.TracerEventType.Communication  # as in Paddle's collectives
        exchange = paddle.base.core._RecordEvent("exchange", event_type)
        paddle.broadcast_tensors([paddle.ones([2, 1]), paddle.ones([1, 3])])
        exchange.end()
        paddle.broadcast_tensors([paddle.ones([2, 1]), paddle.ones([1, 3])])
        optimizer.step()
        optimizer.clear_grad()
        profiler.step()
    kept.clear()


@pytest.fixture(scope="module", params=[(1, 4), None], ids=["scheduler", "no-scheduler"])
def live(
    request: pytest.FixtureRequest, paddle_module: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Trace, list[tuple[str, str]]]:
    """Return the trace of a live run, and Paddle's summary for each sort key, time unit and level of detail. Without a
    scheduler, memory is freed in the empty step that the last call of ``step()`` opens."""
    folder = tmp_path_factory.mktemp("live")
    profiling = paddle_module.profiler
    options = {"scheduler": request.param, "profile_memory": True}
    with profiling.Profiler(on_trace_ready=trace_handler(folder), **options) as profiler:
        train(paddle_module, profiler, steps=5)
    asked = [{"sorted_by": profiling.SortedKeys[key], "time_unit": "ns"} for key in SORTED]
    asked += [{"time_unit": unit, "thread_sep": True, "op_detail": unit == "us"} for unit in ("s", "ms", "us", "ns")]
    printed = [(str(options.get("sorted_by")), summary(profiler, options)) for options in asked]
    del profiler
    gc.collect()
    return load(folder), printed


def summary(profiler: Any, options: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        profiler.summary(**options)
    return out.getvalue()


def test_every_cell_of_a_live_run_is_as_paddle_prints_it(live: tuple[Trace, list[tuple[str, str]]]) -> None:
    trace, printed = live
    found: Counter[str] = Counter()
    for key, text in printed:
        found += walk(trace, text, SORTED.get(key.partition(".")[2]), key)
    print(f"live: {found.total()} cells equal: {dict(found)}")
    on_the_host = set(TABLES) - {"Kernel Summary", "Memory Manipulation Summary"}
    assert {title.partition(" - ")[0] for title in found} == on_the_host
    assert len(printed) == 12


# -- without ``native`` --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workloads(paddle_traces: Path) -> dict[str, tuple[Trace, dict[str, Any]]]:
    """Return the trace of each recorded cycle, and Paddle's integers."""
    found = {
        str(stats): (trace, json.loads(gzip.decompress(stats.read_bytes())))
        for workload in WORKLOADS
        for trace, stats in cycles(paddle_traces / "cpu-3.3.1" / workload, ".stats.json.gz")
    }
    assert len(found) >= 11
    return found


MEASURES = {"call": "calls", "cpu_time": "total_cpu_ns", "max_cpu_time": "max_cpu_ns", "min_cpu_time": "min_cpu_ns",
            "general_gpu_time": "total_device_ns"}  # fmt: skip


def rows_equal(table: pd.DataFrame, stats: dict[str, Any], where: str) -> int:
    """Assert that both tables have the same names and numbers."""
    table = table.set_index("name")
    assert sorted(table.index) == sorted(stats), where
    for name, numbers in stats.items():
        for key, column in MEASURES.items():
            assert table.loc[name, column] == numbers[key], (where, name, key)
    return len(stats) * len(MEASURES)


def test_operators_labels_and_utilisation(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    """Operators of each thread are those of ``summary(thread_sep=True)``. In CPU runs, both sides have no kernels and
    no copies."""
    count = 0
    for name, (trace, stats) in workloads.items():
        count += rows_equal(operators.table(trace, EVERYTHING), stats["operators"], name)
        labels = annotations.table(trace, EVERYTHING)
        count += rows_equal(labels[labels["kind"] == "annotation"], stats["userdefined"], name)
        by_thread = operators.table(trace, ViewRequest(by=("thread",)))
        for tid, rows in stats["operators_by_thread"].items():
            count += rows_equal(by_thread[by_thread["tid"] == int(tid)], rows, f"{name}, thread {tid}")
        assert {str(tid) for tid in by_thread["tid"]} <= set(stats["operators_by_thread"])
        assert not stats["kernels"]
        assert not stats["memory_manipulation"]
        assert table_of(kernels.VIEW, trace, EVERYTHING).empty
        assert table_of(kernels.MEMCPY_VIEW, trace, EVERYTHING).empty
        ratios = device.table(trace, EVERYTHING).set_index("device")["utilisation_ratio"]
        for scope in ("process", "system"):
            native = float(stats["extra_info"][f"{scope.capitalize()} Cpu Utilization"])
            assert ratios[f"cpu ({scope})"] == native, name
    print(f"operators and labels: {count} numbers equal")
    assert count > 1000


def test_children_of_children(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    """Paddle collects the children of children but does not print them, so only operators without nested operators are
    compared."""
    count = 0
    for source, (trace, stats) in workloads.items():
        roots = nested(operator_tree.table(trace, EVERYTHING))
        for name, numbers in stats["operators"].items():
            tree = roots.get(name)
            if tree is not None and tree["calls"] == numbers["call"] and not tree["nests"]:
                count += same(tree, numbers, f"{source}, {name}")
    print(f"deeper children: {count} numbers equal")
    assert count > 1_000


def nested(table: pd.DataFrame) -> dict[str, Any]:
    roots: dict[str, Any] = {}
    path: list[dict[str, Any]] = []
    for row in table.to_dict("records"):
        node = row | {"inners": {}, "nests": False}
        del path[row["depth"] :]
        (path[-1]["inners"] if path else roots)[row["name"]] = node
        if path and row["kind"] == "operator":
            path[0]["nests"] = True
        path.append(node)
    return roots


def same(mine: dict[str, Any], theirs: dict[str, Any], where: str) -> int:
    pairs = {"calls": "call", "total_cpu_ns": "cpu_time", "max_cpu_ns": "max_cpu_time", "min_cpu_ns": "min_cpu_time"}
    assert {a: mine[a] for a in pairs} == {a: theirs[b] for a, b in pairs.items()}, where
    inners = theirs.get("inners", {})
    assert set(mine["inners"]) == set(inners), where
    return len(pairs) + sum(same(mine["inners"][name], inners[name], where) for name in inners)


def test_device_work(paddle_traces: Path) -> None:
    """The synthetic device work overlaps on two streams, so unions are shorter than sums. One kernel of 5 µs has no
    host event around its launch. perfkit counts this kernel. Sizes of more than 2 GiB are negative in Paddle's JSON."""
    trace = recorded(paddle_traces / f"{DEVICE}.pb")
    ours, theirs = (step_phases.table(trace, request).set_index("phase") for request in (EVERYTHING, NATIVE))
    assert ours.loc["step", "total_device_ns"] < theirs.loc["step", "total_device_ns"]
    mine, native = (device.table(trace, request).set_index("device").loc["cuda:0"] for request in (EVERYTHING, NATIVE))
    assert mine["kernels"] == native["kernels"] + 1
    assert mine["busy_ns"] == native["busy_ns"] + 5000
    copies = table_of(kernels.MEMCPY_VIEW, trace, EVERYTHING).groupby("kind", observed=True)[["calls", "bytes"]].sum()
    assert copies["calls"].to_dict() == {"memcpy": 3, "memset": 6}
    assert copies.loc["memcpy", "bytes"] > 2**31


def test_communication_and_memory_of_the_live_run(live: tuple[Trace, list[tuple[str, str]]]) -> None:
    """Only the communication event counts as communication, and each allocation counts once. Paddle also counts every
    broadcast_tensors. Paddle 3 counts some allocations in two rows, and Paddle 2.6 omits allocations in operator
    details."""
    trace, _ = live
    ours, theirs = (table_of(distributed.VIEW, trace, request).set_index("part") for request in (EVERYTHING, NATIVE))
    exchanges = int(trace.rows("name", "exchange").sum())
    assert ours.loc["communication", "host_calls"] == exchanges > 0
    assert ours.loc["communication", "time_ns"] == trace.ints("dur_ns")[trace.rows("name", "exchange")].sum()
    assert theirs.loc["communication", "host_calls"] == 3 * exchanges
    assert step_phases.table(trace, EVERYTHING).set_index("phase").loc["other", "total_cpu_ns"] >= 0
    once, native = (memory.table(trace, request)["allocated_bytes"].sum() for request in (EVERYTHING, NATIVE))
    changes = trace.ints("bytes", 0)[trace.rows("kind", "memory")]
    assert once == changes[changes > 0].sum() != native
