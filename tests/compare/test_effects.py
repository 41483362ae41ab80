"""Property tests of count effects and of shares, with a simple computation for comparison."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.compare.attribute.attribute import count_effect
from perfkit_core.compare.pieces import shared_out

COUNTS = st.integers(0, 50)
NS = st.integers(0, 10**15)


@settings(max_examples=200)
@given(NS, NS, COUNTS, COUNTS, st.integers(1, 9), st.integers(1, 9))
def test_count_effects_change_their_sign_with_the_sides(t0: int, t1: int, c0: int, c1: int, n0: int, n1: int) -> None:
    found = count_effect(t0, t1, c0, c1, n0, n1)
    assert found == -count_effect(t1, t0, c1, c0, n1, n0)
    if c0 and c1:
        exact = (c1 / n1 - c0 / n0) * (t0 * n0 / c0 + t1 * n1 / c1) / 2
        assert abs(found - exact) <= 1 + abs(exact) * 1e-12
        assert (found == 0) or (c1 * n0 != c0 * n1)


@given(st.lists(NS, max_size=20), st.integers(1, 9))
def test_shares_are_integers_that_sum_to_the_rounded_mean(totals: list[int], count: int) -> None:
    found = shared_out(totals, count)
    assert found.sum() == (2 * sum(totals) + count) // (2 * count)
    assert all(abs(one - total / count) <= 1 for one, total in zip(found.tolist(), totals, strict=True))
