"""Tests of comparisons with an earlier pair of runs: the change of the difference, its verdict and its causes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfkit_core.compare.against import Change, against_report, change, new_causes, new_layers
from perfkit_core.compare.pair import CompareOptions, pair
from perfkit_core.trace.model.trace import Trace
from tests.support.compared import attributed
from tests.support.events import host, trace
from tests.support.rendered import rendered
from tests.support.stepped_trace import MS, stepped_trace

NAMES = {"mm": "matmul", "act": "relu", "gemm": "matmul", "swish": "silu"}
QUIET = CompareOptions(noise=0.01)
STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]


def run(product: int, activation: int, names: tuple[str, str] = ("mm", "act")) -> Trace:
    """Return a trace of one step with two layers of one operator each."""
    rows = [
        host("step 0", "step", 0, product + activation, step=0),
        host(names[0], "operator", 0, product, phase="forward", module="fc"),
        host(names[1], "operator", product, activation, phase="forward", module="act"),
    ]
    return trace(rows, names=NAMES.get)


def steps(ms: list[float], times: float = 1.0, operator: float = 1.0) -> Trace:
    return stepped_trace([one * times for one in ms], operator)


@pytest.fixture(scope="module")
def trees() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the trees of an earlier and a later pair of runs. The product differs by 100 and 103 ns, and the
    activation by 2 and 32 ns."""
    before = attributed(run(100, 10), run(200, 12, ("gemm", "act")))
    return before, attributed(run(100, 10), run(203, 42, ("gemm", "act")))


def test_a_difference_of_both_pairs_cancels_out(trees: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """The difference of the runs grows by 33 ns. The activation causes 30 of these, although the product differs
    more."""
    found = new_causes(*trees)
    assert found["operator"].tolist() == ["relu", "matmul"]
    assert found["before_difference_ns"].tolist() == [2, 100]
    assert found["now_difference_ns"].tolist() == [32, 103]
    assert found["difference_ns"].tolist() == [30, 3]
    assert found["explained_ratio"].tolist() == pytest.approx([30 / 33, 1])
    layers = new_layers(*trees)
    assert dict(zip(layers["layer"], layers["difference_ns"], strict=True)) == {"act": 30, "fc": 3}


def test_an_operator_of_one_pair_is_0_in_the_other() -> None:
    before = attributed(run(100, 10), run(100, 10))
    now = attributed(run(100, 10), run(100, 25, ("mm", "swish")))
    found = new_causes(before, now).set_index("operator")["difference_ns"]
    assert found.to_dict() == {"silu": 25, "relu": -10, "matmul": 0}


def test_swapping_the_pairs_only_changes_the_sign(trees: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    there, back = new_causes(*trees), new_causes(*trees[::-1])
    assert (there["difference_ns"] == -back["difference_ns"]).all()
    assert there["operator"].tolist() == back["operator"].tolist()


def test_equal_pairs_have_nothing_new(trees: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    assert (new_causes(trees[1], trees[1])["difference_ns"] == 0).all()


def test_a_run_of_both_pairs_cancels_out() -> None:
    """If both pairs share the base, the interval and the noise are those of the two other runs."""
    base, old, new = steps(STEADY, 3), steps(STEADY), steps(STEADY, 1.1)
    found = change(pair([base], [old], QUIET), pair([base], [new], QUIET))
    alone = pair([old], [new], QUIET).steps
    assert found is not None
    assert alone is not None
    assert (found.before, found.now, found.change) == (-40 * MS, -38 * MS, 2 * MS)
    assert (found.low, found.high, found.noise, found.verdict) == (alone.low, alone.high, alone.noise, "slower")
    turned = change(pair([old], [base], QUIET), pair([new], [base], QUIET))
    assert turned is not None
    assert (turned.change, turned.low, turned.high, turned.verdict) == (-2 * MS, -alone.high, -alone.low, "faster")


def test_independent_pairs_have_a_wider_interval() -> None:
    """The noise of two independent pairs is the root of the sum of squares."""
    base, old = steps([one + 0.1 for one in STEADY], 3), steps(STEADY)
    before = pair([base], [old], QUIET)
    now = pair([steps(STEADY, 3)], [steps(STEADY, 1.5)], QUIET)
    found = change(before, now)
    assert isinstance(found, Change)
    assert before.steps is not None
    assert now.steps is not None
    assert found.noise == round(np.hypot(before.steps.noise, now.steps.noise))
    assert found.low < found.change < found.high
    low = found.change - np.hypot(now.steps.difference - now.steps.low, before.steps.high - before.steps.difference)
    assert found.low == round(low)
    assert found.verdict == "slower"


def test_a_change_within_noise_is_possibly_new() -> None:
    """Other becomes 10 % slower, in single captures of processes that differ by 20 %."""
    base, loud = steps(STEADY, 3), CompareOptions(noise=0.2)
    found = against_report(([base], [steps(STEADY, 1.1)]), ([base], [steps(STEADY)]), loud, ("theirs", "ours"))
    assert rendered(found.headline)[0].startswith(
        "A new slowdown or machine noise: since the earlier pair of runs, the difference in step time (other run minus "
        "base run) changed by +2.00 ms"
    )
    assert found.data["new"]["step_time"]["verdict"] == "slower, perhaps noise"


def test_single_steps_are_too_few() -> None:
    found = change(pair([run(100, 10)], [run(200, 12)], QUIET), pair([run(101, 10)], [run(200, 42)], QUIET))
    assert found == Change(102, 131, None, None, None, "too few steps to tell")


def test_without_steps_there_is_no_change_of_them() -> None:
    without = run(1, 1).slice(1, 3)
    assert change(pair([without], [without], QUIET), pair([without], [without], QUIET)) is None
