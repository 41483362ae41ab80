"""The graph of a recording: unchanged, it repeats the recording; transformed, it gives step times that are computed by
hand."""

from __future__ import annotations

import pytest

from perfkit_core.replay.batches import begins_iteration
from perfkit_core.replay.transforms import Insert, Load, Remove, Scale
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.replayed import played_ns, rows


def launching(dur: int = 1000) -> Trace:
    """Two launches of 10 µs, consecutive kernels of 100 and 50 µs, and a synchronisation that waits for both."""
    return trace(
        [
            host("step", "step", 0, 170_000, step=0),
            host("launch a", "runtime", 0, 10_000, correlation=1),
            device("a", "kernel", 5_000, 100_000, 1),
            host("launch b", "runtime", 10_000, 10_000, correlation=2),
            device("b", "kernel", 106_000, 50_000, 2),
            host("cudaDeviceSynchronize", "sync", 20_000, 140_000),
        ]
    )


def test_synchronisation_waits_for_the_device() -> None:
    found = launching()
    assert played_ns(found) == [170_000]
    # the device needs 50 µs less, so the host waits 50 µs less
    assert played_ns(found, Scale(rows(found, "a"), 0.5)) == [120_000]
    assert played_ns(found, Insert(rows(found, "b"), device_ns=7_000)) == [177_000]


def test_slower_launches_are_hidden_while_the_device_works() -> None:
    found = launching()
    assert played_ns(found, Scale(rows(found, "launch b"), 5, device=False)) == [
        170_000
    ]  # 40 µs more, hidden by kernel a


def test_without_the_synchronisation_nobody_waits() -> None:
    found = launching()
    assert played_ns(found, Remove(rows(found, "cudaDeviceSynchronize"))) == [
        30_000
    ]  # two launches, and 10 µs after them


def test_without_a_kernel_the_next_one_begins_with_its_launch() -> None:
    # The launch of b now begins at 0, so b runs from 5 to 55. The call returns 4 µs later, and 10 µs follow.
    found = launching()
    assert played_ns(found, Remove(rows(found, "launch a"))) == [5_000 + 50_000 + 4_000 + 10_000]


def loading(made_ns: int) -> Trace:
    """Four steps of 100 µs. Each step makes a batch for ``made_ns`` and computes for the rest."""
    found = []
    for step in range(4):
        begin = step * 100_000
        found += [
            host(f"step {step}", "step", begin, 100_000, step=step),
            host("next", "dataloader", begin, made_ns),
            host("compute", "operator", begin + made_ns, 100_000 - made_ns),
        ]
    return trace(found)


def test_workers_make_batches_while_the_training_computes() -> None:
    found = loading(60_000)
    assert played_ns(found, Load(rows(found, "next"), workers=2)) == [40_000] * 4


