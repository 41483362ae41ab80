"""The view ``code``, against numbers worked out by hand: frames from events, frames from operator stacks, and the parts
of frame names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.views import code
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

MAIN, FORWARD, CALL = "/home/me/train.py(3): main", "/home/me/net.py(9): forward", "<built-in function linear>"

FRAMES = [
    host("step 0", "step", 0, 500, step=0),
    host(MAIN, "python", 0, 400),
    host(FORWARD, "python", 10, 100),
    host(CALL, "python", 20, 50),
    host("mm", "operator", 30, 30),
    host("launch", "runtime", 40, 10, correlation=1),
    device("k1", "kernel", 100, 70, correlation=1),
    host("sum", "operator", 80, 20),
    host("launch", "runtime", 85, 5, correlation=2),
    device("k2", "kernel", 200, 30, correlation=2),
    host(FORWARD, "python", 200, 60),
    host(FORWARD, "python", 210, 20),
    host("step 1", "step", 500, 500, step=1),
    host(MAIN, "python", 510, 100),
    host("alone", "operator", 700, 50, tid=2),
]

STACKS = [
    host("mm", "operator", 0, 100, stack="net.py(9): forward;train.py(3): main"),
    host("inner", "operator", 10, 40),
    host("launch", "runtime", 20, 10, correlation=1),
    device("k1", "kernel", 100, 70, correlation=1),
    host("mm", "operator", 200, 50, stack="net.py(9): forward;train.py(3): main"),
    host("add", "operator", 300, 7, stack="train.py(3): main"),
    host("none", "operator", 400, 9),
]


LONG = [  # main, loop and a function of another thread begin before the steps and run during all of them
    host(MAIN, "python", 0, 1000),
    host("loop.py(1): loop", "python", 10, 980),
    host("thread.py(1): run", "python", 20, 970, tid=2),
    host("step 0", "step", 100, 200, step=0),
    host(FORWARD, "python", 110, 100),
    host(CALL, "python", 120, 30),
    host("thread.py(9): put", "python", 130, 20, tid=2),
    host("step 1", "step", 300, 200, step=1),
    host(FORWARD, "python", 310, 40),
]


def test_frames_of_code() -> None:
    """Frames that begin before the chosen step count the calls in it."""
    equal = trace([host(f"{name}.py(1): f", "python", 10 * at, 5) for at, name in enumerate("cab")])
    methods = [host(f"<built-in method to of Tensor object at 0x7f{i}a>", "python", 10 * i, 5) for i in range(4)]
    check_tables("views/code.txt", {
        "frames recorded as events": view_table("code", trace(FRAMES)),
        "step 1": view_table("code", trace(FRAMES), steps=(1,)),
        "pattern net|k": view_table("code", trace(FRAMES), pattern="net|k"),
        "step 0 of frames that run during all steps": view_table("code", trace(LONG), steps=(0,)),
        "frames from the stacks of operators": view_table("code", trace(STACKS)),
        "frames of equal weight are in alphabetical order": view_table("code", equal),
        "methods of different objects are one frame": view_table("code", trace(methods)),
    })  # fmt: skip


def test_sums_of_the_displayed_frames_of_a_step() -> None:
    shown = summarize(trace(LONG), "code", steps=[0], displayed_only=True, hide="forward|put")
    assert shown[["name", "total_cpu_ns"]].to_numpy().tolist() == [
        ["train.py(3): main", 30],
        ["loop.py(1): loop", 30],
        [CALL, 30],
        ["thread.py(1): run", 0],
    ]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("/a/b c/train.py(12): main", ("train.py(12): main", "/a/b c/train.py", 12, "main")),
        (r"C:\net\model.py(7): <lambda>", ("model.py(7): <lambda>", r"C:\net\model.py", 7, "<lambda>")),
        ("/opt/common.py:233 fc_base", ("common.py(233): fc_base", "/opt/common.py", 233, "fc_base")),
        ("<string>(1): __init__", ("<string>(1): __init__", "<string>", 1, "__init__")),
        ("net.py(5)", ("net.py(5)", "net.py", 5, None)),
        ("<built-in function linear>", ("<built-in function linear>", None, None, None)),
        ("nn.Module: Linear_0", ("nn.Module: Linear_0", None, None, None)),
    ],
)
def test_file_line_and_function(name: str, parts: tuple[Any, ...]) -> None:
    found = code.split_names([name])
    assert (
        tuple(None if pd.isna(found[key][0]) else found[key][0] for key in ("name", "file", "line", "function"))
        == parts
    )


def test_without_stacks_the_view_explains_how_to_record_them() -> None:
    found = trace([host("mm", "operator", 0, 10)])
    assert view_table("code", found).empty
    assert "with_stack" in str(code.VIEW.explain_empty(found))
    paddle = str(code.VIEW.explain_empty(found.with_meta(framework="paddle")))
    assert "perfkit.paddle.annotate(model) labels the layers" in paddle
    assert "with_stack" not in paddle
