"""Every number behind Paddle's ``summary()`` is computed from the same run and compared exactly, in ns.

``stats.json.gz`` has the raw integers from which Paddle prints its tables, one file for each recorded workload.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import device, kernels
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import operator_tree, operators

EVERYTHING = ViewRequest()


@pytest.fixture(scope="session")
def workloads(traces: Path) -> dict[str, tuple[Trace, dict[str, Any]]]:
    """Return the trace of each recorded cycle, from the protobuf, and Paddle's integers."""
    found = {}
    for stats in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.stats.json.gz")):
        cycle = stats.name.removesuffix(".stats.json.gz")
        (source,) = (path for path in stats.parent.glob(f"{cycle}.pb*"))
        found[f"{stats.parent.name}/{cycle}"] = load(source), json.loads(gzip.decompress(stats.read_bytes()))
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


def test_operators_equal_paddles_numbers(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    count = sum(
        rows_equal(operators.table(trace, EVERYTHING), stats["operators"], name)
        for name, (trace, stats) in workloads.items()
    )
    print(f"operators: {count} numbers equal")
    assert count > 500


def test_operators_by_thread(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    """The threads are separate, as in ``summary(thread_sep=True)``."""
    count = 0
    for name, (trace, stats) in workloads.items():
        table = operators.table(trace, ViewRequest(by=("thread",)))
        assert {str(tid) for tid in table["tid"]} == {tid for tid, rows in stats["operators_by_thread"].items() if rows}
        for tid, rows in stats["operators_by_thread"].items():
            count += rows_equal(table[table["tid"] == int(tid)], rows, f"{name}, thread {tid}")
    print(f"operators by thread: {count} numbers equal")
    assert count > 500


def test_user_labels_equal_paddles_numbers(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    count = 0
    for name, (trace, stats) in workloads.items():
        table = user_annotations.table(trace, EVERYTHING)
        count += rows_equal(table[table["kind"] == "annotation"], stats["userdefined"], name)
    print(f"user labels: {count} numbers equal")
    assert count > 10


def test_nothing_on_a_device(workloads: dict[str, tuple[Trace, dict[str, Any]]]) -> None:
    """In CPU runs, both sides have no kernels and no copies. The CPU utilisation is the number that Paddle recorded."""
    for name, (trace, stats) in workloads.items():
        assert not stats["kernels"]
        assert not stats["memory_manipulation"]
        assert table_of(kernels.VIEW, trace, EVERYTHING).empty
        assert table_of(kernels.MEMCPY_VIEW, trace, EVERYTHING).empty
        ratios = device.table(trace, EVERYTHING).set_index("device")["utilisation_ratio"]
        for scope in ("process", "system"):
            native = float(stats["extra_info"][f"{scope.capitalize()} Cpu Utilization"])
            assert ratios[f"cpu ({scope})"] == native, name


def test_children_of_children(traces: Path) -> None:
    """Paddle collects the children of children but does not print them, so only operators without nested operators are
    compared."""
    count = 0
    for stats in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.stats.json.gz")):
        (source,) = stats.parent.glob(f"{stats.name.removesuffix('.stats.json.gz')}.pb*")
        table = operator_tree.table(load(source), ViewRequest())
        mine = _nested(table)
        for name, numbers in json.loads(gzip.decompress(stats.read_bytes()))["operators"].items():
            tree = mine.get(name)
            if tree is not None and tree["calls"] == numbers["call"] and not tree["nests"]:
                count += _same(tree, numbers, (stats.parent.name, name))
    print(f"deeper children: {count} numbers equal")
    assert count > 1_000


def _nested(table: pd.DataFrame) -> dict[str, Any]:
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


def _same(mine: dict[str, Any], theirs: dict[str, Any], where: tuple[str, str]) -> int:
    pairs = {"calls": "call", "total_cpu_ns": "cpu_time", "max_cpu_ns": "max_cpu_time", "min_cpu_ns": "min_cpu_time"}
    assert {a: mine[a] for a in pairs} == {a: theirs[b] for a, b in pairs.items()}, where
    inners = theirs.get("inners", {})
    assert set(mine["inners"]) == set(inners), where
    return len(pairs) + sum(_same(mine["inners"][name], inners[name], where) for name in inners)


# -- device work: a real file with added kernels; Paddle prints times in ms with two decimals ----------------


@pytest.fixture(scope="session")
def gpu(traces: Path) -> tuple[Trace, Path]:
    folder = traces / "paddle" / "gpu-synthetic"
    return load(folder / "gpu1.pb"), folder / "gpu1_by_3.3.1.summary"


def test_copies_as_recorded(gpu: tuple[Trace, Path]) -> None:
    """Sizes of more than 2 GiB, which are negative in Paddle's JSON, are correct in the protobuf."""
    trace, _ = gpu
    table = table_of(kernels.MEMCPY_VIEW, trace, EVERYTHING)
    copies = table[table["kind"] == "memcpy"]
    assert copies["calls"].sum() == 3
    assert copies["bytes"].sum() > 2**31
    assert table.loc[table["kind"] == "memset", "calls"].sum() == 6


# -- live run: perfkit's handler compared with Paddle's statistics -------------------------------------


@pytest.fixture
def live(paddle: Any, tmp_path: Path) -> Iterator[tuple[Trace, Any]]:
    """Record a convolutional network. Return the trace, and the objects from which Paddle prints its summary."""
    from paddle.profiler.profiler_statistic import StatisticData

    from perfkit_paddle import trace_handler

    found: list[Any] = []

    def keep(profiler: Any) -> None:
        result = profiler.profiler_result
        found.append(StatisticData(result.get_data(), result.get_extra_info()))
        found.append(result)  # keeps the memory of the event types alive

    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(1, 4, 3), paddle.nn.ReLU(), paddle.nn.Flatten(), paddle.nn.Linear(144, 4)
    )
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    handler = trace_handler(tmp_path, also=[keep])
    with paddle.profiler.Profiler(scheduler=(2, 5), on_trace_ready=handler) as profiler:
        for _ in range(5):
            with paddle.profiler.RecordEvent("iteration"):
                net(paddle.randn([2, 1, 8, 8])).square().sum().backward()
                optimizer.step()
                optimizer.clear_grad()
            profiler.step()
    yield load(tmp_path), found[0]
    found.clear()


def test_a_live_run_equals_paddles_numbers(live: tuple[Trace, Any]) -> None:
    """Operators and user labels of a live run equal Paddle's numbers of the same run."""
    trace, statistic = live
    events = statistic.event_summary
    count = rows_equal(operators.table(trace, EVERYTHING), _plain(events.items), "operators")
    count += _children_equal(operator_tree.table(trace, ViewRequest(native=True)), events.items)
    labels = user_annotations.table(trace, EVERYTHING)
    labels = labels[labels["kind"] == "annotation"]
    count += rows_equal(labels, _plain(events.userdefined_items), "labels")
    assert table_of(kernels.VIEW, trace, EVERYTHING).empty
    assert table_of(kernels.MEMCPY_VIEW, trace, EVERYTHING).empty
    print(f"live: {count} numbers equal")
    assert count >= 100


def _children_equal(table: pd.DataFrame, items: dict[str, Any]) -> int:
    """Assert that the direct children of each operator have the same names and numbers."""
    count, operator = 0, ""
    below: dict[str, dict[str, Any]] = {name: {} for name in items}
    for row in table.to_dict("records"):
        operator = row["name"] if row["depth"] == 0 else operator
        if row["depth"] == 1:
            below[operator][row["name"]] = row
    for name, item in items.items():
        assert sorted(below[name]) == sorted(item.operator_inners), name
        for inner, numbers in item.operator_inners.items():
            for key, column in list(MEASURES.items())[:4]:
                assert below[name][inner][column] == getattr(numbers, key), (name, inner, key)
                count += 1
    assert count > 50
    return count


def _plain(items: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {name: {key: getattr(item, key) for key in MEASURES} for name, item in items.items()}