@pytest.mark.parametrize(("between", "alone"), [(0, True), (2, True), (3, False)])
def test_the_first_batch_of_an_iteration_is_not_made_in_advance(between: int, alone: bool) -> None:
    """Each step draws a seed and makes two batches of 30 µs. A number that is drawn before other operators is no
    seed."""
    found = []
    for begin in range(0, 400_000, 100_000):
        found += [
            host("step", "step", begin, 100_000, step=begin // 100_000),
            host("aten::random_", "operator", begin, 1_000),
            *(host("aten::item", "operator", begin + 1_000 * (at + 1), 1_000) for at in range(between)),
            host("next", "dataloader", begin + 10_000, 30_000),
            host("next", "dataloader", begin + 40_000, 30_000),
            host("compute", "operator", begin + 70_000, 30_000),
        ]
    recording = trace(found)
    calls = rows(recording, "next")
    first = begins_iteration(recording, calls)
    assert first.tolist() == [alone, False] * 4
    change = Load(calls, workers=1, not_ahead=calls[first])
    # the first batch takes 30 µs; the worker makes the second one while nothing computes, so it takes 30 µs, too
    assert played_ns(recording, change)[1:] == ([100_000] * 3 if alone else [60_000] * 3)


def test_too_few_workers_are_waited_for() -> None:
    found = loading(80_000)  # making a batch takes 80 µs, computing takes 20 µs
    assert played_ns(found, Load(rows(found, "next"), workers=1))[1:] == [80_000] * 3
    assert played_ns(found, Load(rows(found, "next"), workers=2))[1:] == [40_000] * 3
    assert played_ns(found, Load(rows(found, "next"), workers=8))[1:] == [20_000] * 3


def test_a_thread_that_is_waited_for_and_one_that_is_not() -> None:
    found = trace(
        [
            host("step", "step", 0, 1_000_000, step=0),
            host("call", "operator", 100_000, 600_000),  # this call waits for thread 2, which works from 150 to 690 µs
            host("node 1", "operator", 150_000, 300_000, tid=2),
            host("node 2", "operator", 450_000, 240_000, tid=2),
            host("beside", "operator", 120_000, 900_000, tid=3),
        ]
    )
    assert played_ns(found) == [1_000_000]
    assert played_ns(found, Scale(rows(found, "node 1"), 0)) == [700_000]
    assert played_ns(found, Scale(rows(found, "beside"), 0)) == [1_000_000]


WORKERS, THREAD = "_MultiProcessingDataLoaderIter.__next__", "_DataLoaderIterSingleProcess"
MS = 1_000_000


def waiting(*batches: tuple[int, int], name: str = WORKERS, within: str = "", work: int = 10) -> Trace:
    """Return steps that wait for a batch and then work for ``work`` ms. ``batches`` has two times in ms for each step:
    the wait, and how long before the wait an epoch begins (0 if no epoch begins). ``within`` is a Python frame around
    the wait."""
    rows, now = [], 0
    for number, (wait, begins) in enumerate(batches):
        rows.append(host(f"step {number}", "step", now, (begins + wait + work) * MS, step=number))
        rows += [host("random_", "operator", now, begins * MS)] if begins else []
        rows.append(host(name, "dataloader", now + begins * MS, wait * MS))
        rows += [host(within, "python", now + begins * MS, wait * MS)] if within else []
        rows.append(host("work", "operator", now + (begins + wait) * MS, work * MS))
        now += (begins + wait + work) * MS
    return trace(rows)


@pytest.mark.parametrize(("name", "within"), [(WORKERS, ""), (WORKERS, "poll"), (THREAD, "")])
def test_a_batch_asked_for_earlier_arrives_no_earlier(name: str, within: str) -> None:
    found = waiting((20, 0), (20, 0), (20, 0), name=name, within=within)
    half = played_ns(found, Scale(rows(found, "work"), 0.5))
    assert played_ns(found) == [30 * MS] * 3
    assert half == [25 * MS, 30 * MS, 30 * MS]  # from the second step on, the wait is 5 ms longer
    # the batch is ready, and getting it takes 2 ms
    assert played_ns(found, Scale(rows(found, "work"), 5))[1:] == [52 * MS] * 2


def test_a_batch_that_the_training_makes_itself_is_ready_earlier() -> None:
    found = waiting((20, 0), (20, 0), name="_SingleProcessDataLoaderIter.__next__")
    assert played_ns(found, Scale(rows(found, "work"), 0.5)) == [25 * MS] * 2


def test_a_batch_that_was_not_waited_for_was_ready() -> None:
    found = waiting((1, 0), (1, 0), (30, 0), (1, 0), (1, 0))
    assert played_ns(found, Scale(rows(found, "work"), 0.5)) == [6 * MS, 6 * MS, 45 * MS, 6 * MS, 6 * MS]


def test_a_batch_is_begun_when_it_is_requested() -> None:
    """Two workers make at most four batches in advance. So the ninth batch is requested at the end of the fifth call,
    73 ms before it arrives."""
    found = waiting(*[(1, 0)] * 8, (30, 0), (1, 0))
    assert played_ns(found, Scale(rows(found, "work"), 0.5))[8] == (73 - 5 - 3 * 6 + 5) * MS


def test_the_interval_between_late_batches_is_kept() -> None:
    """The eleventh batch arrives 51 ms after the ninth batch. This interval stays the same if the ninth batch arrives
    at another time."""
    found = waiting(*[(1, 0)] * 8, (30, 0), (1, 0), (30, 0), (1, 0))
    assert sum(played_ns(found, Scale(rows(found, "work"), 0.5))[9:11]) == 51 * MS


def test_workers_that_are_behind_keep_their_pace() -> None:
    """With eight workers, every eighth step waits. The time between arrivals stays as recorded."""
    found = waiting(*([(30, 0)] + [(1, 0)] * 7) * 4)
    half = played_ns(found, Scale(rows(found, "work"), 0.5))
    assert [sum(half[at : at + 8]) for at in (9, 17)] == [sum(played_ns(found)[at : at + 8]) for at in (9, 17)]


def test_workers_that_an_epoch_starts_begin_when_it_begins() -> None:
    """The first batch of the second epoch waits for the start of the workers, and the next batch for the workers."""
    found = waiting((20, 0), (20, 0), (20, 5), (20, 0))
    assert played_ns(found, Scale(rows(found, "work"), 0.5)) == [25 * MS, 30 * MS, 30 * MS, 30 * MS]


def test_more_workers_change_when_batches_arrive() -> None:
    found = waiting((20, 0), (20, 0), (20, 0))
    assert played_ns(found, Load(rows(found, WORKERS), 1, batch_ns=12 * MS))[1:] == [12 * MS] * 2
    assert played_ns(found, Remove(rows(found, WORKERS))) == [10 * MS] * 3


def test_more_workers_rebuild_batches_no_sooner() -> None:
    """Each call waits for 20 ms and rebuilds its batch for 5 ms. If the batch is ready, the wait takes 1 ms, and
    rebuilding still takes 5 ms."""
    found = []
    for step in range(3):
        begin = step * 35 * MS
        found += [
            host(f"step {step}", "step", begin, 35 * MS, step=step),
            host(WORKERS, "dataloader", begin, 25 * MS),
            host("rebuild", "operator", begin + 20 * MS, 5 * MS),
            host("work", "operator", begin + 25 * MS, 10 * MS),
        ]
    recording = trace(found)
    assert played_ns(recording, Load(rows(recording, WORKERS), 1, batch_ns=MS, handover_ns=MS)) == [16 * MS] * 3


def test_making_a_batch_does_not_depend_on_the_wait_for_it() -> None:
    """A thread that reads ahead works during the wait. It would do the same work without the wait. If worker processes
    make the batches, a batch does not wait for such a thread."""
    found = trace(
        [
            host("step", "step", 0, 60 * MS, step=0),
            host("before", "operator", 0, 10 * MS),
            host(THREAD, "dataloader", 10 * MS, 20 * MS),
            host("work", "operator", 30 * MS, 30 * MS),
            host("read", "operator", 0, 5 * MS, tid=2),
            host("read", "operator", 12 * MS, 17 * MS, tid=2),
        ]
    )
    assert played_ns(found, Scale(rows(found, "before"), 0)) == [60 * MS]
    assert played_ns(found, Load(rows(found, THREAD), 1, batch_ns=MS)) == [40 * MS]
