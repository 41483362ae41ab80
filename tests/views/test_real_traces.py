"""Views of all real traces: parts sum to their steps, totals equal sums computed from times alone, and nearly all time
has a family of operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from perfkit_core.api import summarize
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.load import load
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.schema import COMMUNICATION, DEVICE_WORK, OPERATOR, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.builtin import VIEWS
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.operators.families import event_families
from perfkit_core.views.steps import steps
from perfkit_core.views.steps.partition import ON_DEVICE, ON_HOST
from tests.support.tables import view_table

OPERATORS_AT_LEAST = 0.99
KERNELS_AT_LEAST = 0.98
THREAD = ["rank", "pid", "tid"]


def test_every_torch_trace(torch_file: Path) -> None:
    check(load(torch_file))


def test_every_paddle_trace(paddle_file: Path) -> None:
    check(load(paddle_file))


def test_all_recordings_are_looked_at(traces: Path) -> None:
    """Without this test, an empty folder would pass."""
    assert len(list((traces / "torch").rglob("*.json*"))) > 30
    assert len(list((traces / "paddle").rglob("*.pb*"))) > 20


def check(trace: Trace) -> None:
    check_partition(trace)
    check_step_trace(trace)
    check_layers(trace)
    check_fluid_report(trace)
    check_families(trace)


def check_partition(trace: Trace) -> None:
    table = view_table("partition", trace, by=("step",))
    columns = [f"{name}_ns" for name in (ON_DEVICE if "device_compute_ns" in table else ON_HOST)]
    assert (table[columns] >= 0).all(axis=None)
    assert table[columns].sum(axis=1).tolist() == table["dur_ns"].tolist()
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK))
    devices = np.unique(np.stack([trace.ints("rank")[work], trace.codes("device").codes[work]]), axis=1)[0]
    if len(table) and len(devices) and len(np.unique(devices)) == len(devices):
        check_account(trace, table)


def check_account(trace: Trace, partition: pd.DataFrame) -> None:
    """The partition rolls up the account of causes, but for communication on the host, which comes first in it."""
    words = view_table("causes", trace, by=("rank", "step")).query("depth == 0")
    total_ns = words.pivot_table("total_ns", ["rank", "step"], "cause", "sum", 0, dropna=False)
    partition = partition.set_index(["rank", "step"])
    of_step = total_ns.reindex(partition.index, fill_value=0)
    assert of_step.sum(axis=1).tolist() == partition["dur_ns"].tolist()
    if not communication(trace).host.any():
        for word, category in (("compute", "device_compute"), ("communication", "exposed_communication"),
                               ("copy", "exposed_copy")):  # fmt: skip
            expected = partition[f"{category}_ns"]
            measured = of_step.get(word, expected * 0)[expected.notna()]
            assert measured.tolist() == expected.dropna().tolist()


def check_step_trace(trace: Trace) -> None:
    table = view_table("step_trace", trace, by=("step",))
    known = table[table["interval_ns"].notna()]
    parts = known[[part.name for part in steps.TRACE_PARTS]]
    assert parts.sum(axis=1).tolist() == known["dur_ns"].tolist()
    assert (parts >= 0).all(axis=None)
    assert len(known) == len(table) or table.loc[table["interval_ns"].isna(), "missing"].notna().all()


def check_layers(trace: Trace) -> None:
    """Compare the sums of the layers with counts over the events that ignore layers."""
    table = view_table("modules", trace)
    if table.empty:
        assert trace.codes("module").codes.max(initial=-1) < 0
        return
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    inside = nesting.nearest_on_path(trace.ints("parent"), operator) >= 0
    roots = table[table["depth"] == 0]
    assert int(table["self_cpu_ns"].sum()) == int(trace.ints("self_ns", 0)[inside].sum())
    assert int(roots["total_cpu_ns"].sum()) == int(table["self_cpu_ns"].sum())
    device_ns = int(trace.ints("dur_ns")[trace.rows("kind", *DEVICE_WORK)].sum())
    assert int(roots["total_device_ns"].fillna(0).sum()) == device_ns
    assert int(roots["occurrence"].sum()) == int((operator & ~np.append(inside, False)[trace.ints("parent")]).sum())
    assert table["module"].dropna().is_unique


def check_fluid_report(trace: Trace) -> None:
    for view in (view for view in VIEWS if view.group == "fluid"):
        check_view(view, trace)
    host, device = outermost(trace.to_pandas())
    events = summarize(trace, "fluid_events", depth=0)
    assert (events["cpu_ns"].sum(), events["device_ns"].sum()) == (host, device)
    overhead = summarize(trace, "fluid_overhead").set_index("name")
    assert overhead.empty == events.empty
    if overhead.empty:
        return
    total = overhead["total_ns"]
    assert (overhead.drop(columns="depth") >= 0).all(axis=None)
    assert 0 < total["total time"] <= host + device
    assert total["computation"] + total["framework overhead"] == total["total time"]


def outermost(frame: pd.DataFrame) -> tuple[int, int]:
    """Return the time of the outermost operators, and of the device work launched on the same thread during an
    operator."""
    frame = frame.fillna(dict.fromkeys(THREAD, -1)).assign(end=frame["start_ns"] + frame["dur_ns"])
    work = frame[frame["kind"].isin(DEVICE_WORK) & (frame["launched_by"] >= 0)]
    launch = frame.iloc[work["launched_by"]][[*THREAD, "start_ns"]].assign(ns=work["dur_ns"].to_numpy())
    operators = frame[frame["kind"].isin(["operator", "communication"]) & (frame["device"] == "cpu")]
    host = device = 0
    for thread, rows in operators.groupby(THREAD):
        spans = np.array(disjoint(rows))
        mine = launch[(launch[THREAD] == list(thread)).all(axis=1)]
        start = mine["start_ns"].to_numpy(np.int64)
        at = np.searchsorted(spans[:, 0], start, side="right") - 1
        host += int((spans[:, 1] - spans[:, 0]).sum())
        device += int(mine["ns"].to_numpy(np.int64)[(at >= 0) & (start < spans[at, 1])].sum())
    return host, device


def disjoint(rows: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the operators of a thread that lie in no other operator."""
    spans: list[tuple[int, int]] = []
    ordered = rows.sort_values(["start_ns", "end"], ascending=[True, False])
    for start, end in ordered[["start_ns", "end"]].itertuples(index=False):
        if not any(start < other and end <= other for _, other in spans[-3:]):
            spans.append((start, end))
    return spans


