"""The page of a run contains the largest rows of long tables, and trees remain trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.base.algorithms.trees import parents
from perfkit_core.errors import SourceError
from perfkit_core.output.renderers.html import page as html
from perfkit_core.pages.profile import LONGEST, run_report
from perfkit_core.readers.load import load
from tests.support.events import host, trace
from tests.support.linked_trace import HOSTILE, linked


def test_a_long_table_is_cut_to_its_largest_rows_and_says_so() -> None:
    found = trace([host(f"op{i}", "operator", 10_000 * i, 1 + i) for i in range(LONGEST + 5)])
    (section,) = (section for section in run_report(found).sections if section.name == "operators")
    assert len(section.table) == LONGEST
    assert set(section.table["name"]) == {f"op{i}" for i in range(5, LONGEST + 5)}
    assert f"The table shows the largest {LONGEST} of {LONGEST + 5} rows" in section.note


def test_a_page_that_is_given_as_a_profile_is_known(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html.render(run_report(trace([host("op", "operator", 0, 1)]))), encoding="utf-8")
    with pytest.raises(SourceError, match=r"an HTML page of perfkit.*give the run folder or the trace"):
        load(page)


def test_a_shortened_tree_is_still_a_tree(traces: Path) -> None:
    (section,) = (
        s for s in run_report(load(traces / "torch" / "b200-eager-rank0of8.json.gz")).sections if s.name == "code"
    )
    table = section.table
    assert len(table) == LONGEST
    above = parents(table["depth"].to_numpy())
    inner = table["depth"].to_numpy() > 0
    assert (above[inner] >= 0).all()
    assert (table["depth"].to_numpy()[above[inner]] == table["depth"].to_numpy()[inner] - 1).all()
    assert (table["total_cpu_ns"].to_numpy()[above[inner]] >= table["total_cpu_ns"].to_numpy()[inner]).all()


def test_things_of_the_same_events_belong_together() -> None:
    found = run_report(linked()).links
    assert set(found["operator", "kernel"]) == {("fw::linear", HOSTILE), ("fw::relu", "relu_kernel")}
    assert set(found["kernel", "module"]) == {(HOSTILE, "net/first"), ("relu_kernel", "net/second")}
    assert ("fw::mean", "train.py(5): batches") in found["operator", "code"]
    assert ("unbatched-loop-3470", "fw::mean") in found["advice", "operator"]


def test_a_timeline_has_the_boxes_of_layers_code_and_advice() -> None:
    (timeline,) = (section.timeline for section in run_report(linked()).sections if section.timeline)

    def names(kind: str, thing: str) -> set[str]:
        return {timeline.names[timeline.name[box]] for box in timeline.marks[kind][thing].tolist()}

    assert names("module", "net/first") == {"fw::linear", "cudaLaunchKernel", HOSTILE}
    assert names("advice", "unbatched-loop-3470") == {"fw::index", "fw::mean", "fw::softmax"}
    assert "fw::relu" in names("code", "train.py(14): forward")
    assert [part.step for part in timeline.parts] == ["0", "1", "2", "3"]
