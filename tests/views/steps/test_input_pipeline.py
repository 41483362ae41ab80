"""Input wait and input copies of steps, against numbers worked out by hand."""

from __future__ import annotations

from perfkit_core.testing.conformance import check_view
from perfkit_core.views.steps import input_pipeline
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

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


def test_wait_and_copies_of_each_step() -> None:
    """Nested loader calls count once, and prefetching on another thread is not input wait. A kernel hides half of the
    first copy to the device. The copy to the host does not count."""
    without_loader = [row for row in ROWS if row["kind"] != "dataloader"]
    without_size = [row | {"bytes": None} for row in ROWS]
    check_tables("views/input_pipeline.txt", {
        "two steps": view_table("input_pipeline", trace(ROWS)),
        "without a loader, input wait is unknown": view_table("input_pipeline", trace(without_loader)),
        "copies without a recorded size": view_table("input_pipeline", trace(without_size)),
    })  # fmt: skip


def test_a_loader_in_a_wait_of_a_profiled_loop_counts_as_the_call() -> None:
    """The wait of 300 ns holds a loader's call of 100 ns. A wait without a loader is the call."""
    step, other = host("step 0", "step", 0, 1000, step=0), host("step 1", "step", 1000, 1000, step=1)
    wait = host("perfkit.input:batches", "dataloader", 0, 300, phase="dataloader")
    table = view_table("input_pipeline", trace([
        step, wait, host(LOADER, "dataloader", 100, 100, phase="dataloader"), host("mm", "operator", 400, 10),
        other, host("perfkit.input:batches", "dataloader", 1000, 200, phase="dataloader"),
        host("mm", "operator", 1400, 10),
    ]))  # fmt: skip
    assert table["loader"].tolist() == [LOADER, "perfkit.input:batches"]
    assert table["loads"].tolist() == [1, 1]
    assert table["input_wait_ns"].tolist() == [300, 200]


def test_an_empty_table_is_explained() -> None:
    steps_only = trace([ROWS[0], host("mm", "operator", 10, 10)])
    assert view_table("input_pipeline", steps_only).empty
    assert "data loader" in str(input_pipeline.VIEW.explain_empty(steps_only))
    assert "step()" in str(input_pipeline.VIEW.explain_empty(trace(ROWS[1:2])))
    check_view(input_pipeline.VIEW, trace(ROWS))
