"""Times and memory of operators, ranges and device work equal torch's ``key_averages()`` of the same profile.

torch adds times as floats in µs. A sum of some thousand such numbers is exact to far less than 1 ns, so it is rounded
to ns and compared exactly."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import kernels
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import annotations, operators
from perfkit_core.views.operators.operators import span_table
from tests.support.gpu_data import DEVICE_WORK, PROGRAMS, averages, file, of
from tests.support.kineto_events import read_again

COLUMNS = {
    "calls": "count", "self_cpu_ns": "self_cpu_time_total", "total_cpu_ns": "cpu_time_total",
    "self_device_ns": "self_device_time_total", "total_device_ns": "device_time_total",
    "self_cpu_bytes": "self_cpu_memory_usage", "total_cpu_bytes": "cpu_memory_usage",
    "self_device_bytes": "self_device_memory_usage", "total_device_bytes": "device_memory_usage",
}  # fmt: skip
TIMES = list(COLUMNS)[:5]
NATIVE = ViewRequest(native=True)
WAITING = ("aten::_local_scalar_dense", "aten::item", "ProfilerStep*")
KINDS = {
    "Memcpy HtoD (Pageable -> Device)": "HtoD pageable", "Memcpy HtoD (Pinned -> Device)": "HtoD pinned",
    "Memcpy DtoH (Device -> Pageable)": "DtoH pageable", "Memcpy DtoH (Device -> Pinned)": "DtoH pinned",
    "Memcpy DtoD (Device -> Device)": "DtoD",
}  # fmt: skip


def theirs(name: str, device: str) -> pd.DataFrame:
    """Return torch's rows of the host or the device, as integers in ns and bytes."""
    rows = []
    for row in averages(name):
        if row["device_type"] == device and row["key"] != "[memory]":
            numbers = {mine: row[its] for mine, its in COLUMNS.items()}
            rows.append({"name": row["key"]} | {key: round(value * 1000) if key.endswith("_ns") else value
                                                for key, value in numbers.items()})  # fmt: skip
    return pd.DataFrame(rows).groupby("name").sum().sort_index()


def ours(trace: Trace) -> pd.DataFrame:
    spans = [operators.table(trace, NATIVE), annotations.table(trace, NATIVE)]
    for kinds in (("step",), ("runtime", "sync")):
        spans.append(span_table(trace, NATIVE, trace.host & trace.rows("kind", *kinds), "kind"))
    table = pd.concat(spans)
    table["name"] = table["name"].astype(str).str.replace(r"^ProfilerStep#\d+$", "ProfilerStep*", regex=True)
    return table.groupby("name")[list(COLUMNS)].sum().sort_index()


def without_ids(name: str) -> int:
    """Return the time of device work without the id of an operator, which torch gives to no row of the host."""
    return sum(event.end - event.start for event in of(name, *DEVICE_WORK) if "External id" not in event.args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_the_host(name: str) -> None:
    """Three rows differ in one program: a collective ends on another thread, so torch does not nest it. Work of a
    replayed graph has no operator: perfkit gives it to the step in which the graph was launched, torch to no row. torch
    counts a wait for a stream as device time of the operator that waits."""
    mine, its = ours(read_again(name)), theirs(name, "CPU")
    assert list(mine.index) == list(its.index)
    if name == "graphs":
        its.loc["ProfilerStep*", ["self_device_ns", "total_device_ns"]] += without_ids(name)
    waits = sum(event.end - event.start for event in of(name, "cuda_sync") if event.name == "Stream Sync")
    its.loc[[row for row in WAITING if waits], "total_device_ns"] -= waits
    its.loc[[row for row in WAITING[:1] if waits], "self_device_ns"] -= waits
    different = mine[TIMES].astype("int64").compare(its[TIMES].astype("int64"))
    if name == "collectives":
        assert list(different.index) == ["ProfilerStep*", "nccl:all_reduce", "record_param_comms"]
        assert set(different.columns.get_level_values(0)) == {"self_cpu_ns"}
    else:
        assert different.empty, different.to_string()
    assert without_ids(name) == 0 or name == "graphs"
    assert its["self_device_ns"].sum() > 0


def test_memory() -> None:
    """The program that grows was recorded with memory."""
    mine, its = ours(read_again("memory-growth")), theirs("memory-growth", "CPU")
    columns = list(COLUMNS)[5:]
    different = mine[columns].fillna(0).astype("int64").compare(its[columns].astype("int64"))
    assert different.empty, different.to_string()
    assert its["self_device_bytes"].abs().sum() > 1_000_000


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_the_device(name: str) -> None:
    """Calls and time of each kernel and each kind of copy. Ranges and records of synchronisation are also rows of
    torch's device, but no device work."""
    trace = file(name)
    work = table_of(kernels.VIEW, trace, ViewRequest()).groupby("name", observed=True)
    mine = {key: (int(row["calls"]), int(row["total_device_ns"])) for key, row in
            work[["calls", "total_device_ns"]].sum().iterrows()}  # fmt: skip
    copies = table_of(kernels.MEMCPY_VIEW, trace, ViewRequest())
    mine |= {
        (row["kind"], row["copy_kind"]): (row["calls"], row["total_device_ns"]) for row in copies.to_dict("records")
    }
    ranges = {re.sub(r"^ProfilerStep#\d+$", "ProfilerStep*", event.name) for event in of(name, "gpu_user_annotation")}
    its: Counter[Any] = Counter()
    calls: Counter[Any] = Counter()
    for row in averages(name):
        key = row["key"]
        if row["device_type"] != "CUDA" or key in ranges or key.endswith((" Sync", " Wait Event")):
            continue
        if key.startswith("Mem"):
            key = ("memset", None) if key.startswith("Memset") else ("memcpy", KINDS[key])
        its[key] += round(row["self_device_time_total"] * 1000)
        calls[key] += row["count"]
    found = {key: (calls[key], its[key]) for key in its}
    assert {str(key): value for key, value in mine.items()} == {str(key): value for key, value in found.items()}
