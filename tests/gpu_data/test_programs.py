"""What each recorded training does on the device (benchmarks/gpu/programs.py), as perfkit shows it."""

from __future__ import annotations

from collections import Counter

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.replay.waits import waits_for_unrecorded_events
from perfkit_core.views.communication import collectives, distributed
from perfkit_core.views.devices import kernels
from perfkit_core.views.memory import memory_blocks, memory_pools
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import input_pipeline
from tests.support.gpu_data import PROGRAMS, file, live, native, native_steps, of, union
from tests.support.kineto_events import read_again

ALL = ViewRequest()
STEPS = [18, 19, 20, 21]
MIB = 1 << 20


@pytest.mark.parametrize("name", PROGRAMS)
def test_live_and_exported_steps_are_equal(name: str) -> None:
    for trace in (live(name), file(name)):
        assert trace.ints("step")[trace.host & trace.rows("kind", "step")].tolist() == STEPS


def test_a_graph_is_one_launch() -> None:
    """The graph of a step is launched by one call; the new batch is a kernel and a copy of 64 × 256 floats."""
    table = read_again("graphs").events.to_pylist()
    launches = [at for at, row in enumerate(table) if row["name"] == "cudaGraphLaunch"]
    assert [table[at]["step"] for at in launches] == STEPS
    replayed = [row for row in table if row["launched_by"] in launches]
    without_id = [event for event in of("graphs", "kernel", "gpu_memset") if "External id" not in event.args]
    assert len(replayed) == len(without_id) == 4 * 45
    assert Counter(row["step"] for row in replayed) == dict.fromkeys(STEPS, 45)
    (copy,) = table_of(kernels.MEMCPY_VIEW, file("graphs"), ALL).query("kind == 'memcpy'").to_dict("records")
    assert (copy["copy_kind"], copy["calls"], copy["bytes"]) == ("DtoD", 4, 4 * 64 * 256 * 4)


@pytest.mark.parametrize("name", ["streams", "streams-sync-events"])
def test_kernels_are_on_both_streams(name: str) -> None:
    """Twelve kernels of a step on each stream, and a sum."""
    table = read_again(name).events.to_pylist()
    kernels = Counter((row["stream"], row["step"]) for row in table if row["kind"] == "kernel")
    other = {event.args["stream"] for event in of(name, "kernel")} - {7}
    assert kernels == {(stream, step): 12 + (stream == 7) for stream in (7, *other) for step in STEPS}
    assert len(other) == 1


@pytest.mark.parametrize(("name", "count"), [("streams", 12), ("streams-sync-events", 0)])
def test_waits_of_streams(name: str, count: int) -> None:
    """Three calls of a step let a stream wait for an event. A trace with ``enable_cuda_sync_events`` says for which."""
    calls = [event for event in native(name) if event.name == "cudaStreamWaitEvent"]
    inside = [call for call in calls if any(s.start <= call.start < s.end for s in native_steps(name))]
    assert len(inside) == 12
    assert waits_for_unrecorded_events(file(name)) == count


@pytest.mark.parametrize(("name", "call"), [("item", "cudaStreamSynchronize"), ("streams", "cudaEventSynchronize")])
def test_each_step_synchronises_once(name: str, call: str) -> None:
    """One call of a step waits, and the profiler waits for the device at its end."""
    for program in (name, f"{name}-sync-events"):
        table = [row for row in read_again(program).events.to_pylist() if row["kind"] == "sync"]
        host = [(row["name"], row["step"]) for row in table if row["device"] == "cpu"]
        assert sorted(host, key=str) == [("cudaDeviceSynchronize", None), *((call, step) for step in STEPS)]
        recorded = Counter(row["name"] for row in table if row["device"] != "cpu")
        assert recorded == Counter(event.name for event in of(program, "cuda_sync"))
        assert bool(recorded) == (program != name)


def test_copies_of_each_direction_equal_the_file() -> None:
    """4 MiB in each of four directions and memories, and within the device, once in a step."""
    table = table_of(kernels.MEMCPY_VIEW, file("copies"), ALL).set_index("copy_kind")
    kinds = {"HtoD pageable": "HtoD (Pageable", "HtoD pinned": "HtoD (Pinned", "DtoD": "DtoD",
             "DtoH pageable": "DtoH (Device -> Pageable", "DtoH pinned": "DtoH (Device -> Pinned"}  # fmt: skip
    assert set(table.index) == set(kinds)
    for kind, word in kinds.items():
        events = [event for event in of("copies", "gpu_memcpy") if word in event.name]
        row, time = table.loc[kind], sum(event.end - event.start for event in events)
        assert (row["calls"], row["bytes"], row["total_device_ns"]) == (4, 16 * MIB, time)
        assert sum(event.args["bytes"] for event in events) == 16 * MIB
        assert row["bytes_per_s"] == pytest.approx(16 * MIB / time * 1e9, abs=1)
    pipeline = input_pipeline.table(file("copies"), ALL)
    assert pipeline["copied_bytes"].tolist() == [8 * MIB] * 4
    assert table_of(kernels.MEMCPY_VIEW, read_again("copies"), ALL)["bytes"].isna().all(), "events() has no bytes"


def test_item_copies_four_bytes() -> None:
    """torch copies the number to pinned memory."""
    assert {event.name for event in of("item", "gpu_memcpy")} == {"Memcpy DtoH (Device -> Pinned)"}
    (row,) = table_of(kernels.MEMCPY_VIEW, file("item"), ALL).query("kind == 'memcpy'").to_dict("records")
    assert (row["copy_kind"], row["calls"], row["bytes"]) == ("DtoH pinned", 4, 4 * 4)


def test_memory_grows() -> None:
    """Each step keeps a hidden layer: 256 × 512 floats, made by relu. The totals are those of torch's allocator."""
    trace = file("memory-growth")
    events = sorted((e for e in native("memory-growth") if e.name == "[memory]"), key=lambda event: event.start)
    (place,) = memory_pools.places_table(trace, ALL).to_dict("records")
    totals = [event.args["Total Allocated"] for event in events]
    assert (place["start_bytes"], place["peak_bytes"], place["end_bytes"]) == (
        totals[0] - events[0].args["Bytes"], max(totals), totals[-1],
    )  # fmt: skip
    assert place["growth_bytes"] == sum(event.args["Bytes"] for event in events) == 4 * 256 * 512 * 4
    assert place["peak_reserved_bytes"] == max(event.args["Total Reserved"] for event in events)
    (leak,) = memory_blocks.leaks_table(trace, ALL).to_dict("records")
    assert (leak["name"], leak["avg_step_bytes"]) == ("aten::relu", 256 * 512 * 4)
    assert memory_pools.steps_table(trace, ALL)["growth_bytes"].tolist() == [256 * 512 * 4] * 4


def test_one_process_with_nccl() -> None:
    """NCCL launches no kernel for one process, so only the calls of the host are communication, and no collective has a
    duration on the device."""
    trace = file("collectives")
    assert list(trace.meta.ranks) == [0]
    assert not any("nccl" in event.name.lower() for event in of("collectives", "kernel"))
    assert table_of(collectives.VIEW, trace, ALL).empty
    calls = [event.span for event in of("collectives", "cpu_op", "user_annotation")
             if event.name in ("c10d::allreduce_", "nccl:all_reduce")]  # fmt: skip
    table = table_of(distributed.VIEW, trace, ALL).set_index("part")
    assert table.loc["communication", "host_calls"] == len(calls) / 2 == 8
    assert table.loc["communication", "device_calls"] == 0
    assert table.loc["communication", "time_ns"] == union(calls)
