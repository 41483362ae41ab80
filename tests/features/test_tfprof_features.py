"""Views, steps, filters and outputs that tfprof also has, in both frameworks."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.cli.main import main
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA

FILES = {"torch": DATA / "torch-mlp.json.gz", "paddle": DATA / "paddle-mlp.pb"}
MATMUL = {"torch": "^aten::addmm$", "paddle": "^matmul dygraph$"}


@pytest.fixture(scope="module")
def run(framework: str) -> Trace:
    return perfkit_core.load(FILES[framework])


def test_scope_graph_operator_and_code_views(run: Trace, framework: str) -> None:
    """The views are scope, graph, op and code. The code view reports that Paddle records no Python stacks in dygraph
    mode."""
    assert len(perfkit_core.summarize(run, "operators")) > 10
    graph = perfkit_core.summarize(run, "graph")
    assert (graph["phase"] == "backward").any()
    assert graph.loc[graph["phase"] == "backward", "forward"].notna().any()
    scope = perfkit_core.summarize(run, "modules")
    assert "depth" in scope
    code = perfkit_core.summarize(run, "code")
    assert code.empty
    why = str(get_plugins().views()["code"].explain_empty(run))
    assert ("with_stack" if framework == "torch" else "annotate(model)") in why


def test_the_code_view_of_recorded_stacks(traces: Path) -> None:
    """With torch's with_stack, frames are events. In Paddle's static programs, operators have the stack at which they
    were built."""
    torch_code = perfkit_core.summarize(traces / "torch" / "h100-vit.json.gz", "code")
    paddle_code = perfkit_core.summarize(traces / "paddle" / "versions" / "static_3.3.1_pir0_nofeed.pb", "code")
    for code in (torch_code, paddle_code):
        assert code["depth"].max() > 3
        assert code["line"].notna().any()
        roots = code[code["depth"] == 0]
        assert roots["total_cpu_ns"].sum() >= code["self_cpu_ns"].sum() > 0


def test_steps_sum_to_all_steps_and_the_average_divides_them(run: Trace) -> None:
    """The numbers of all steps are the sums of the numbers of each step. The average is the sum divided by the number
    of steps."""
    steps = perfkit_core.summarize(run, "steps")["step"].to_list()
    assert len(steps) >= 2
    sums = ["calls", "self_cpu_ns", "total_cpu_ns"]
    whole = perfkit_core.summarize(run, "operators", steps=steps).set_index("name")[sums]
    each = perfkit_core.summarize(run, "operators", steps=steps, by="step")
    assert each.groupby("name")[sums].sum().to_dict() == whole.to_dict()
    one = perfkit_core.summarize(run, "operators", steps=steps[:1]).set_index("name")[sums]
    assert each[each["step"] == steps[0]].set_index("name")[sums].to_dict() == one.to_dict()
    average = perfkit_core.summarize(run, "operators", average=True).set_index("name")
    assert (average["calls"] * len(steps)).to_dict() == whole["calls"].to_dict()
    off = (average["total_cpu_ns"] * len(steps) - whole["total_cpu_ns"]).abs()
    assert (off <= len(steps) / 2).all()


def test_account_filters_change_what_is_counted(run: Trace, framework: str) -> None:
    whole = perfkit_core.summarize(run, "operators")
    some = perfkit_core.summarize(run, "operators", pattern=MATMUL[framework])
    assert len(some) == 1
    assert some["self_cpu_ratio"].to_list() == [1.0]
    assert perfkit_core.summarize(run, "operators", kind="^annotation$").empty
    assert len(perfkit_core.summarize(run, "operators", kind="^operator$")) == len(whole)
    assert perfkit_core.summarize(run, "operators", device="cuda|npu").empty


def test_display_filters_change_what_is_shown(run: Trace, framework: str) -> None:
    whole = perfkit_core.summarize(run, "operators").set_index("name")
    some = perfkit_core.summarize(run, "operators", show=MATMUL[framework]).set_index("name")
    pd.testing.assert_frame_equal(some, whole.loc[some.index])
    assert len(some) == 1
    rest = perfkit_core.summarize(run, "operators", hide=MATMUL[framework])
    assert len(rest) == len(whole) - 1
    least = int(whole["calls"].median())
    often = perfkit_core.summarize(run, "operators", minimums={"calls": least}, sort="calls")
    assert often["calls"].to_list() == sorted(whole.loc[whole["calls"] >= least, "calls"], reverse=True)


def test_patterns_are_bounded(run: Trace) -> None:
    for option in ("pattern", "kind", "device", "show", "hide"):
        with pytest.raises(UsageError, match="regular expression"):
            perfkit_core.summarize(run, "operators", **{option: "(" * 20})
    assert perfkit_core.summarize(run, "operators", show="(a*)*(a*)*(a*)*\\d{7}$").empty


@pytest.mark.parametrize("view", [*get_plugins().views()])
def test_every_view_in_every_format(
    view: str, framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text and Markdown have the same table, and JSON and CSV have all of it. Each format goes to the terminal and to a
    file."""
    source = str(FILES[framework])
    table = perfkit_core.summarize(source, view)
    outputs = {}
    for name in ("text", "markdown", "json", "csv"):
        assert main(["summary", source, "--view", view, "--format", name]) == 0
        outputs[name] = capsys.readouterr().out
        assert main(["summary", source, "--view", view, "--format", name, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == outputs[name]
    capsys.readouterr()
    rows = json.loads(outputs["json"])["views"][view]
    assert len(rows) == len(table)
    head, *lines = csv.reader(io.StringIO(outputs["csv"]))
    assert head == list(table)
    assert len(lines) == len(table)
    for text in (outputs["text"], outputs["markdown"]):
        assert get_plugins().views()[view].title in text.replace("\\", "")
    if len(table):
        assert list(rows[0]) == list(table)


def test_columns_and_order(run: Trace) -> None:
    table = perfkit_core.summarize(run, "operators", columns=("calls", "name"), sort="calls", ascending=True)
    assert list(table) == ["calls", "name"]
    assert table["calls"].is_monotonic_increasing
