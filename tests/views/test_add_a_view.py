"""The view of docs/add-a-view.md merges over ranks and over parts of a recording; the gate and SQL read its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from docs import blocks
from perfkit_core.compare.gate.view_samples import Number, samples
from perfkit_core.integrations.sql.statement import query
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import Plugins
from perfkit_core.ranks import reduce
from perfkit_core.ranks.plan import Job
from perfkit_core.readers.load import load_one
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace
from tests.support.paths import ROOT


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    """Run the block of the page, and register its view."""
    (block,) = (block for block in blocks.blocks(ROOT / "docs" / "add-a-view.md") if block.language == "python")
    names: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), names)
    (declared,) = names["perfkit_views"]()
    registered = Plugins.views
    monkeypatch.setattr(Plugins, "views", lambda self: registered(self) | {declared.name: declared})
    assert isinstance(declared, View)
    return declared


def copies(steps: int, dur_ns: int) -> Trace:
    """Return steps of 1000 ns. Each copies 8 KB to the device, and something of unknown size back."""
    events = []
    for step in range(steps):
        at = 1000 * step
        to_device = {"bytes": 8000, "copy_kind": "HtoD", "correlation": 2 * step + 1}
        events += [
            host(f"step {step}", "step", at, 900, step=step),
            host("launch", "runtime", at + 10, 10, correlation=2 * step + 1),
            host("launch", "runtime", at + 30, 10, correlation=2 * step + 2),
            device("c", "memcpy", at + 50, dur_ns + step, **to_device),
            device("c", "memcpy", at + 500, 100, copy_kind="DtoH", correlation=2 * step + 2),
            device("k", "kernel", at + 700, 100),
        ]
    return trace(events)


def test_numbers_are_those_worked_out_by_hand(view: View) -> None:
    table = table_of(view, copies(2, 300), ViewRequest()).set_index("copy_kind")
    columns = ["calls", "bytes", "dur_ns", "avg_ns", "max_ns"]
    assert table.loc["HtoD", columns].tolist() == [2, 16_000, 601, 301, 301]
    assert table["bytes"].isna().tolist() == [False, True]
    assert table["ratio"].tolist() == [601 / 801, 200 / 801]


@pytest.mark.parametrize("by", [(), ("step",), ("stream", "phase")])
def test_merged_ranks_are_the_table_of_one_trace_of_all(view: View, by: tuple[str, ...]) -> None:
    ranks = [with_rank(copies(3, 300), 0), with_rank(copies(2, 100), 1)]
    request, functions = ViewRequest(by=by), reduction(view)
    merged = functions.merge([functions.reduce(rank, request) for rank in ranks], request)
    pd.testing.assert_frame_equal(merged, table_of(view, concat_traces(ranks), request), check_exact=True)


def test_merged_real_ranks_are_the_table_of_one_trace_of_all(view: View, traces: Path) -> None:
    ranks = [load_one(path) for path in sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))[:3]]
    functions = reduction(view)
    merged = functions.merge([functions.reduce(rank, ViewRequest()) for rank in ranks], ViewRequest())
    assert len(merged)
    pd.testing.assert_frame_equal(merged, table_of(view, concat_traces(ranks), ViewRequest()), check_exact=True)


def test_merged_parts_are_the_table_of_the_recording(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "PART_ROWS", 12)
    recorded, request = copies(9, 300), ViewRequest()
    partials = reduce.reduce_parts(recorded, [view], Job((), request))
    assert len(partials) > 2
    merged = reduction(view).merge([partial.views[view.name] for partial in partials], request)
    pd.testing.assert_frame_equal(merged, table_of(view, recorded, request), check_exact=True)


def test_the_gate_and_sql_read_the_view(view: View) -> None:
    recorded = copies(2, 300)
    (per_step,) = samples([[recorded]], Number(view, "dur_ns", "HtoD"))
    assert per_step.tolist() == [300, 301]
    (of_capture,) = samples([[recorded]], Number(view, "max_ns", "HtoD"))
    assert of_capture.tolist() == [301]
    result = query(
        recorded, "select copy_kind, sum(bytes) as total_bytes from directions group by copy_kind order by 1"
    )
    assert result["total_bytes"].tolist()[1] == 16_000
    assert result["copy_kind"].tolist() == ["DtoH", "HtoD"]
