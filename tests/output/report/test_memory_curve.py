"""The curve of memory over time keeps every peak. The expected values are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.output.report import pictures
from perfkit_core.output.report.pictures import memory_section
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import memory_pools
from tests.support.events import host, trace


def memory(start: int, size: int, total: int | None = None, place: str = "cuda:0") -> dict[str, object]:
    more = {"bytes": size, "address": start, "device": place, "total_bytes": total}
    return {**host("[memory]", "memory", start, 0), **more}


def run() -> Trace:
    """Return a trace with 100 bytes at first, 40 more bytes for 2 ns in the middle of the first interval, and then 10
    bytes less."""
    return trace([memory(0, 100, 100), memory(41, 40, 140), memory(43, -40, 100), memory(400, -10, 90)])


def test_a_peak_between_two_points_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "STRETCHES", 4)
    table = memory_section(run()).table
    assert table["time_ns"].tolist() == [100, 200, 300, 400]
    assert table["cuda:0_bytes"].tolist() == [140, 100, 100, 100]


def test_without_recorded_totals_it_is_the_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "STRETCHES", 2)
    table = memory_section(trace([memory(0, 8), memory(10, 8), memory(20, -8)])).table
    assert table["cuda:0 growth_bytes"].tolist() == [16, 16]


def test_without_memory_events_it_says_so() -> None:
    section = memory_section(trace([host("op", "operator", 0, 10)]))
    assert section.table.empty
    assert section.empty == "no memory events were recorded"


@pytest.mark.parametrize("file", ["torch/h100-vit.json.gz", "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.json.gz"])
def test_the_highest_point_is_the_peak_of_the_recording(traces: Path, file: str) -> None:
    found = perfkit_core.load(traces / file)
    events = memory_pools.curve_table(found, ViewRequest())
    table = memory_section(found).table
    for device, of_device in events.groupby("device", observed=True):
        (column,) = (name for name in table.columns if name.startswith(str(device)))
        level = "growth_bytes" if "growth" in column else "allocated_bytes"
        assert table[column].max() == of_device[level].max()
