"""Input wait and input copies of steps, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.views.steps import input_pipeline
from tests.support.events import device, host, trace

LOADER = "enumerate(Loader)#Workers"
ROWS = [
    host("step 0", "step", 0, 1000, step=0),
    host(LOADER, "dataloader", 0, 100, phase="dataloader"),
    host(LOADER, "dataloader", 10, 50, phase="dataloader"),
    host("Other", "dataloader", 150, 50, phase="dataloader"),
    host("Prefetch", "dataloader", 300, 500, tid=2, phase="dataloader"),
    host("launch", "runtime", 210, 10, correlation=1),
    host("copy", "runtime", 220, 10, correlation=2),
    host("copy", "runtime", 230, 10, correlation=3),
    host("back", "runtime", 240, 10, correlation=4),
    host("step 1", "step", 1000, 500, step=1),
    host("mm", "operator", 1010, 10),
    device("k", "kernel", 300, 100, correlation=1),
    device("a", "memcpy", 350, 100, correlation=2, bytes=1000, copy_kind="HtoD pinned"),
    device("b", "memcpy", 400, 100, correlation=3, copy_kind="HtoD", stream=8),
    device("c", "memcpy", 600, 100, correlation=4, bytes=7, copy_kind="DtoH"),
]


def rows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table = input_pipeline.table(trace(events), ViewRequest())
    return [{key: None if pd.isna(value) else value for key, value in row.items()} for row in table.to_dict("records")]


def test_wait_and_copies_of_each_step() -> None:
    """Nested loader calls count once, and prefetching on another thread is not input wait. A kernel hides half of the
    first copy to the device. The copy to the host does not count."""
    first, second = rows(ROWS)
    assert first == {
        "rank": None, "step": 0, "dur_ns": 1000, "loader": f"Other, {LOADER}", "loads": 2, "input_wait_ns": 150,
        "input_ratio": 0.15, "copies": 2, "copied_bytes": 1000, "copy_ns": 150, "hidden_copy_ns": 50,
    }  # fmt: skip
    assert second == {
        "rank": None, "step": 1, "dur_ns": 500, "loader": None, "loads": 0, "input_wait_ns": 0, "input_ratio": 0,
        "copies": 0, "copied_bytes": 0, "copy_ns": 0, "hidden_copy_ns": 0,
    }  # fmt: skip


def test_without_a_loader_input_wait_is_unknown() -> None:
    without = [row for row in ROWS if row["kind"] != "dataloader"]
    first, _ = rows(without)
    assert (first["loader"], first["loads"], first["input_wait_ns"], first["input_ratio"]) == (None,) * 4
    assert first["copies"] == 2


def test_copies_without_a_recorded_size() -> None:
    without_size = [row | {"bytes": None} for row in ROWS]
    assert rows(without_size)[0]["copied_bytes"] is None


def test_an_empty_table_is_explained() -> None:
    steps_only = trace([ROWS[0], host("mm", "operator", 10, 10)])
    assert input_pipeline.table(steps_only, ViewRequest()).empty
    assert "data loader" in str(input_pipeline.VIEW.explain_empty(steps_only))
    assert "step()" in str(input_pipeline.VIEW.explain_empty(trace(ROWS[1:2])))
    check_view(input_pipeline.VIEW, trace(ROWS))
