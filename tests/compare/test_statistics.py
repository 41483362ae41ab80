"""Tests of the statistics of steps: medians, interval, effect size, noise band and verdict, with known results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.compare.headline import step_sentence
from perfkit_core.compare.noise import ASSUMED, GIVEN, MEASURED, Between, between_runs, noise_band, student
from perfkit_core.compare.statistics import (
    FASTER,
    NO_DIFFERENCE,
    PERHAPS_FASTER,
    PERHAPS_SLOWER,
    SLOWER,
    TOO_FEW,
    StepSamples,
    cliffs_delta,
    outliers,
    pooled,
    samples_of,
    step_statistics,
)
from perfkit_core.trace.model.trace import concat_traces, with_rank
from tests.support.golden import check_golden
from tests.support.small_trace import small_trace

MS = 1_000_000
STEPS = st.lists(st.integers(1, 10**12), min_size=1, max_size=12)
SIDES = st.lists(STEPS, min_size=1, max_size=3)


def arrays(side: list[list[int]]) -> list[np.ndarray]:
    return [np.array(one, np.int64) for one in side]


@given(SIDES, SIDES)
def test_swapping_sides_changes_every_sign_and_nothing_else(base: list[list[int]], other: list[list[int]]) -> None:
    there, back = (step_statistics(arrays(a), arrays(b)) for a, b in ((base, other), (other, base)))
    assert (back.base, back.other, back.difference) == (there.other, there.base, -there.difference)
    if there.low is None:
        assert back.low is back.high is None
    else:
        assert (back.low, back.high) == (-there.high, -there.low)
    assert back.cliffs_delta == -there.cliffs_delta
    assert back.probability_slower == pytest.approx(1 - there.probability_slower)
    assert back.noise == there.noise
    told = ({SLOWER, FASTER}, {PERHAPS_SLOWER, PERHAPS_FASTER}, {NO_DIFFERENCE}, {TOO_FEW})
    assert {there.verdict, back.verdict} in told


@given(SIDES)
def test_a_side_equals_itself(side: list[list[int]]) -> None:
    found = step_statistics(arrays(side), arrays(side))
    assert (found.difference, found.cliffs_delta, found.verdict) == (0, 0, NO_DIFFERENCE)
    assert found.low in (0, None)
    assert found.high in (0, None)


@given(STEPS, STEPS)
def test_effect_size_is_that_of_all_pairs(base: list[int], other: list[int]) -> None:
    pairs = [(b > a) - (b < a) for a in base for b in other]
    assert cliffs_delta(np.array(base), np.array(other)) == sum(pairs) / len(pairs)


def test_a_clear_difference() -> None:
    """The medians are 102 and 152, and the samples do not overlap. Every pair is slower, and the interval contains the
    true difference of 50."""
    base = np.array([100, 101, 102, 103, 104] * 2) * MS
    found = step_statistics(base, base + 50 * MS, between=0.02)
    assert (found.base, found.other, found.difference) == (102 * MS, 152 * MS, 50 * MS)
    assert found.verdict == SLOWER
    assert (found.probability_slower, found.cliffs_delta) == (1.0, 1.0)
    assert found.change_ratio == pytest.approx(50 / 102)
    assert found.low is not None
    assert found.high is not None
    assert 45 * MS < found.low <= 50 * MS <= found.high < 55 * MS
    assert (found.steps, found.captures) == ((10, 10), (1, 1))


def test_noise_between_captures_counts_by_hand() -> None:
    """The captures' medians are 90 and 110, so their standard deviation is 14.1 % of 100. With one degree of freedom
    per side, t is 4.303. So q = 4.303 · 0.1414 · √(1/2 + 1/2) = 0.6085, and the noise band is 2 · 100 · sinh(0.6085 /
    2) = 61.80."""
    side = arrays([[90 * MS] * 3, [110 * MS] * 3])
    assert noise_band(side, side) == pytest.approx(61.797 * MS, rel=1e-4)
    assert step_statistics(side, [one + 50 * MS for one in side]).verdict == NO_DIFFERENCE
    # The same steps in one capture have quarters of 90, 100, 110 and 110, so a drift within a capture is noise.
    drift = np.concatenate(side)
    assert step_statistics(drift, drift + 15 * MS, between=0).verdict == NO_DIFFERENCE
    # With four similar captures per side, the same difference is significant.
    alike = arrays([[99 * MS] * 3, [100 * MS] * 3, [101 * MS] * 3, [100 * MS] * 3])
    assert step_statistics(alike, [one + 10 * MS for one in alike]).verdict == SLOWER


def test_the_noise_band_does_not_grow_with_a_much_slower_side() -> None:
    """With captures that are assumed to differ by 100 %, equal sides may differ by a factor of 16, but not of 66."""
    base = np.full(4, 2 * MS)
    assert step_statistics(base, 12 * base, between=1.0).verdict == PERHAPS_SLOWER
    assert step_statistics(base, 66 * base, between=1.0).verdict == SLOWER


def test_single_captures_within_process_noise_are_inconclusive() -> None:
    """Two constant captures take 100 and 104, which is within the noise band of 5.66 between processes on a quiet
    machine. For a number without noise, the same difference is significant."""
    base, other = np.full(8, 100 * MS), np.full(8, 104 * MS)
    found = step_statistics(base, other, between=0.02)
    assert found.noise == pytest.approx(5.656 * MS, rel=1e-3)
    assert found.verdict == PERHAPS_SLOWER
    assert not found.beyond_noise
    assert step_statistics(base, other, between=0).verdict == SLOWER


def test_student_is_the_published_table() -> None:
    assert [student(df) for df in (1, 5, 30)] == [12.706, 2.571, 2.042]
    assert student(40) == pytest.approx(2.021, abs=2e-3)
    assert student(120) == pytest.approx(1.980, abs=1e-3)


def test_one_step_shows_no_noise() -> None:
    found = step_statistics(np.array([10]), np.array([20]))
    assert (found.difference, found.low, found.high, found.noise, found.verdict) == (10, None, None, None, TOO_FEW)
    with pytest.raises(ValueError, match="no samples"):
        step_statistics(np.array([], np.int64), np.array([1]))


def _alarms(captures: int, between: float, count: int = 60) -> int:
    """Return the number of false alarms in comparisons of equal runs. The processes of a run differ by ``between``."""
    draw = np.random.default_rng(7)

    def side() -> list[np.ndarray]:
        level = 1e7 * np.exp(draw.normal(0, between, captures))
        return [(one * (1 + draw.exponential(0.05, 12))).astype(np.int64) for one in level]

    return sum(step_statistics(side(), side(), between=between).beyond_noise for _ in range(count))


@pytest.mark.parametrize(("captures", "between"), [(1, 0.0), (1, 0.02), (3, 0.02), (4, 0.1)])
def test_equal_runs_differ_beyond_noise_once_in_twenty_at_most(captures: int, between: float) -> None:
    # at a true rate of 5 %, 4 % of such tests find more than 6 alarms
    assert _alarms(captures, between) <= 60 // 20 + 3


def test_outlying_steps_are_named() -> None:
    """Of 100, 100, 101, 99, 100 and 180, the median is 100, and the last value is 80 % above it."""
    one = StepSamples(np.arange(6) + 10, np.array([100, 100, 101, 99, 100, 180]))
    few = StepSamples(np.arange(3), np.array([1, 1, 90]))
    (row,) = outliers({"base": [one, few], "other": []}).to_dict("records")
    assert (row["run"], row["capture"], row["step"], row["dur_ns"], row["median_ns"]) == ("base", 1, 15, 180, 100)
    assert row["longer_ratio"] == pytest.approx(0.8)


def test_a_step_of_two_ranks_is_one_sample() -> None:
    """Two ranks that wait for each other give no more information than one rank, so there are two samples."""
    found = samples_of(concat_traces([with_rank(small_trace(), rank) for rank in (0, 1)]))
    assert found.step.tolist() == [0, 1]
    assert found.step_ns.tolist() == [[9_000_000] * 2, [9_000_001] * 2]
    assert found.mean_ns.tolist() == [9_000_000, 9_000_001]
    one, other = np.arange(10, 22), np.arange(16, 28)
    alone = step_statistics(one, other)
    two = step_statistics(np.stack([one, one], 1), np.stack([other, other], 1))
    assert (two.base, two.other, two.steps) == (alone.base, alone.other, (12, 12))
    assert two.high - two.low >= (alone.high - alone.low) * 0.8


def test_ranks_with_other_steps_are_separate_samples() -> None:
    later = with_rank(small_trace(), 1)
    later = later.with_ints(step=np.where(later.ints("step") >= 0, later.ints("step") + 1, -1))
    found = samples_of(concat_traces([with_rank(small_trace(), 0), later]))
    assert sorted(zip(found.step.tolist(), found.step_ns.tolist(), strict=True)) == [
        (0, 9_000_000), (1, 9_000_000), (1, 9_000_001), (2, 9_000_001)
    ]  # fmt: skip


def test_pooled_captures_lie_one_after_the_other() -> None:
    """Two captures of two steps become four steps with distinct numbers. Nothing overlaps, and no duration changes."""
    whole = pooled([small_trace(), small_trace()])
    found = samples_of(whole)
    assert found.step.tolist() == [0, 1, 2, 3]
    assert found.step_ns.tolist() == [9_000_000, 9_000_001] * 2
    half = len(whole) // 2
    assert whole.end_ns[:half].max() < whole.ints("start_ns")[half:].min()
    assert whole.ints("dur_ns")[:half].tolist() == whole.ints("dur_ns")[half:].tolist()
    assert (whole.ints("parent")[half:] >= 0).sum() == (whole.ints("parent")[:half] >= 0).sum()


def test_process_noise_depends_on_where_the_step_is_spent() -> None:
    """In each step of 9 ms, the device works for a third of the time. This third counts with a noise of 2 %. The rest
    counts with 10 %, increased because the steps take only 18 ms in total."""
    steps_ns = 9_000_000 + 9_000_001
    works = (3_000_000 + 2_000) * 2 / steps_ns
    on_host = 0.1 * (500_000_000 / steps_ns) ** 0.5
    assumed = between_runs([small_trace()])
    assert assumed.ratio == pytest.approx(((0.02 * works) ** 2 + (on_host * (1 - works)) ** 2) ** 0.5)
    assert (assumed.origin, assumed.device_busy) == (ASSUMED, pytest.approx(works))
    assert between_runs([]) == between_runs([small_trace().slice(0, 0)]) == Between(0.1)


def test_busy_neighbours_do_not_lengthen_the_quickest_steps() -> None:
    """Another process doubles the time of three steps in four. The fourth step is as fast as before."""
    alone = step_statistics(QUIET, BUSY, between=0.02)
    assert (alone.verdict, alone.quickest) == (PERHAPS_SLOWER, 1 * MS)  # the fastest four take 99 or 100 ms
    assert step_statistics(QUIET, 2 * QUIET, between=0.02).verdict == SLOWER
    assert step_statistics([QUIET] * 3, [BUSY] * 3).verdict == SLOWER
    wide = [QUIET, QUIET + 5 * MS, QUIET - 5 * MS]
    assert step_statistics(wide, [one + 100 * MS for one in wide]).verdict == SLOWER
    assert step_statistics(wide, [BUSY + 5 * MS, BUSY, BUSY - 5 * MS]).verdict == PERHAPS_SLOWER


NORMAL, DISTURBED = [100, 101, 99, 100] * 4, [100, 202, 198, 200] * 4
QUIET, BUSY = np.array(NORMAL) * MS, np.array(DISTURBED) * MS
SENTENCES: dict[str, tuple[list[list[int]], list[list[int]], Between]] = {
    "100 ms become 60 ms": ([[100] * 8], [[60] * 8], Between(0.1)),
    "100 ms become 120 ms, within the measured noise": ([[100] * 8], [[120] * 8], Between(0.1, MEASURED, None, 9)),
    "40 ms become 10 to 290 ms": (
        [[40, 41, 39, 40] * 2], [[270, 30, 290, 10] * 2], Between(0.02, ASSUMED, 0.8),
    ),
    "100 or 110 ms become 101 or 111 ms": ([[100, 110] * 8], [[101, 111] * 8], Between(0.02, ASSUMED, 0.8)),
    "one step of 100 ms becomes one of 120 ms": ([[100]], [[120]], Between(0.1)),
    "three steps in four are disturbed": ([NORMAL], [DISTURBED], Between(0.02, GIVEN)),
    "three steps in four are disturbed in three captures that differ by 5 ms": (
        *([[ms + more for ms in steps] for more in (0, 5, -5)] for steps in (NORMAL, DISTURBED)), Between(0.02),
    ),
}  # fmt: skip


def test_a_verdict_never_reads_as_its_opposite() -> None:
    """What is measured or assumed about noise is in the sentence of the verdict."""
    lines = []
    for title, (*sides, between) in SENTENCES.items():
        base, other = ([np.multiply(capture, MS) for capture in side] for side in sides)
        steps = step_statistics(base, other, between=between.ratio)
        lines += [f"# {title}", str(step_sentence(steps, between)), ""]
    check_golden("compare/step_sentences.txt", "\n".join(lines))


def test_the_fastest_steps_are_ignored_if_they_have_no_time() -> None:
    """Only every second step has a value. The 10th percentile is 0 on both sides, so it is ignored."""
    base, other = np.array([0, 10] * 12) * MS, np.array([0, 40] * 12) * MS
    assert step_statistics(base, other, np.mean, 0.02).verdict == SLOWER
