"""With ``native``, every number of the views overview, model, device and distributed equals Paddle's number.

There are three comparisons: with the raw integers of every recorded CPU workload; with every printed table of these
workloads and of the profile with device work, as strings; and, in a live run, with the objects from which Paddle
prints.
"""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import distributed
from perfkit_core.views.devices import device
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import overview, step_phases

NATIVE = ViewRequest(native=True)
PHASE = {"ProfileStep": "step", "Dataloader": "dataloader", "Forward": "forward", "Backward": "backward",
         "Optimization": "optimizer", "Others": "other"}  # fmt: skip
COLUMNS = {"call": "calls", "cpu_time": "total_cpu_ns", "max_cpu_time": "max_cpu_ns", "min_cpu_time": "min_cpu_ns",
           "gpu_time": "total_device_ns", "max_gpu_time": "max_device_ns", "min_gpu_time": "min_device_ns"}  # fmt: skip


def _sources(traces: Path) -> Iterator[tuple[str, Path, Path]]:
    """Return name, profile and Paddle's printed tables of each recording."""
    for folder in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.summary")):
        (source,) = folder.parent.glob(f"{folder.name.removesuffix('.summary')}.pb*")
        yield f"{folder.parent.name}/{folder.name}", source, folder
    synthetic = traces / "paddle" / "gpu-synthetic"
    yield "gpu-synthetic", synthetic / "gpu1.pb", synthetic / "gpu1_by_3.3.1.summary"


@pytest.fixture(scope="module")
def sources(traces: Path) -> dict[str, tuple[Trace, Path]]:
    return {name: (load(source), folder) for name, source, folder in _sources(traces)}


# -- raw integers --------------------------------------------------------------------------------------------------


def test_model_overview_and_distributed_as_integers(traces: Path) -> None:
    count = 0
    for path in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.stats.json.gz")):
        (source,) = path.parent.glob(f"{path.name.removesuffix('.stats.json.gz')}.pb*")
        trace, stats = load(source), json.loads(gzip.decompress(path.read_bytes()))
        count += model_equal(trace, stats["model"], stats["CPUTimeRangeSum"]["ProfileStep"])
        count += overview_equal(trace, stats["CPUTimeRangeSum"], stats["call_times"], stats["model"])
        assert stats["distributed"]["cpu_calls"] == 0
        assert table_of(distributed.VIEW, trace, NATIVE).empty
        count += 1
    print(f"{count} integers equal")
    assert count > 450


def model_equal(trace: Trace, items: dict[str, dict[str, Any]], step_ns: int) -> int:
    """Assert that every number of the Model Summary is equal. Others has the number that Paddle prints."""
    table = step_phases.table(trace, NATIVE).set_index("phase")
    assert set(table.index) == {PHASE[name] for name in items} | {"other"}
    for name, numbers in items.items():
        for key, column in COLUMNS.items():
            assert table.loc[PHASE[name], column] == numbers[key], (name, key)
    phases = [numbers for name, numbers in items.items() if name != "ProfileStep"]
    assert table.loc["other", "total_cpu_ns"] == step_ns - sum(numbers["cpu_time"] for numbers in phases)
    kernels = items["ProfileStep"]["gpu_time"] - sum(numbers["gpu_time"] for numbers in phases)
    assert table.loc["other", "total_device_ns"] == kernels
    return len(items) * len(COLUMNS) + 2


def overview_equal(trace: Trace, times: dict[str, int], calls: dict[str, int], items: dict[str, dict[str, Any]]) -> int:
    """Assert that the host rows of the Overview Summary are equal. The phases are those of the Model Summary, and
    Communication is not one of them."""
    table = table_of(overview.VIEW, trace, NATIVE)
    table = table[(table["place"] == "host") & (table["category"] != "Communication")].set_index("category")
    for name in set(items) - {"ProfileStep"}:
        times, calls = times | {name: items[name]["cpu_time"]}, calls | {name: items[name]["call"]}
    expected = {name: (times[name], calls[name]) for name in times if name != "Communication"}
    assert {name: (row["time_ns"], row["calls"]) for name, row in table.iterrows()} == expected
    return 2 * len(expected)


# -- printed tables ------------------------------------------------------------------------------------------------


def test_default_views_of_the_same_profile(sources: dict[str, tuple[Trace, Path]]) -> None:
    """The synthetic device work overlaps on two streams, so unions are shorter than sums. One kernel of 5 µs has no
    host event around its launch. perfkit counts this kernel."""
    trace, _ = sources["gpu-synthetic"]
    ours, theirs = (step_phases.table(trace, request).set_index("phase") for request in (ViewRequest(), NATIVE))
    assert ours.loc["step", "total_device_ns"] < theirs.loc["step", "total_device_ns"]
    mine, native = (
        device.table(trace, request).set_index("device").loc["cuda:0"] for request in (ViewRequest(), NATIVE)
    )
    assert mine["kernels"] == native["kernels"] + 1
    assert mine["busy_ns"] == native["busy_ns"] + 5000


# -- live run ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def live(paddle: Any, tmp_path: Path) -> Iterator[tuple[Trace, Any]]:
    """Record two threads that are in Forward at the same time, a communication event, and an operator whose name only
    resembles communication."""
    from paddle.profiler.profiler_statistic import StatisticData

    from perfkit_paddle import trace_handler

    found: list[Any] = []

    def keep(profiler: Any) -> None:
        result = profiler.profiler_result
        found.append(StatisticData(result.get_data(), result.get_extra_info()))
        found.append(result)  # keeps the memory of the event types alive

    handler = trace_handler(tmp_path, also=[keep])
    with paddle.profiler.Profiler(scheduler=(2, 5), on_trace_ready=handler) as profiler:
        _train(paddle, profiler, steps=5)
    yield load(tmp_path), found[0]
    found.clear()
    del profiler
    gc.collect()


