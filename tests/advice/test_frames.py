"""Samples of Python frames: which line runs at an operator, and what fills a gap."""

from __future__ import annotations

import re

import numpy as np
import pytest

from perfkit_core.advice.frames import frames
from perfkit_core.trace.model import frame_samples
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import op, steps
from tests.support.side_facts import with_samples

LOOP = "/env/lib/python3.11/site-packages/torch/functional.py(3): add;/home/train.py(7): loop;/home/train.py(20): main"
WAIT = "/home/train.py(9): wait;/home/train.py(21): main"
SAVE = "/env/lib/python3.11/site-packages/torch/serialization.py(9): save;/home/train.py(30): main"


def recording(**times: list[int]) -> Trace:
    """Return a step with two operators of 20 µs, and a gap of 40 µs between them. ``times`` are in µs."""
    stacks = {"loop": LOOP, "wait": WAIT, "save": SAVE}
    samples = sorted((at, list(times).index(name)) for name, every in times.items() for at in every)
    after, stack = zip(*samples, strict=True)
    held = FrameSamples(tuple(stacks[name] for name in times), after, stack)
    rows = [op("aten::mm", 0, 20), op("aten::add", 60, 20)]
    return with_samples(steps(rows, count=1), held).with_meta(framework="torch")


def row(trace: Trace, name: str) -> np.ndarray:
    return np.flatnonzero(trace.rows("name", name))


def test_the_line_that_runs_at_an_operator() -> None:
    trace = recording(loop=[5, 70], wait=[90])
    assert frames(trace).line_of(trace, row(trace, "aten::mm")) == "/home/train.py:7 (loop)"


def test_a_sample_between_two_operators_counts_for_both() -> None:
    trace = recording(loop=[40])
    for name in ("aten::mm", "aten::add"):
        assert frames(trace).line_of(trace, row(trace, name)) == "/home/train.py:7 (loop)"


def test_a_sample_beside_an_operator_counts_if_none_is_in_it() -> None:
    """After an update, the sample may already be in the code that makes the next batch."""
    for times, line in (({"loop": [5], "wait": [30, 40]}, "7 (loop)"), ({"wait": [30, 40]}, "9 (wait)")):
        trace = recording(**times)
        assert frames(trace).line_of(trace, row(trace, "aten::mm")) == f"/home/train.py:{line}"


def test_the_most_frequent_line_is_taken() -> None:
    trace = recording(loop=[5, 10], wait=[15])
    assert frames(trace).line_of(trace, row(trace, "aten::mm")) == "/home/train.py:7 (loop)"
    trace = recording(loop=[5], wait=[10, 15])
    assert frames(trace).line_of(trace, row(trace, "aten::mm")) == "/home/train.py:9 (wait)"


def test_what_fills_a_gap() -> None:
    sampled = frames(recording(loop=[5], wait=[30, 40], save=[50, 70]))
    inside = sampled.inside((np.array([20_000]), np.array([60_000])))
    assert inside.tolist() == [False, True, True, True, False]
    lines = sampled.most_common(inside)
    assert lines[0] == ("/home/train.py:9 (wait)", pytest.approx(2 / 3))
    assert sampled.reports.tolist() == [False, False, False, True, True]


def test_code_that_builds_the_arguments_of_a_call() -> None:
    convert = "/env/paddle/tensor/creation.py(9): to_tensor;"
    stacks = (
        convert + "/home/train.py(7): batch;/home/train.py(20): main",
        "/home/train.py(5): <listcomp>;/home/train.py(5): batch;/home/train.py(20): main",
        "/home/train.py(6): batch;/home/train.py(20): main",
        "/home/data.py(6): read;/home/train.py(4): batch;/home/train.py(20): main",
        "/home/train.py(21): main",
    )
    held = FrameSamples(stacks, (0, 1, 2, 3, 4), (0, 1, 2, 3, 4))
    sampled = frames(with_samples(steps([op("add", 0, 20)], count=1), held).with_meta(framework="paddle"))
    assert sampled.naming(re.compile("to_tensor")).tolist() == [True, False, False, False, False]
    assert sampled.preparing(re.compile("to_tensor")).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("name", ["save", "log_metrics", "print_table", "histogram", "write_row", "SummaryWriter.log"])
def test_names_of_functions_that_write(name: str) -> None:
    held = FrameSamples((f"/home/train.py(3): {name};/home/train.py(9): main",), (0,), (0,))
    assert frames(with_samples(steps([op("mm", 0, 1)]), held)).reports.tolist() == [True]


@pytest.mark.parametrize("name", ["login", "logits", "catalog", "sprint", "forward", "blog", "preserve"])
def test_names_that_only_contain_such_words(name: str) -> None:
    held = FrameSamples((f"/home/save/train.py(3): {name};/logs/a/train.py(9): main",), (0,), (0,))
    assert frames(with_samples(steps([op("mm", 0, 1)]), held)).reports.tolist() == [False]


def test_without_samples_there_is_no_line() -> None:
    trace = steps([op("aten::mm", 0, 20)])
    assert len(frames(trace)) == 0
    assert frames(trace).line_of(trace, row(trace, "aten::mm")) is None


def test_samples_of_several_cycles_are_joined() -> None:
    first = FrameSamples(("a", "b"), (0, 5), (0, 1), start_ns=10_000)
    second = FrameSamples(("b",), (1,), (0,), start_ns=20_000)
    tables = [frame_samples.to_table({"-": samples}) for samples in (second, first)]
    both = frame_samples.of_table(frame_samples.TABLE.join(tables))["-"]
    assert both.at_ns.tolist() == [10_000, 15_000, 21_000]
    assert [both.stacks[stack] for stack in both.stack] == ["a", "b", "b"]
