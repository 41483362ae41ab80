"""Tests of the report sections on causes: the causes are ranked, they sum to the difference, and the waterfall leads
from base to other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.compare.attribute.causes import REST, by_family, by_kernel, by_layer, causes, grouped, waterfall
from perfkit_core.compare.report import comparison_report
from perfkit_core.output.renderers.html import charts
from perfkit_core.readers.load import load
from perfkit_core.trace.model.report_data import Report, Section
from perfkit_core.trace.model.trace import Trace
from tests.support.compared import attributed
from tests.support.events import host, trace

NAMES = {"mm": "matmul", "act": "relu", "sum": "sum"}
PAIRS = [("h100-vit", "mi300x-vit"), ("pairs/resnet50-workers0", "pairs/resnet50-workers4")]


def run(mm: int, act: int, total: int) -> Trace:
    rows = [
        host("step 0", "step", 0, 40 + mm + act + total, step=0),
        host("mm", "operator", 0, mm, phase="forward", module="fc"),
        host("act", "operator", mm, act, phase="forward", module="act"),
        host("sum", "operator", mm + act, total, phase="other"),
    ]
    return trace(rows, names=NAMES.get)


@pytest.fixture(scope="module")
def tree() -> pd.DataFrame:
    return attributed(run(100, 50, 10), run(160, 30, 15))


def test_causes_are_ranked_and_explain_the_whole(tree: pd.DataFrame) -> None:
    """The total of +45 ns consists of +60, −20 and +5 ns. The 40 ns at the end do not differ."""
    found = causes(tree)
    assert found["operator"].tolist() == ["matmul", "relu", "sum", "not recorded"]
    assert found["difference_ns"].tolist() == [60, -20, 5, 0]
    assert found["explained_ratio"].tolist() == pytest.approx([60 / 45, 40 / 45, 1, 1])
    assert found["per_call_effect_ns"].tolist() == [60, -20, 5, 0]


def test_the_effects_of_a_cause_are_those_of_its_calls() -> None:
    """Three calls of 100 ns in one layer become six calls of 20 ns in another layer. Over both layers, there is a count
    effect of 180 ns and a per-call effect of −360 ns. For each layer, the whole difference is count effect."""
    sides = []
    for layer, calls, dur in (("fc", 3, 100), ("act", 6, 20)):
        work = [host("mm", "operator", 20 + i * dur, dur, phase="forward", module=layer) for i in range(calls)]
        both = [host("act", "operator", at, 10, phase="forward", module=name) for name, at in (("fc", 0), ("act", 10))]
        sides.append(trace([host("step 0", "step", 0, 20 + calls * dur, step=0), *both, *work], names=NAMES.get))
    tree = attributed(*sides)
    matmul = causes(tree).iloc[0]
    names = ("base_calls", "other_calls", "difference_ns", "count_effect_ns", "per_call_effect_ns")
    assert [matmul[name] for name in names] == [3, 6, -180, 180, -360]
    assert by_family(causes(tree))["count_effect_ns"].tolist() == [180, 0]
    assert by_layer(tree)["count_effect_ns"].tolist() == [-300, 120]


def test_layers_sum_to_the_whole(tree: pd.DataFrame) -> None:
    found = by_layer(tree)
    assert dict(zip(found["layer"], found["difference_ns"], strict=True)) == {"fc": 60, "act": -20, "(no layer)": 5}


def test_the_picture_goes_from_base_to_other(tree: pd.DataFrame) -> None:
    steps = waterfall(grouped(causes(tree), [tree]), ("base", 200), ("other", 245), shown=2)
    assert steps["name"].tolist() == ["base", "matmul, forward", "relu, forward", REST, "other"]
    assert steps["difference_ns"].tolist() == [pd.NA, 60, -20, 5, pd.NA]
    assert steps["time_so_far_ns"].tolist() == [200, 260, 240, 245, 245]
    section = Section(
        "waterfall", "From base to other", steps, chart=_chart(comparison_report(run(1, 1, 1), run(2, 1, 1)))
    )
    drawn = charts.figure(section)
    assert drawn is not None
    assert drawn["differences"] == [None, 60, -20, 5, None]
    assert drawn["reached"] == [200, 260, 240, 245, 245]
    assert drawn["texts"] == ["200", "+60", "-20", "+5", "245"]


def _chart(report: Report) -> object:
    (section,) = (one for one in report.sections if one.name == "waterfall")
    assert section.chart is not None
    assert section.chart.kind == "waterfall"
    return section.chart


def test_equal_runs_have_no_cause() -> None:
    one = run(100, 50, 10)
    tree = attributed(one, one)
    found = causes(tree)
    assert waterfall(grouped(found, [tree]), ("base", 200), ("other", 200), shown=2).empty
    assert (found["difference_ns"] == 0).all()
    assert found["explained_ratio"].isna().all()


@pytest.mark.parametrize(("base", "other"), PAIRS)
def test_a_page_explains_nearly_all_below_the_phases(traces: Path, base: str, other: str) -> None:
    """At least 95 % of the absolute differences have a name below their phase, such as an operator or a kernel. The
    plain data sums to the difference of the step times."""
    report = comparison_report(*(load(traces / "torch" / f"{name}.json.gz") for name in (base, other)))
    found = {section.name: section.table for section in report.sections}
    changed = found["causes"]["difference_ns"].abs()
    named = found["causes"]["operator"].ne("(no launch recorded)") & found["causes"]["phase"].ne("")
    family = found["causes"]["family"].ne("(no family)") & found["causes"]["phase"].ne("")
    assert changed[named | family].sum() >= 0.95 * changed.sum()
    assert found["causes"]["difference_ns"].sum() == report.data["step_time"]["difference"]
    assert sum(row["difference_ns"] for row in report.data["attribution"]) == report.data["step_time"]["difference"]
    rows = pd.DataFrame(report.data["attribution_tree"])
    leaves = rows[~rows.index.isin(rows["parent"])]
    assert leaves["difference_ns"].sum() == report.data["step_time"]["difference"]


def test_the_loader_is_the_first_cause_of_the_recorded_pair(traces: Path) -> None:
    """ResNet50 was trained without loader workers and with four workers. The loader saves more than the total
    difference, because the workers slow down other host work."""
    sides = [load(traces / "torch" / "pairs" / f"resnet50-workers{workers}.json.gz") for workers in (0, 4)]
    found = causes(attributed(*sides))
    assert found.loc[0, ["operator", "phase", "category"]].tolist() == ["waiting for data", "dataloader", "input"]
    by_category = found.groupby("category")["difference_ns"].sum()
    assert by_category["input"] < found["difference_ns"].sum() < 0 < by_category["host"]


def test_families_and_kernels_sum_to_the_tree(traces: Path) -> None:
    """Families sum to the total difference, and kernels and copies sum to the device categories."""
    sides = [load(traces / "torch" / f"{device}-vit.json.gz") for device in ("h100", "mi300x")]
    tree = attributed(*sides)
    families, kernels = by_family(causes(tree)), by_kernel(tree)
    assert families["difference_ns"].sum() == tree["difference_ns"].iloc[0]
    assert families["explained_ratio"].iloc[-1] == pytest.approx(1)
    on_device = tree[(tree["level"] == "category") & (tree["place"] == "device")]
    for side in ("base_ns", "other_ns"):
        assert kernels[side].sum() == on_device[side].sum()
    assert kernels["difference_ns"].abs().is_monotonic_decreasing
    vendors = kernels["kernel"].str.startswith("Cijk_")
    assert (kernels.loc[vendors, "base_calls"] == 0).all()
    assert vendors.any()


def test_device_times_are_missing_where_there_is_no_device(traces: Path) -> None:
    cpu, gpu = (load(traces / "torch" / f"{name}.json.gz") for name in ("cpu-only-rank34", "v100-ns-resolution"))
    found = {section.name: section.table for section in comparison_report(cpu, gpu).sections}
    for name in ("operators", "unmatched"):
        assert found[name][["base_device_ns", "difference_device_ns"]].isna().all(axis=None)
        assert found[name]["other_device_ns"].sum() > 0
    assert by_kernel(attributed(cpu, cpu)).empty
