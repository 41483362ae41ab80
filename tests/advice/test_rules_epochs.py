"""Rule 12: an epoch's first step waits for workers that start anew."""

from __future__ import annotations

import pytest
from advised import Rows, found, predicted, why_not
from events import host, trace

from perfkit_core.advice.rules.epochs import epoch_gap
from perfkit_core.trace import Trace

LOADER = {
    "torch": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "paddle": "_DataLoaderIterMultiProcess",
}
BOTH = pytest.mark.parametrize("name", LOADER.values())


def training(waits: list[int], name: str = LOADER["torch"], twice: bool = False) -> Trace:
    """Steps that wait so many µs for their batch and compute for 90; ``twice``: the wait is between two calls of the
    loader of 5 µs each, the last one of the old epoch and the first one of the new."""
    found: Rows = []
    now = 0
    for number, wait in enumerate(waits):
        found.append(host(f"step {number}", "step", now * 1000, (wait + 90) * 1000, step=number))
        calls = [(now, 5), (now + wait - 5, 5)] if twice and wait > 10 else [(now, wait)]
        found += [host(name, "dataloader", start * 1000, dur * 1000) for start, dur in calls]
        found.append(host("compute", "operator", (now + wait) * 1000, 90_000))
        now += wait + 90
    return trace(found)


@BOTH
@pytest.mark.parametrize("twice", [False, True])
def test_a_wait_longer_than_two_steps(name: str, twice: bool) -> None:
    recording = training([10, 10, 10, 410, 10, 10, 10, 10], name, twice)
    (one,) = found(epoch_gap, recording)
    assert one.evidence["gap_ns"] == 400_000
    assert one.evidence["gap_ns_per_step"] == 50_000
    # eight steps of 150 µs on average, 50 of them the gap; the typical one takes 100: two thirds are left of it
    assert predicted(recording, one) == (66_667, 66_667, 100_000)
    assert set(recording.ints("step")[one.rows]) == {3}


@BOTH
def test_a_wait_of_two_steps_is_none(name: str) -> None:
    assert found(epoch_gap, training([10, 10, 10, 210, 10, 10], name)) == []  # longer by 200 µs, a step takes 100
    assert len(found(epoch_gap, training([10, 10, 10, 211, 10, 10], name))) == 1


def test_the_first_step_recorded_is_no_epoch_that_is_known_to_begin() -> None:
    assert found(epoch_gap, training([410, 10, 10, 10])) == []


def test_a_loader_without_workers() -> None:
    assert found(epoch_gap, training([10, 10, 410, 10], "_SingleProcessDataLoaderIter.__next__")) == []


def test_computing_between_two_batches_is_no_wait() -> None:
    rows: Rows = []
    for number in range(4):
        begin, dur = number * 1000, 500 if number == 2 else 100
        rows.append(host(f"step {number}", "step", begin, dur, step=number))
        rows += [host(LOADER["torch"], "dataloader", begin + at, 5) for at in (0, dur - 10)]
        rows.append(host("compute", "operator", begin + 10, dur - 30))
    assert found(epoch_gap, trace(rows)) == []


def test_what_cannot_be_told() -> None:
    assert "three steps" in why_not(epoch_gap, training([10, 410]))
    assert "steps" in why_not(epoch_gap, trace([host("compute", "operator", 0, 10)]))