def _train(paddle: Any, profiler: Any, steps: int) -> None:
    net, other = paddle.nn.Linear(8, 4), paddle.nn.Linear(8, 4)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    loader = paddle.io.DataLoader(paddle.io.TensorDataset([paddle.randn([2 * steps, 8])]), batch_size=2)
    event_type = paddle.base.core.TracerEventType.Communication
    for (batch,) in loader:
        thread = threading.Thread(target=lambda batch=batch: other(batch))
        thread.start()
        net(batch).square().sum().backward()
        thread.join()
        exchange = paddle.base.core._RecordEvent("exchange", event_type)  # as in Paddle's collectives
        paddle.broadcast_tensors([paddle.ones([2, 1]), paddle.ones([1, 3])])
        exchange.end()
        paddle.broadcast_tensors([paddle.ones([2, 1]), paddle.ones([1, 3])])
        optimizer.step()
        optimizer.clear_grad()
        profiler.step()


def statistic_equal(trace: Trace, statistic: Any) -> int:
    """Assert that every number of the four tables equals the objects from which Paddle prints."""
    times, events = statistic.time_range_summary, statistic.event_summary
    items = {
        name: {key: getattr(item, key) for key in COLUMNS} for name, item in events.model_perspective_items.items()
    }
    ranges = {kind.name: ns for kind, ns in times.CPUTimeRangeSum.items()}
    calls = {kind.name: number for kind, number in times.call_times.items()}
    count = model_equal(trace, items, ranges["ProfileStep"]) + overview_equal(trace, ranges, calls, items)
    count += distributed_equal(trace, statistic.distributed_summary, ranges["ProfileStep"])
    return count + devices_equal(trace, times, calls, ranges["ProfileStep"])


def distributed_equal(trace: Trace, theirs: Any, step_ns: int) -> int:
    table = table_of(distributed.VIEW, trace, NATIVE).set_index("part")
    expected = {"communication": theirs.communication_range, "computation": theirs.computation_range}
    for part, found in (expected | {"overlap": theirs.overlap_range}).items():
        assert table.loc[part, "time_ns"] == _length(found), part
    assert table.loc["step", "time_ns"] == step_ns
    assert table.loc["communication", "host_calls"] == theirs.cpu_calls > 0
    assert table.loc["communication", "device_calls"] == theirs.gpu_calls
    rows = table_of(overview.VIEW, trace, NATIVE).set_index(["category", "place"])
    sides = {"host": (theirs.cpu_calls, theirs.cpu_communication_range)}
    sides |= {"device": (theirs.gpu_calls, theirs.gpu_communication_range)} if theirs.gpu_calls else {}
    for place, (calls, found) in sides.items():
        assert rows.loc[("Communication", place), ["calls", "time_ns"]].tolist() == [calls, _length(found)]
    return 6 + 2 * len(sides)


def devices_equal(trace: Trace, times: Any, calls: dict[str, int], step_ns: int) -> int:
    """Assert that the device rows of the overview and the denominator of the utilisation are equal, for one device."""
    table = table_of(overview.VIEW, trace, NATIVE)
    table = table[(table["place"] == "device") & (table["category"] != "Communication")].set_index("category")
    theirs = {
        kind.name: ns for device_id in times.GPUTimeRangeSum for kind, ns in times.GPUTimeRangeSum[device_id].items()
    }
    assert table["time_ns"].to_dict() == theirs
    assert table["calls"].to_dict() == {name: calls[name] for name in theirs}
    if theirs:
        row = device.table(trace, NATIVE).set_index("device").loc["cuda:0"]
        assert row[["kernels", "busy_ns", "span_ns"]].tolist() == [calls["Kernel"], theirs["Kernel"], step_ns]
    return 2 * len(theirs) + 3 * bool(theirs)


def _length(ranges: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


def test_a_live_run_equals_paddles_numbers(live: tuple[Trace, Any]) -> None:
    trace, statistic = live
    count = statistic_equal(trace, statistic)
    assert statistic.distributed_summary.cpu_calls == 3 + 6  # the communication event, and every broadcast_tensors
    print(f"live: {count} numbers equal")
    assert count > 50


def test_profile_with_device_work_as_integers(paddle: Any, sources: dict[str, tuple[Trace, Path]]) -> None:
    """Paddle reads the profile and computes its statistics."""
    from paddle.profiler.profiler_statistic import StatisticData

    trace, _ = sources["gpu-synthetic"]
    result = paddle.profiler.load_profiler_result(trace.meta.source)
    count = statistic_equal(trace, StatisticData(result.get_data(), result.get_extra_info()))
    print(f"with device work: {count} numbers equal")
    assert count > 70


def test_default_views_of_the_live_run(live: tuple[Trace, Any]) -> None:
    """Only the communication event counts as communication, and the rest of the step is never negative."""
    trace, _ = live
    table = table_of(distributed.VIEW, trace, ViewRequest()).set_index("part")
    assert table.loc["communication", "host_calls"] == 3
    exchange = trace.ints("dur_ns")[trace.rows("name", "exchange")]
    assert table.loc["communication", "time_ns"] == exchange.sum()
    assert step_phases.table(trace, ViewRequest()).set_index("phase").loc["other", "total_cpu_ns"] >= 0
