"""The displayed part of a table: display filters as in tfprof, and averages over steps."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.errors import UsageError
from perfkit_core.output.report.display import Display, check, displayed
from perfkit_core.output.report.summary import choose_views, per_step, summary_report
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.assembly.labels import module_label
from perfkit_core.trace.model.columns import BY, CALLS, CPU, FLOPS, OP_NAME, Column, keys
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views import grouping
from perfkit_core.views.merging import table_of
from tests.support.events import device, host, trace
from tests.support.small_trace import small_trace

FLAT = pd.DataFrame(
    {
        "name": ["mm", "add", "relu", "copy_"],
        "op_name": ["matmul", "add", pd.NA, "copy"],
        "calls": [10, 20, 5, 1],
        "total_cpu_ns": [1000, 400, 700, 50],
        "flops": pd.array([8, pd.NA, pd.NA, pd.NA], "Int64"),
    }
)
TREE = pd.DataFrame(
    {
        "depth": [0, 1, 2, 2, 1, 0],
        "name": ["net", "block", "conv", "norm", "head", "loss"],
        "self_cpu_ns": [1, 2, 30, 4, 40, 5],
        "total_cpu_ns": [77, 36, 30, 4, 40, 5],
    }
)


def view(table: pd.DataFrame, **more: Any) -> View:
    return View("made", "Made", "made by hand", lambda trace, request: table, **({"columns": (OP_NAME,)} | more))


def shown(table: pd.DataFrame, order: str | None = None, **options: Any) -> list[Any]:
    """Return the names of the remaining rows, with depths in a tree."""
    left = displayed(table, view(table, order=order), Display(**options))
    return list(zip(left["depth"], left["name"], strict=True)) if "depth" in left else left["name"].to_list()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["mm", "add", "relu", "copy_"]),
        ({"sort": "calls"}, ["add", "mm", "relu", "copy_"]),
        # rows with equal values are sorted by name
        ({"sort": "flops", "ascending": True}, ["mm", "add", "copy_", "relu"]),
        ({"show": "^mat|relu"}, ["mm", "relu"]),
        ({"hide": "^mat|relu"}, ["add", "copy_"]),
        ({"show": "a", "hide": "add"}, ["mm"]),
        ({"minimums": {"calls": 5, "total_cpu_ns": 500}}, ["mm", "relu"]),
        ({"minimums": {"flops": 1}}, ["mm"]),
        ({"minimums": {"elsewhere_ns": 1}}, ["mm", "add", "relu", "copy_"]),
        ({"show": "zzz"}, []),
    ],
)
def test_rows_of_a_flat_table(options: dict[str, Any], names: list[str]) -> None:
    assert shown(FLAT, **options) == names


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"depth": 0}, [(0, "net"), (0, "loss")]),
        ({"depth": 1}, [(0, "net"), (1, "block"), (1, "head"), (0, "loss")]),
        ({"start": "block|loss"}, [(0, "block"), (1, "conv"), (1, "norm"), (0, "loss")]),
        ({"start": "block", "depth": 0}, [(0, "block")]),
        ({"start": "net|conv"}, [(0, "net"), (1, "block"), (2, "conv"), (2, "norm"), (1, "head")]),
        ({"trim": "block"}, [(0, "net"), (1, "head"), (0, "loss")]),
        ({"start": "net", "trim": "^conv"}, [(0, "net"), (1, "block"), (2, "norm"), (1, "head")]),
        ({"hide": "block"}, [(0, "net"), (1, "conv"), (1, "norm"), (1, "head"), (0, "loss")]),
        ({"hide": "net"}, [(0, "block"), (1, "conv"), (1, "norm"), (0, "head"), (0, "loss")]),
        ({"show": "conv|head"}, [(0, "conv"), (0, "head")]),
        ({"minimums": {"total_cpu_ns": 31}}, [(0, "net"), (1, "block"), (1, "head")]),
        ({"start": "zzz"}, []),
    ],
)
def test_rows_of_a_tree(options: dict[str, Any], rows: list[tuple[int, str]]) -> None:
    assert shown(TREE, **options) == rows


def test_siblings_of_a_tree_follow_the_order_of_the_view() -> None:
    assert [name for _, name in shown(TREE, order="total_cpu_ns")] == ["net", "head", "block", "conv", "norm", "loss"]
    by_name = shown(TREE, order="total_cpu_ns", sort="name", ascending=True)
    assert [name for _, name in by_name] == ["loss", "net", "block", "conv", "norm", "head"]


def test_hidden_rows_count_unless_only_displayed_ones_do() -> None:
    whole = displayed(TREE, view(TREE), Display(trim="conv"))
    assert whole.set_index("name")["total_cpu_ns"].to_dict() == {
        "net": 77,
        "block": 36,
        "norm": 4,
        "head": 40,
        "loss": 5,
    }
    summing = view(TREE, columns=(Column("total_cpu_ns", "Total CPU", unit="ns", own="self_cpu_ns"),))
    only = displayed(TREE, summing, Display(trim="conv", displayed_only=True))
    assert only.set_index("name")["total_cpu_ns"].to_dict() == {"net": 47, "block": 6, "norm": 4, "head": 40, "loss": 5}


def test_a_sum_is_not_below_0_where_hidden_rows_overlap() -> None:
    tree = pd.DataFrame({"depth": [0, 1, 1], "name": ["f", "g", "h"], "self": [0, 60, 60], "total": [100, 60, 60]})
    only = displayed(
        tree, view(tree, columns=(Column("total", "Total", own="self"),)), Display(hide="g|h", displayed_only=True)
    )
    assert only["total"].to_list() == [0]


def test_total_shares_and_counts_follow_what_is_displayed() -> None:
    tree = TREE.assign(
        self_cpu_ratio=TREE["self_cpu_ns"] / 82,
        total_cpu_ratio=TREE["total_cpu_ns"] / 82,
        self_flops=pd.array([0, 0, 9, 1, 6, pd.NA], "Int64"),
        flops=pd.array([16, 10, 9, 1, 6, pd.NA], "Int64"),
    )
    both = (
        Column("total_cpu_ratio", "Total CPU", unit="ratio", own="self_cpu_ratio"),
        Column("flops", "FLOPs", unit="flops", own="self_flops"),
    )
    only = displayed(tree, view(tree, columns=both), Display(trim="conv", displayed_only=True)).set_index("name")
    assert only["flops"].fillna(-1).to_dict() == {"net": 7, "block": 1, "norm": 1, "head": 6, "loss": -1}
    assert only.loc["net", "total_cpu_ratio"] == pytest.approx(47 / 82)


@pytest.mark.parametrize("name", ["modules", "code", "operator_kinds", "operator_tree", "fluid_events"])
def test_displayed_is_everything_where_nothing_is_cut(name: str) -> None:
    found = trees()
    whole = summarize(found, name)
    assert len(whole) > 1
    pd.testing.assert_frame_equal(summarize(found, name, displayed_only=True), whole)
    (section,) = summary_report(found, choose_views([name]), ViewRequest(), Display(displayed_only=True)).sections
    assert any("Sums include hidden rows" in line for line in section.lines) == (name not in ("modules", "code"))


def trees() -> Trace:
    """Return a layer in another layer, an operator inside another operator of the same kind, a kernel, and Python
    functions."""
    return trace(
        [
            host("train.py(1): train", "python", 0, 110),
            host(module_label("", "Net"), "annotation", 1, 100),
            host(module_label("conv", "Conv"), "annotation", 10, 60),
            host("aten::convolution", "operator", 20, 40, op_name="conv2d", flops=7),
            host("aten::conv2d", "operator", 25, 30, op_name="conv2d"),
            host("launch", "runtime", 30, 5, correlation=1),
            host("aten::add", "operator", 80, 10, op_name="add", flops=3),
            host("model.py(3): forward", "python", 95, 4),
            device("k", "kernel", 40, 50, 1),
        ]
    )


def test_only_what_is_displayed_needs_a_tree() -> None:
    with pytest.raises(UsageError, match="no tree"):
        summarize(small_trace(), "operators", displayed_only=True)


def test_chosen_columns_in_their_order() -> None:
    assert list(displayed(FLAT, view(FLAT), Display(columns=("calls", "name")))) == ["calls", "name"]
    assert list(displayed(TREE, view(TREE), Display(columns=("total_cpu_ns",)))) == ["depth", "name", "total_cpu_ns"]
    assert list(displayed(FLAT, view(FLAT), Display(columns=("calls",)))) == ["name", "calls"]
    tree = displayed(TREE, view(TREE), Display(columns=("total_cpu_ns", "name")))
    assert list(tree) == ["depth", "name", "total_cpu_ns"]
    elsewhere = displayed(FLAT, view(FLAT), Display(columns=("of_another_view",)))
    assert list(elsewhere) == list(FLAT)


@pytest.mark.parametrize(
    ("name", "by", "telling"),
    [
        ("operators", (), ["name"]),
        ("operators", ("step", "shape"), ["name", "step", "shapes"]),
        ("operators", ("stack=2",), ["name", "stack"]),
        ("operator_tree", ("thread",), ["depth", "name", "kind", "tid"]),
        ("kernels", ("launch",), ["name", "device", "grid", "block", "registers", "shared_bytes", "occupancy_ratio"]),
        ("memcpy", (), ["kind", "copy_kind", "device"]),
        ("annotations", ("phase",), ["name", "phase", "kind"]),
        ("partition", (), ["category"]),
        ("partition", ("step",), ["rank", "step"]),
        ("steps", (), ["rank", "step"]),
        ("model", (), ["phase"]),
        ("modules", (), ["depth", "name"]),
        ("device", (), ["device", "product"]),
        ("graph", (), ["node", "name"]),
        ("memory", ("category",), ["name", "device", "type", "category"]),
        ("memory_leaks", (), ["name", "rank", "device"]),
    ],
)
def test_columns_that_identify_rows(name: str, by: tuple[str, ...], telling: list[str]) -> None:
    """The same columns identify a row in a table with rows and in an empty table."""
    (chosen,) = choose_views([name])
    trace = small_trace()
    for one in (trace, Trace(trace.events.slice(0, 0), trace.meta)):
        assert keys(chosen.columns, table_of(chosen, one, ViewRequest(by=by)), by) == telling


def test_a_grouping_and_its_column_go_by_the_same_name() -> None:
    shown = summarize(small_trace(), "operators", by=("thread", "shape"), columns=("shape", "calls"), sort="shape")
    assert list(shown) == ["name", "tid", "shapes", "calls"]
    assert shown["shapes"].dropna().to_list() == sorted(shown["shapes"].dropna(), reverse=True)
    for name, (column, _) in grouping._KEYS.items():
        assert BY[name][0].name == column
    with pytest.raises(UsageError, match="no column 'shape'"):
        summarize(small_trace(), "operators", columns=("shape",))


@pytest.mark.parametrize("table", [FLAT, TREE, FLAT.assign(depth=0)])
def test_nothing_of_an_empty_table(table: pd.DataFrame) -> None:
    options = Display(
        show="a", hide="b", minimums={"total_cpu_ns": 1}, sort="total_cpu_ns", depth=3, start="x", trim="y"
    )
    left = displayed(table.head(0), view(table), options)
    assert left.empty
    assert list(left) == list(table)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sort": "nope"}, "no column 'nope'"),
        ({"columns": ("nope",)}, "no column 'nope'"),
        ({"minimums": {"nope": 1}}, "no column 'nope'"),
        ({"depth": 1}, "no tree"),
        ({"start": "x"}, "no tree"),
    ],
)
def test_unknown_names_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check({"flat": FLAT}, Display(**options))
    check({"flat": FLAT, "tree": TREE}, Display(depth=1))


def test_a_bad_pattern_is_refused() -> None:
    for option in ("show", "hide", "start", "trim"):
        with pytest.raises(UsageError, match="regular expression"):
            displayed(TREE, view(TREE), Display(**{option: "("}))


def test_an_average_divides_what_is_a_sum_over_the_steps() -> None:
    made = view(FLAT, columns=(CALLS, CPU[0], FLOPS, Column("not_there", "Not there", over="steps")))
    average = per_step(FLAT, made, 4)
    assert average["total_cpu_ns"].to_list() == [250, 100, 175, 13]
    assert average["calls"].to_list() == [2.5, 5.0, 1.25, 0.25]
    assert average["flops"].isna().to_list() == [False, True, True, True]
    assert average["flops"][0] == 2
    assert FLAT["calls"].to_list() == [10, 20, 5, 1]


def test_an_average_counts_only_what_belongs_to_the_steps() -> None:
    whole = summarize(small_trace(), "operators", steps=[0, 1]).set_index("name")
    average = summarize(small_trace(), "operators", average=True).set_index("name")
    one = summarize(small_trace(), "operators", average=True, steps=[1]).set_index("name")
    assert average.loc["fw::matmul", "total_cpu_ns"] * 2 == whole.loc["fw::matmul", "total_cpu_ns"]
    assert one.loc["fw::matmul", "calls"] == 1.0


def test_an_average_needs_steps_and_a_view_that_has_sums() -> None:
    with pytest.raises(UsageError, match="--average does not support device"):
        summarize(small_trace(), "device", average=True)
    with pytest.raises(UsageError, match="--average does not support device"):
        summary_report(small_trace(), choose_views(["partition", "device"]), ViewRequest(), Display(average=True))


def test_an_average_says_what_it_is_of() -> None:
    (section,) = summary_report(
        small_trace(), choose_views(["overview"]), ViewRequest(), Display(average=True)
    ).sections
    assert "Sums are divided by the number of steps, 2." in section.lines[0]
    assert section.lines[0].endswith("Events outside steps are not counted.")
    two = concat_traces([with_rank(small_trace(), rank) for rank in (0, 1)])
    (section,) = summary_report(two, choose_views(["overview"]), ViewRequest(), Display(average=True)).sections
    assert "Sums over all 2 ranks are divided" in section.lines[0]


def test_the_head_says_which_steps_were_asked_for() -> None:
    def told(*steps: int) -> tuple[tuple[str, str], dict[str, Any]]:
        request = ViewRequest(steps=steps or None)
        report = summary_report(small_trace(), choose_views(["overview"]), request)
        return report.sources[0].facts["Steps"], dict(report.data)

    first, second = summarize(small_trace(), "steps")["step"]
    assert told() == (("2", "2 steps"), {})
    shown, text = f"{second} (recorded steps: 2)", f"step {second} (recorded steps: 2)"
    assert told(second) == ((shown, text), {"steps": [second]})
    shown, text = f"{first}, {second} (recorded steps: 2)", f"steps {first}, {second} (recorded steps: 2)"
    assert told(second, first) == ((shown, text), {"steps": [first, second]})


def test_filters_apply_to_the_views_that_know_them() -> None:
    views = choose_views(["operators", "device"])
    report = summary_report(small_trace(), views, ViewRequest(by=("shape",)), Display(sort="calls", columns=("calls",)))
    operators, device = report.sections
    assert list(operators.table) == ["name", "shapes", "calls"]
    assert "busy_ns" in device.table
