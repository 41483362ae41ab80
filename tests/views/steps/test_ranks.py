"""The view ``ranks``: numbers worked out by hand, and consistency with the views ``partition`` and ``steps``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import concat_traces
from perfkit_core.views.merging import reduction, table_of
from perfkit_core.views.steps import partition
from tests.support.ranks import collective, rank


def test_time_outside_communication_excludes_waiting_for_other_ranks() -> None:
    first = rank(0, collective(1000, 3000), step_ns=5000)
    second = rank(1, collective(2500, 3000), step_ns=7000)
    third = rank(2, collective(2000, 3000), step_ns=6000)
    found = table_of(partition.RANKS_VIEW, concat_traces([first, second, third]), ViewRequest()).set_index("rank")
    assert found["dur_ns"].tolist() == [5000, 7000, 6000]
    assert found["dur_over_median_ns"].tolist() == [-1000, 1000, 0]
    assert found["own_time_ns"].tolist() == [3000, 6500, 5000]
    assert found["own_time_over_median_ns"].tolist() == [-2000, 1500, 0]


def test_the_median_of_an_even_number_is_the_lower_middle_value() -> None:
    found = table_of(
        partition.RANKS_VIEW,
        concat_traces([rank(number, collective(1000, 3000), step_ns=5000 + 2000 * number) for number in (0, 1)]),
        ViewRequest(),
    )
    assert found["dur_over_median_ns"].tolist() == [0, 2000]


def test_a_step_that_one_rank_recorded_has_no_median() -> None:
    partials = [partition.by_step(rank(number, collective(1000, 3000)), ViewRequest()) for number in (0, 1)]
    partials[1] = pd.concat([partials[1], partials[1].assign(step=8)], ignore_index=True)
    found = reduction(partition.RANKS_VIEW).merge(partials, ViewRequest())
    assert found["dur_over_median_ns"].isna().tolist() == [False, False, True]
    assert found["own_time_ns"].notna().all()


def test_a_single_rank_has_no_rows() -> None:
    alone = rank(0, collective(1000, 3000))
    assert table_of(partition.RANKS_VIEW, alone, ViewRequest()).empty
    assert "only one rank" in str(partition.RANKS_VIEW.explain_empty(alone))


@pytest.mark.parametrize("file", ["dlrm-8xv100"])
def test_parts_of_real_steps_sum_to_the_steps_and_to_the_partition(traces: Path, file: str) -> None:
    trace = perfkit_core.load(traces / "torch" / file)
    found = table_of(partition.RANKS_VIEW, trace, ViewRequest())
    parts = found.iloc[:, 6:]
    assert parts.sum(axis=1).tolist() == found["dur_ns"].tolist()
    whole = perfkit_core.summarize(trace, "partition").set_index("category")["total_ns"]
    assert {f"{name}_ns": total for name, total in whole.items()} == parts.sum().to_dict()
    steps = perfkit_core.summarize(trace, "steps")
    assert (
        found[["rank", "step", "dur_ns"]].to_numpy().tolist() == steps[["rank", "step", "dur_ns"]].to_numpy().tolist()
    )