def check_families(trace: Trace) -> None:
    """Check the shares of operator time and kernel time with a family. Operator time is the time of the outermost
    operators. Each nanosecond of it has the family of the innermost operator that runs, or of the nearest operator
    above that has a canonical name. Kernel time is the sum of the device work."""
    codes = event_families(trace)
    own = innermost_ns(trace, np.flatnonzero(trace.host & trace.rows("kind", OPERATOR, COMMUNICATION)))
    known = sum(ns for row, ns in own.items() if codes.codes[row] >= 0)
    assert known >= OPERATORS_AT_LEAST * sum(own.values())
    work, dur_ns = trace.rows("kind", *DEVICE_WORK), trace.ints("dur_ns")
    assert dur_ns[work & (codes.codes >= 0)].sum() >= KERNELS_AT_LEAST * dur_ns[work].sum()


def innermost_ns(trace: Trace, operators: IntArray) -> dict[int, int]:
    """Return the duration of each operator less the durations of the operators directly inside, by row."""
    parent, dur_ns = trace.ints("parent").tolist(), trace.ints("dur_ns").tolist()
    own = {row: dur_ns[row] for row in operators.tolist()}
    for row in own:
        above = parent[row]
        while above >= 0 and above not in own:
            above = parent[above]
        if above >= 0:
            own[above] -= dur_ns[row]
    return own
