"""Memory views compared with key_averages(), with torch's memory timeline, and with replays of real GPU recordings."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.views.memory import memory, memory_blocks, memory_pools

EVERYTHING = ViewRequest()
GPU = ["h100-bert-small", "h100-vit", "h100-qwen05b", "mi300x-bert-small", "mi300x-vit", "mi300x-qwen05b"]


@pytest.fixture
def profiled() -> Callable[..., Any]:
    """Return the profiler of a small training with memory events."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")
    from tests.support.torch_models import MODELS

    def run(name: str, **options: Any) -> Any:
        torch.manual_seed(0)
        net, batch = MODELS[name]()
        optimizer = torch.optim.Adam(net.parameters())
        with torch.profiler.profile(profile_memory=True, **options) as profiler:
            for _ in range(2):
                net(batch).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        return profiler

    return run


@pytest.mark.parametrize("model", ["mlp", "conv", "transformer"])
def test_memory_of_each_operator_is_that_of_key_averages(
    profiled: Callable[..., Any], tmp_path: Path, model: str
) -> None:
    """The self CPU memory of every row is equal, also of the row [memory], which has the events outside every host
    event."""
    profiler = profiled(model, record_shapes=True)
    native = {row.key: row.self_cpu_memory_usage for row in profiler.key_averages() if row.self_cpu_memory_usage}
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    table = memory.table(load(tmp_path / "trace.json"), EVERYTHING)
    mine = {row["name"]: row["increase_bytes"] for row in table.to_dict("records") if row["increase_bytes"]}
    if "[memory]" in native:
        native["(outside host events)"] = native.pop("[memory]")
    assert mine == native
    assert len(mine) >= 8


FREED_BETWEEN_CYCLES = """
import sys
import torch
from perfkit_torch import trace_handler

schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=3)
handler = trace_handler(sys.argv[1])
with torch.profiler.profile(schedule=schedule, profile_memory=True, on_trace_ready=handler) as profiler:
    for step in range(9):
        if step % 3 == 2:
            if step == 2:
                long = torch.empty(512 << 10, dtype=torch.uint8)
            short = torch.empty(1 << 20, dtype=torch.uint8)
            if step == 8:
                del long
        else:
            short = None
        profiler.step()
"""


def test_frees_between_cycles_do_not_raise_the_peak(tmp_path: Path) -> None:
    """Each cycle allocates 1 MiB that is freed after it, where torch records nothing. One block of 512 KiB lives from
    the first cycle to the last. In a process of its own, because torch's total begins with what an earlier profiler of
    the process left."""
    pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")
    subprocess.run([sys.executable, "-c", FREED_BETWEEN_CYCLES, tmp_path], check=True, capture_output=True)
    trace = load(tmp_path)
    recorded = trace.ints("total_bytes", -1)[trace.rows("kind", "memory")]
    assert recorded.max() == (3 << 20) + (512 << 10)  # torch's own total
    (place,) = memory_pools.places_table(trace, EVERYTHING).to_dict("records")
    assert (place["start_bytes"], place["peak_bytes"], place["end_bytes"]) == (0, 3 << 19, 1 << 20)
    levels = memory_pools.curve_table(trace, EVERYTHING)["allocated_bytes"].tolist()
    assert levels == [0, 1 << 19, 3 << 19, 3 << 19, 3 << 19, 1 << 20]
    (row,) = memory_blocks.peak_table(trace, EVERYTHING).to_dict("records")
    assert (row["name"], row["blocks"], row["bytes"]) == ("aten::empty", 2, 3 << 19)


@pytest.mark.parametrize("model", ["mlp", "conv", "transformer"])
def test_peak_is_that_of_torchs_own_timeline(profiled: Callable[..., Any], tmp_path: Path, model: str) -> None:
    """torch tracks tensors, and perfkit tracks blocks. The numbers of allocations and frees and the bytes at the peak
    are equal."""
    profiler = profiled(model, record_shapes=True, with_stack=True)
    level = best = made = freed = 0
    for _, action, _, size in profiler._memory_profile().timeline:
        made += action.name == "CREATE"
        freed += action.name == "DESTROY"
        level += {"CREATE": size, "DESTROY": -size}.get(action.name, 0)
        best = max(best, level)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = load(tmp_path / "trace.json")
    (row,) = memory_pools.places_table(trace, EVERYTHING).to_dict("records")
    assert (row["allocations"], row["frees"]) == (made, freed)
    assert (row["peak_growth_bytes"], row["growth_bytes"]) == (best, level)
    alive = memory_blocks.peak_table(trace, EVERYTHING)
    assert alive["bytes"][alive["blocks"].notna()].sum() == best
    assert made > 100


