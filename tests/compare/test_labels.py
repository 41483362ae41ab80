"""Tests of the labels of runs and of the causes of a difference."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.base.language.messages import speaking
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.attribute.causes import labels
from perfkit_core.compare.pair import LONGEST, distinguishing


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["runs/main", "runs/change"], ["main", "change"]),
        (["a/main/rank0.json.gz", "a/change/rank0.json.gz"], ["main", "change"]),
        (["/x/torch/h100.json.gz", "/y/paddle/cpu/cycle0.pb"], ["h100", "cycle0"]),
        (["/x/torch/t.json", "/y/paddle/t.json", "/y/torch/t.json"], ["x/torch", "y/paddle", "y/torch"]),
        (["runs/one.json.gz", "runs/one.pb"], ["one.json.gz", "one.pb"]),
        (["run", "run"], ["run (1)", "run (2)"]),
        ([".", "run"], [".", "run"]),
    ],
)
def test_labels_are_the_parts_of_paths_that_differ(paths: list[str], labels: list[str]) -> None:
    assert distinguishing([Path(path) for path in paths]) == labels


def test_long_labels_keep_their_ends() -> None:
    found = distinguishing([Path(f"worker.{'x' * 100}.{name}") for name in ("first", "second")])
    assert [len(one) for one in found] == [LONGEST, LONGEST]
    assert [one.rsplit(".", 1)[1] for one in found] == ["first", "second"]


def test_long_labels_lose_the_words_that_all_end_with() -> None:
    names = [f"rank00000-cycle{number:05d}-a-machine-12-8ca654218e6c.perfkit.parquet" for number in range(2)]
    assert distinguishing([Path("run") / name for name in names]) == ["rank00000-cycle00000", "rank00000-cycle00001"]


def row(
    operator: str, family: str = "matmul", phase: str = "forward", category: str = "compute", place: str = "device"
) -> dict[str, str]:
    return {"operator": operator, "family": family, "phase": phase, "category": category, "place": place}


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (row("conv_grad", "conv", "backward"), "conv_grad, backward, on the device"),
        (row("matmul", place="host"), "matmul, forward"),
        (row("waiting for data", "waiting for data", "dataloader", "input"), "waiting for data"),
        (row("Python code", "Python code", category="host"), "Python code, forward, on the host"),
        (row("Python code", "Python code", category="no_operator"), "Python code, forward"),
        (row("matmul", "inside operators", category="host"), "inside operators, forward, on the host"),
        (row("not recorded", "not recorded", "", "host"), "nothing recorded"),
        (row("launch latency", "launch latency", category="latency"), "launch latency"),
        (row("(outside operators)", "copy", category="copy"), "copy outside operators, forward, exposed copy"),
        (row("(no launch recorded)", "matmul", "(no phase)"), "matmul without a recorded launch, on the device"),
        (row("read#_Iter.__next__", category="communication"), "read#_Iter.__next__, forward, exposed communication"),
        (row("(mine)"), "(mine), forward, on the device"),
    ],
)
def test_labels_of_causes(cause: dict[str, str], said: str) -> None:
    assert list(labels(pd.DataFrame([cause]), [])) == [said]


def test_the_part_beside_the_median_is_translated_without_parentheses() -> None:
    with speaking("zh"):
        cause = pd.DataFrame([row(BESIDE_MEDIAN, "", "", BESIDE_MEDIAN)])
        assert list(labels(cause, [])) == ["中位数减去中间各步的平均"]
