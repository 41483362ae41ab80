"""The list of the largest causes, from small trees."""

from __future__ import annotations

import pandas as pd

from perfkit_core.causes.largest import largest

TREE = pd.DataFrame(
    [
        (0, "host", 60, "train.py:3 (step)"),
        (1, "input", 45, "data.py:7 (decode)"),
        (2, "decode_jpeg", 40, "data.py:7 (decode)"),
        (1, "not recorded", 15, None),
        (0, "compute", 35, None),
        (1, "mm", 30, "model.py:9 (forward)"),
        (2, "gemm_128x64", 20, None),
        (2, "gemm_64x64", 10, None),
        (0, "tail", 5, None),
    ],
    columns=["depth", "cause", "total_ns", "place"],
)  # fmt: skip


def test_innermost_causes_are_listed_with_what_remains_of_those_around_them() -> None:
    """Kernels are parts of mm. Of input, 5 ns are in no event, and of computing 5 ns in no operator."""
    found = largest(TREE, on_device=True)
    assert found.fillna("").to_numpy().tolist() == [
        ["host", "decode_jpeg", 40, 0.40, "data.py:7 (decode)"],
        ["compute", "mm", 30, 0.30, "model.py:9 (forward)"],
        ["host", "not recorded", 15, 0.15, ""],
        ["host", "input", 5, 0.05, "data.py:7 (decode)"],
        ["compute", "", 5, 0.05, ""],
        ["tail", "", 5, 0.05, ""],
    ]
    assert largest(TREE, on_device=False)["state"].tolist()[0] == "no_operator"


def test_causes_below_two_percent_are_one_row() -> None:
    small = pd.DataFrame(
        [(0, "compute", 1_000, None), *((1, f"op{at}", 10 + 90 * (at < 9), None) for at in range(19))],
        columns=["depth", "cause", "total_ns", "place"],
    )
    found = largest(small, on_device=True)
    assert found["state"].tolist() == ["compute"] * 9 + ["rest"]
    assert found["total_ns"].tolist() == [100] * 9 + [100]
    assert found["total_ns"].sum() == 1_000
    many = small.assign(total_ns=[19_000, *[1_000] * 19])
    assert largest(many, on_device=True)["total_ns"].tolist() == [1_000] * 12 + [7_000]
