"""The report of Paddle 1.x on all real traces: views keep their contract, and totals equal sums computed from times
alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import VIEWS

THREAD = ["rank", "pid", "tid"]
DEVICE_WORK = ["kernel", "memcpy", "memset"]


def test_every_torch_trace(torch_file: Path) -> None:
    check(load(torch_file))


def test_every_paddle_trace(paddle_file: Path) -> None:
    check(load(paddle_file))


def check(trace: Trace) -> None:
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
