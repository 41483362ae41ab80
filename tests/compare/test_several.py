"""Tests of comparisons of more than two runs, with one column per run and the first run as the base."""

from __future__ import annotations

import pandas as pd

from perfkit_core.compare.explanation import OF_PARTS
from perfkit_core.compare.gate.conditions import parsed
from perfkit_core.compare.multi_run import Run, multi_run_report
from perfkit_core.compare.pair import CompareOptions
from perfkit_core.compare.report import comparison_report
from perfkit_core.output.renderers import markdown, text
from perfkit_core.output.renderers.html import page
from perfkit_core.trace.model.report_data import Report
from tests.support.rendered import rendered
from tests.support.small_trace import small_trace
from tests.support.stepped_trace import stepped_trace

STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]


def report(*runs: Run, **asked: object) -> Report:
    return multi_run_report(runs, CompareOptions(noise=0.01, **asked))


def three() -> list[Run]:
    longer = [ms * 1.5 for ms in STEADY]
    return [
        Run("a", (stepped_trace(STEADY, 1.0),)),
        Run("b", (stepped_trace(longer, 2.0),)),
        Run("c", (stepped_trace(STEADY, 1.0), stepped_trace(STEADY, 1.0))),
    ]


def table(found: Report, name: str) -> pd.DataFrame:
    return next(section.table for section in found.sections if section.name == name)


def test_summary_figures_and_verdicts() -> None:
    rows = table(report(*three()), "runs").set_index("run")
    assert rows["median_step_ns"].tolist() == [20_000_000, 30_000_000, 20_000_000]
    assert rows["difference_ns"].tolist() == [0, 10_000_000, 0]
    assert rows["verdict"].tolist() == ["base", "slower", "no difference beyond noise"]
    assert rows["steps"].tolist() == [8, 8, 16]
    assert rows["captures"].tolist() == [1, 1, 2]


def test_the_first_rows_of_every_step_are_of_all_runs() -> None:
    (steps,) = [section for section in report(*three()).sections if section.name == "steps"]
    first = steps.table.head(steps.limit)
    assert first["run"].value_counts().to_dict() == {"a": 4, "b": 3, "c": 3}
    assert steps.table.loc[steps.table["run"] == "c", "capture"].tolist() == [1] * 8 + [2] * 8
    assert steps.table.loc[steps.table["run"] == "a", "step"].tolist() == list(range(8))


def test_legends_of_charts_are_only_on_the_page() -> None:
    found = report(*three())
    said = "Each point is a step, and the vertical line is the median of the run"
    assert said in page.render(found)
    assert said not in text.render(found) + markdown.render(found)


def test_tables_have_one_column_per_run() -> None:
    """An operator takes 1 of 20 ms in the first run and 2 of 30 ms in the second. Captures of a run are pooled."""
    parts = table(report(*three()), "step_parts").set_index("name")
    assert list(parts.columns) == ["a_ns", "b_ns", "c_ns"]
    assert parts.loc["compute"].tolist() == [1_000_000, 2_000_000, 1_000_000]
    assert parts.sum().tolist() == [20_000_000, 30_000_000, 20_000_000]
    operators = table(report(*three()), "operators").set_index("name")
    assert operators.loc["fw::matmul"].tolist() == [1_000_000, 2_000_000, 1_000_000]


def test_parts_are_those_of_the_median_step_as_between_two_runs() -> None:
    """An outlying step raises the mean to 40 ms, but the median is 20 ms. The parts sum to the median."""
    one, two = stepped_trace([20, 20.2, 99.8, 20], 1.0), stepped_trace([30, 30, 30, 30], 2.0)
    found = report(Run("a", (one,)), Run("b", (two,)), Run("c", (two,)))
    parts = table(found, "step_parts").set_index("name")
    assert parts.sum().tolist() == [20_100_000, 30_000_000, 30_000_000]
    assert parts.sum().tolist() == table(found, "runs")["median_step_ns"].tolist()
    assert parts["a_ns"].to_dict() == {
        "compute": 1_000_000, "idle": 19_000_000, "(median minus mean of the middle steps)": 100_000,
    }  # fmt: skip
    of_two = table(comparison_report(one, two, CompareOptions(noise=0.01)), "step_parts").set_index("category")
    assert of_two["base_ns"].to_dict() == parts["a_ns"].to_dict()
    notes = {section.name: section.note for section in found.sections}
    assert notes["step_parts"] == OF_PARTS
    assert notes["phases"] == "Mean time per step on the host."


def test_a_run_without_steps_has_no_column_of_steps() -> None:
    without = small_trace().slice(0, 0)
    found = report(*three()[:2], Run("none", (without,)))
    assert table(found, "step_parts")["none_ns"].isna().all()
    rows = table(found, "runs").set_index("run")
    assert pd.isna(rows.loc["none", "median_step_ns"])
    assert rendered(found.headline)[-1] == "none: the run or the base has no steps."


def test_the_gate_checks_every_run() -> None:
    found = report(*three(), conditions=(parsed("step_time > 3%"),))
    gate = table(found, "gate")
    assert gate[["run", "result"]].to_numpy().tolist() == [["b", "failed"], ["c", "passed"]]
    assert [one["gate"][0]["result"] for one in found.data["runs"]] == ["passed", "failed", "passed"]


def test_each_run_has_its_amount_of_work() -> None:
    found = report(*three(), per="sample", amounts=(10, 20, 10))
    assert table(found, "runs")["per_sample_ns"].tolist() == [2_000_000, 1_500_000, 2_000_000]
    assert table(found, "runs")["difference_ns"].tolist() == [0, 10_000_000, 0]
