"""Steps divided into interval, forward and backward, and tail, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import steps
from tests.support.events import codes, host, trace
from tests.support.tables import check_tables, view_table

ROWS = [
    host("step 0", "step", 0, 1000, step=0),
    host("load", "dataloader", 0, 100, phase="dataloader"),
    host("fwd", "forward", 120, 200, phase="forward"),
    host("fwd again", "forward", 330, 100, phase="forward"),
    host("bwd", "backward", 450, 200, phase="backward"),
    host("bwd of another thread", "operator", 500, 230, phase="backward", tid=2),
    host("opt", "optimizer", 800, 100, phase="optimizer"),
    host("step 1", "step", 1000, 500, step=1),
    host("bwd", "backward", 1010, 20, phase="backward"),
    host("fwd", "forward", 1040, 20, phase="forward"),
    host("step 2", "step", 1500, 100, step=2),
    host("fwd", "forward", 1510, 20, phase="forward"),
    host("step 3", "step", 1600, 300, step=3),
    host("fwd", "forward", 1630, 20, phase="forward"),
    host("bwd", "backward", 1700, 400, phase="backward"),
    host("step 4", "step", 1900, 300, step=4),
    host("mm", "operator", 1950, 10),
    host("step 5", "step", 2200, 10, step=5),
]
WHY = "missing"


def test_the_parts_of_steps() -> None:
    """The backward pass of step 0 ends on another thread. The backward pass of step 3 is cut at the end of the step.
    Step 5 was cut off by the end of the recording: it is reported and does not count."""
    found = trace(ROWS)
    check_tables("views/step_trace.txt", {
        "by step": view_table("step_trace", found, by=("step",)), "divided steps": view_table("step_trace", found),
    })  # fmt: skip
    assert "empty-last-step" in codes(found)


def test_the_column_of_reasons_is_absent_if_all_steps_are_divided() -> None:
    assert WHY not in view_table("step_trace", trace(ROWS[:7]), by=("step",))


def test_an_empty_table_is_explained() -> None:
    assert table_of(steps.TRACE_VIEW, trace(ROWS[10:12]), ViewRequest()).empty
    assert "forward and a backward" in str(steps.TRACE_VIEW.explain_empty(trace(ROWS[10:12])))
    assert "step()" in str(steps.TRACE_VIEW.explain_empty(trace(ROWS[4:5])))


def test_the_contract_of_views() -> None:
    check_view(steps.TRACE_VIEW, trace(ROWS))
    with pytest.raises(UsageError, match="step 9"):
        table_of(steps.TRACE_VIEW, trace(ROWS), ViewRequest(steps=(9,)))
