"""What earlier outcomes change in a prediction."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from perfkit_core.advice.experience import _TAIL, Experience, _quantile, experience, gain, miss, outcomes, saving
from perfkit_core.measure.verify.ledger import Record

REPLAYED = (0.2, 0.3, 0.4)


def outcome(replayed: float | None, measured: float | None, rule: str = "casts", version: int = 1) -> Record:
    return Record(
        date="", outcome="verified", base="", change="", rule=rule, rule_version=version, runtime="host",
        replayed_saving_ratio=replayed, saving_ratio=measured,
    )  # fmt: skip


def test_without_outcomes_the_replay_stays() -> None:
    assert Experience().adjusted(REPLAYED) == REPLAYED


def test_without_outcomes_an_exact_replay_still_has_an_interval() -> None:
    """A saving of 0.2 is a gain of 0.2231. A spread of 0.15 widens it by 1.638 (quantile 0.9 of Student's t with three
    degrees of freedom) · 0.15 · √2 · (0.2231 + 0.02) = 0.0845 on each side, but not below 0."""
    found = Experience(least_spread=0.15)
    assert found.adjusted((0.2, 0.2, 0.2)) == pytest.approx((0.1295, 0.2, 0.2648), abs=5e-4)
    assert found.adjusted((0.01, 0.2, 0.7)) == pytest.approx((0.01, 0.2, 0.7))
    assert found.adjusted((0.003, 0.003, 0.003))[0] == 0
    assert found.adjusted((-0.2, 0.003, 0.003))[0] == pytest.approx(-0.2)
    assert experience([], "a-rule", 1, "device").least_spread == 0.15


def test_gains_of_a_saving_and_of_the_loss_that_undoes_it_add_up_to_0() -> None:
    assert gain(0.5) == pytest.approx(-gain(-1.0))
    assert saving(gain(0.37)) == pytest.approx(0.37)
    assert math.isfinite(gain(1.0))


def test_right_predictions_keep_the_middle_and_narrow_the_interval() -> None:
    few, many = (Experience((0.0,) * count).adjusted(REPLAYED) for count in (2, 20))
    assert few[1] == many[1] == pytest.approx(0.3)
    assert few[0] < many[0] < 0.3 < many[2] < few[2]


def test_a_bias_moves_the_prediction() -> None:
    low, mid, high = Experience((1.0, 1.1, 0.9, 1.0)).adjusted(REPLAYED)
    assert saving(2 * gain(0.3)) > mid > 0.3  # the prior mean of 0 keeps it below twice the gain
    assert low < mid < high


def test_scattered_outcomes_widen_the_interval() -> None:
    exact, scattered = (Experience(misses).adjusted(REPLAYED) for misses in ((0.1,) * 6, (-0.9, 1.1) * 3))
    assert scattered[0] < exact[0]
    assert scattered[2] > exact[2]


def test_only_a_rule_whose_fix_has_cost_time_may_cost_time() -> None:
    misses = (-0.9, 1.1) * 3
    assert Experience(misses).adjusted(REPLAYED)[0] == 0
    assert Experience(misses, harmful=True).adjusted(REPLAYED)[0] < 0
    assert Experience(misses).adjusted((-0.1, 0.3, 0.4))[0] < 0  # the replay says so
    records = [outcome(0.3, measured) for measured in (0.3, 0.1)]
    assert not experience(records, "casts", 1, "host").harmful
    lost = dataclasses.replace(outcome(0.3, -0.2), saving_low_ratio=-0.3, saving_high_ratio=-0.1)
    assert experience([*records, lost], "casts", 1, "host").harmful


def test_the_interval_covers_four_of_five_outcomes_of_a_rule() -> None:
    """Draw rules with a bias and a spread, their outcomes, and one more outcome, which the prediction must cover."""
    draw, covered, rounds = np.random.default_rng(7), 0, 2000
    for _ in range(rounds):
        bias, spread = draw.normal(0, 0.3), draw.uniform(0.1, 0.5)
        *known, new = draw.normal(bias, spread, draw.integers(2, 9)).tolist()
        low, _, high = Experience(tuple(known)).adjusted(REPLAYED)
        covered += low <= saving(gain(0.3) + (gain(0.3) + 0.02) * new) <= high
    assert 0.75 <= covered / rounds <= 0.9


def test_only_outcomes_of_the_same_rule_version_and_kind_of_device_count() -> None:
    records = [outcome(0.3, 0.3), outcome(0.3, 0.5, version=2), outcome(0.3, 0.9, rule="other"), outcome(None, 0.3)]
    assert len(experience(records, "casts", 1, "host").misses) == 1
    assert len(experience(records, "casts", 2, "host").misses) == 1
    assert experience(records, "casts", 1, "device").misses == ()


def test_a_miss_is_relative_to_the_replayed_gain() -> None:
    assert miss(outcome(0.3, 0.3)) == 0
    assert miss(outcome(0.0, saving(0.02))) == pytest.approx(1)
    assert miss(outcome(0.3, None)) is None


@pytest.mark.parametrize(("freedom", "quantile"), [(3, 1.6377), (5, 1.4759), (10, 1.3722), (100, 1.2901)])
def test_quantiles_of_students_distribution(freedom: int, quantile: float) -> None:
    """Values from the table of Abramowitz and Stegun, 26.10, for 0.9."""
    assert _TAIL == 0.9
    assert _quantile(freedom) == pytest.approx(quantile, rel=0.01)


def test_the_shipped_outcomes_can_be_used() -> None:
    assert outcomes()
    for record in outcomes():
        named = (record.rule, record.rule_version, record.framework, record.framework_version, record.runtime)
        assert all(named)
        assert miss(record) is not None
