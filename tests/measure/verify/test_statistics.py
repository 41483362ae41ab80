"""Tests of savings, intervals and the noise floor: small samples with known results, and simulated verifications."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perfkit_core.measure.verify.runs import order
from perfkit_core.measure.verify.statistics import Measured, measured, noise_floor, saving_interval

Draw = Callable[[np.random.Generator, int], np.ndarray]


def test_a_saving_is_a_share_of_the_base() -> None:
    """The medians are 10 and 7, so the saving is three tenths. Nothing varies, so the interval has no width, and there
    is no noise."""
    found = measured([10, 10, 10, 10], [7, 7, 7])
    assert (found.base, found.change, found.base_runs, found.change_runs) == (10, 7, 4, 3)
    assert found.saving == pytest.approx(0.3)
    assert (found.saving_low, found.saving_high) == pytest.approx((0.3, 0.3))
    assert found.noise == 0
    assert found.better
    assert not found.worse


def test_a_higher_rate_is_better() -> None:
    """At 125 instead of 100 samples per second, a sample takes four fifths of the time, so the saving is one fifth."""
    found = measured([100, 100], [125, 125], higher_is_better=True)
    assert (found.base, found.change) == (100, 125)
    assert found.saving == pytest.approx(0.2)
    assert found.better
    assert measured([125, 125], [100, 100], higher_is_better=True).worse


def test_the_noise_floor_by_hand() -> None:
    """The runs 10, 10, 10 and 14 are split into halves with the medians 10 and 12. The difference is always 2, and the
    median of all runs is 10."""
    assert noise_floor(np.array([10.0, 10.0, 10.0, 14.0])) == pytest.approx(0.2)


def test_the_noise_floor_is_a_percentile_of_all_halves() -> None:
    """The halves of 1, 2, 3 and 4 are 12|34 (difference 2), 13|24 (1) and 14|23 (0), each twice. The 95th percentile of
    0, 0, 1, 1, 2 and 2 is 2, and the median of all runs is 2.5."""
    assert noise_floor(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(2 / 2.5)


def test_within_the_noise_nothing_is_better() -> None:
    """One half of the equal runs takes twice as long as the other. A saving of 8 % is within this noise, although every
    run of the change is below the median."""
    noisy = measured([10, 20, 10, 20, 10, 20], [13.8] * 6)
    assert noisy.saving == pytest.approx(0.08)
    assert not noisy.better
    assert not noisy.worse


def test_many_runs_are_halved_at_random_but_always_alike() -> None:
    runs = np.random.default_rng(5).normal(100, 5, 40)
    assert noise_floor(runs) == noise_floor(runs.copy())
    assert 0 < noise_floor(runs) < 0.1


@pytest.mark.parametrize(("base", "change"), [([1.0], [1.0]), ([], [1.0]), ([1.0, 2.0], [])])
def test_too_few_runs_are_refused(base: list[float], change: list[float]) -> None:
    with pytest.raises(ValueError, match="two runs"):
        measured(base, change)


DRAWS: dict[str, Draw] = {
    "normal": lambda draw, n: 100 + 5 * draw.standard_normal(n),
    "skewed": lambda draw, n: 100 * np.exp(0.1 * draw.standard_normal(n)),
    "outliers": lambda draw, n: np.where(draw.random(n) < 0.2, 150, 100) + draw.standard_normal(n),
    "drift": lambda draw, n: 100 + np.cumsum(draw.standard_normal(n)),
}


def _equal(draw: np.random.Generator, rounds: int, values: Draw) -> Measured:
    """Return a verification of equal commands. The values, in order of time, are assigned to the sides by the order of
    the rounds."""
    times = values(draw, 4 * rounds)
    sides = np.array([side for one in order(rounds) for side in one])
    return measured(times[sides == "base"].tolist(), times[sides == "change"].tolist())


@pytest.mark.parametrize("rounds", [3, 5])
@pytest.mark.parametrize("kind", DRAWS)
def test_equal_commands_rarely_get_a_verdict(kind: str, rounds: int) -> None:
    """At most one in twenty verifications ends with a verdict, for every kind of noise."""
    draw = np.random.default_rng(11)
    found = [_equal(draw, rounds, DRAWS[kind]) for _ in range(160)]
    assert sum(one.better or one.worse for one in found) <= 8


def test_the_interval_holds_the_true_saving() -> None:
    """The saving is 0.2 and the noise 5 %. With ten runs per side, the 95 % interval contains 0.2 in about 95 % of
    cases."""
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        low, high = saving_interval(draw.normal(100, 5, 10), draw.normal(80, 4, 10))
        held += low <= 0.2 <= high
    assert 0.88 <= held / 200 <= 1


def test_a_real_saving_is_seen() -> None:
    draw = np.random.default_rng(4)
    found = [measured(draw.normal(100, 2, 10).tolist(), draw.normal(85, 2, 10).tolist()) for _ in range(50)]
    assert all(one.better for one in found)


def test_rounds_balance_a_drift() -> None:
    """In each round, both sides have the same mean position. The order is the same in every verification."""
    rounds = order(8)
    for sides in rounds:
        places = {side: [at for at, one in enumerate(sides) if one == side] for side in ("base", "change")}
        assert sum(places["base"]) == sum(places["change"]) == 3
    assert rounds == order(8)
    assert len(set(rounds)) == 2
