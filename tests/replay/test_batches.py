"""Long waits that recur after a constant number of calls, and other waits."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit_core.replay.batches import period


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ([9, 9, 9, 9, 9, 9], 1),
        ([9, 0, 0, 9, 0, 0, 9, 0, 0], 3),
        ([9, 0, 0, 1, 0, 0, 1], 1),  # one long wait
        ([9, 0, 0, 0, 0, 0, 9, 0], 1),  # two long waits
        ([9, 0, 0, 0, 9, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0], 1),  # four waits at different distances
        ([9, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 7, 0, 9, 0, 0, 0, 8], 4),  # most waits are four calls apart
        ([9, 9, 0, 0] * 3 + [9, 0, 0, 0, 9, 0, 9, 0, 9], 2),  # many waits at irregular distances, two calls on average
        ([0] * 10, 1),
        ([], 1),
    ],
)
def test_period(waits: list[int], found: int) -> None:
    assert period(np.array(waits, np.int64), np.zeros(len(waits), np.bool_)) == found


def test_waits_of_several_epochs_are_not_compared() -> None:
    """In each epoch of seven steps, the third step waits."""
    waits, begins = np.array([0, 0, 9, 0, 0, 0, 0] * 4), np.array(([True] + [False] * 6) * 4)
    assert period(waits, np.zeros(28, np.bool_)) == 7
    assert period(waits, begins) == 1


def test_waits_that_are_further_apart_than_any_workers() -> None:
    assert period(np.array(([9] + [0] * 99) * 4), np.zeros(400, np.bool_)) == 1
