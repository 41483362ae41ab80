"""Tests of the labels of runs and of the causes of a difference."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.base.language.messages import speaking
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.attribute.causes import labels
from perfkit_core.compare.attribute.leaves import nothing_before
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
    operator: str, family: str = "matmul", phase: str = "forward", category: str = "device_compute"
) -> dict[str, str]:
    return {"operator": operator, "family": family, "phase": phase, "category": category}


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (row("conv_grad", "conv", "backward"), "conv_grad, backward, on the device"),
        (row("(data loader)", "(outside operators)", "dataloader", "input_wait"), "data loader, waiting for input"),
        (row("(Python code)", "(outside operators)", category="launch_and_host"), "Python code, forward, on the host"),
        (row("(outside operators)", "(outside operators)", category="framework"), "outside operators, forward"),
        (row("(outside operators)", "copy", category="exposed_copy"), "copy outside operators, forward, exposed copy"),
        (row("(no launch recorded)", "matmul", "(no phase)"), "matmul without a recorded launch, on the device"),
        (row("read#_Iter.__next__", category="launch_and_host"), "read#_Iter.__next__, forward, on the host"),
        (
            row("(nothing recorded before __next__)", "(nothing recorded)", "other", "idle"),
            "nothing recorded before __next__",
        ),
        (row("(nothing recorded at the end)", "(nothing recorded)", "", "idle"), "nothing recorded at the end"),
    ],
)
def test_labels_of_causes(cause: dict[str, str], said: str) -> None:
    tree = pd.DataFrame({"name": ["__next__", cause["operator"]]})
    assert list(labels(pd.DataFrame([cause]), [tree])) == [said]


def test_a_part_named_as_its_category_is_printed_once() -> None:
    with speaking("zh"):
        cause = pd.DataFrame([row(BESIDE_MEDIAN, "", "", BESIDE_MEDIAN)])
        assert list(labels(cause, [])) == ["中位数减去中间各步的平均"]


def test_idle_time_is_translated_and_the_name_after_it_is_not() -> None:
    cause = pd.DataFrame([row("(nothing recorded before (mine) add)", "(nothing recorded)", "other", "idle")])
    with speaking("zh"):
        (found,) = labels(cause, [pd.DataFrame({"name": ["add", "(mine) add"]})])
    assert found == "在 (mine) add 之前没有任何记录"


def test_operators_with_names_in_parentheses_keep_them() -> None:
    assert list(labels(pd.DataFrame([row("(mine)")]), [])) == ["(mine), forward, on the device"]


def test_time_before_python_code_has_one_pair_of_parentheses() -> None:
    assert nothing_before("(Python code)") == "(nothing recorded before Python code)"