def recorded(path: Path) -> list[dict[str, Any]]:
    """Return the memory events of a file in the order of their times, read without perfkit."""
    events = json.loads(gzip.decompress(path.read_bytes()))
    events = events["traceEvents"] if isinstance(events, dict) else events
    return sorted((e for e in events if e.get("name") == "[memory]"), key=lambda event: float(event["ts"]))


def host_device(event: dict[str, Any]) -> bool:
    return int(event["args"]["Device Id"]) < 0


@pytest.mark.parametrize("name", GPU)
def test_a_real_gpu_recording_equals_a_replay_of_its_events(traces: Path, name: str) -> None:
    """Allocations, frees, levels, the curve and the blocks at the peak are compared event by event."""
    path = traces / "torch" / f"{name}.json.gz"
    events = [event["args"] for event in recorded(path) if not host_device(event)]
    live: dict[int, int] = {}
    start = events[0]["Total Allocated"] - events[0]["Bytes"]
    best, alive = start, (0, 0)
    for event in events:
        if event["Bytes"] > 0:
            live[event["Addr"]] = event["Bytes"]
        else:
            assert live.pop(event["Addr"]) == -event["Bytes"]
        if event["Total Allocated"] > best:
            best, alive = event["Total Allocated"], (len(live), sum(live.values()))
    trace = load(path)
    (row,) = memory_pools.places_table(trace, ViewRequest(device="cuda")).to_dict("records")
    assert row["allocations"] == sum(event["Bytes"] > 0 for event in events)
    assert row["frees"] == sum(event["Bytes"] < 0 for event in events)
    assert (row["start_bytes"], row["peak_bytes"], row["end_bytes"]) == (start, best, events[-1]["Total Allocated"])
    assert row["peak_reserved_bytes"] == max(event["Total Reserved"] for event in events)
    at_peak = max(events, key=lambda event: event["Total Allocated"])  # the first of equal levels
    assert row["fragmentation_bytes"] == at_peak["Total Reserved"] - best
    assert row["fragmentation_ratio"] == pytest.approx(1 - best / at_peak["Total Reserved"])
    table = memory_blocks.peak_table(trace, ViewRequest(device="cuda"))
    table = table[table["device"] == "cuda:0"].set_index("name")
    known = table[table["blocks"].notna()]
    assert (known["blocks"].sum(), known["bytes"].sum()) == alive
    assert table.loc["(allocated before the recording)", "bytes"] == best - alive[1]
    levels = memory_pools.curve_table(trace, EVERYTHING)
    levels = levels[levels["device"] == "cuda:0"][1:]
    assert levels["allocated_bytes"].tolist() == [event["Total Allocated"] for event in events]
    assert levels["reserved_bytes"].tolist() == [event["Total Reserved"] for event in events]
    assert memory_pools.checks_table(trace, EVERYTHING)["unexplained_changes"].tolist() == [0] * trace_devices(path)


def trace_devices(path: Path) -> int:
    return len({host_device(event) for event in recorded(path)})


def test_an_older_recording_without_totals_and_addresses(traces: Path) -> None:
    """Sums and growth are known. Levels are unknown, and blocks cannot be matched."""
    path = traces / "torch" / "pairs" / "resnet50-workers0.json.gz"
    sizes = [int(event["args"]["Bytes"]) for event in recorded(path) if not host_device(event)]
    trace = load(path)
    (row,) = memory_pools.places_table(trace, ViewRequest(device="cuda")).to_dict("records")
    level = highest = 0
    for size in sizes:
        level += size
        highest = max(highest, level)
    assert (row["growth_bytes"], row["peak_growth_bytes"]) == (level, highest)
    assert pd.isna(row["start_bytes"])
    assert pd.isna(row["peak_bytes"])
    assert memory_blocks.peak_table(trace, EVERYTHING).empty
    table = memory.table(trace, ViewRequest(device="cuda"))
    assert table["allocated_bytes"].sum() == sum(size for size in sizes if size > 0)
    assert table["freed_bytes"].sum() == -sum(size for size in sizes if size < 0)
