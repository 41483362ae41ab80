"""Ranks wait for each other in collectives, even if their clocks differ: a delay of one rank delays all ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.readers.load import load
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import Replay, play
from perfkit_core.replay.played_steps import steps
from perfkit_core.replay.transforms import Insert, Remove, Scale, transformed
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.ranks import KERNEL, collective
from tests.support.ranks import rank as of_rank
from tests.support.replayed import played_us, rows

US = 1000


def repeats(replay: Replay) -> bool:
    return bool((play(replay.graph) == replay.graph.start_ns).all())


def on_device(number: int, compute: int, clock: int = 0, name: str = KERNEL) -> Trace:
    """Return a rank with a step of 400 µs: a kernel k of ``compute`` µs from 5 µs on, a collective until 300, and a
    synchronisation until 304."""
    made = [
        host("step", "step", 0, 400, step=0),
        host("launch k", "runtime", 0, 10, correlation=1),
        device("k", "kernel", 5, compute, 1),
        host("launch c", "runtime", 10, 10, correlation=2),
        device(name, "kernel", 6 + compute, 300 - 6 - compute, 2),
        host("cudaDeviceSynchronize", "sync", 20, 284),
    ]
    return trace([_at(one, clock) for one in made], rank=number)


def _at(event: dict[str, Any], clock: int) -> dict[str, Any]:
    """Return the event with times in ns, on a clock that is ``clock`` µs ahead."""
    return event | {"start_ns": (event["start_ns"] + clock) * US, "dur_ns": event["dur_ns"] * US}


def on_host(number: int, compute: int, clock: int = 0) -> Trace:
    """Return a rank with a step of 400 µs: an operator of ``compute`` µs, and a collective on the host until 300."""
    args = json.dumps({"collective": {"name": "all_reduce", "on": "host"}})
    made = [
        host("step", "step", 0, 400, step=0),
        host("k", "operator", 0, compute),
        host(KERNEL, "communication", compute, 300 - compute, args=args),
    ]
    return trace([_at(one, clock) for one in made], rank=number)


@pytest.fixture(params=[on_device, on_host])
def pair(request: pytest.FixtureRequest) -> Trace:
    """Rank 0 arrives at 106 µs, rank 1 at 256 µs. Rank 1's clock is 7 ms ahead. The transfer takes 44 µs. If the
    collective is on the host, the ranks arrive 6 µs earlier, and the transfer takes 50 µs."""
    return concat_traces([request.param(0, 100), request.param(1, 250, clock=7000)])


def test_all_wait_for_the_last_rank(pair: Trace) -> None:
    replay = build(pair)
    assert repeats(replay)
    assert played_us(replay) == [400, 400]
    assert (replay.tied, replay.untied) == (2, 0)
    assert played_us(replay, Scale(rows(pair, "k", 1), 2)) == [650, 650]  # 250 µs later
    assert played_us(replay, Scale(rows(pair, "k", 1), 0.8)) == [350, 350]  # 50 µs earlier: still the last one
    # 200 µs earlier: rank 0 is last, 50 µs after rank 1
    assert played_us(replay, Scale(rows(pair, "k", 1), 0.2)) == [250, 250]


def test_a_waiting_rank_may_become_slower(pair: Trace) -> None:
    replay = build(pair)
    assert played_us(replay, Scale(rows(pair, "k", 0), 2.5)) == [400, 400]  # rank 0 arrives at the same time as rank 1
    assert played_us(replay, Scale(rows(pair, "k", 0), 3)) == [450, 450]


def test_only_the_transfer_can_be_made_faster(pair: Trace) -> None:
    transfer = 50 if pair.rows("kind", "communication").any() else 44
    assert played_us(build(pair), Scale(rows(pair, KERNEL), 0.5)) == [400 - transfer // 2] * 2


def test_without_the_collective_nobody_waits() -> None:
    found = concat_traces([on_device(0, 100), on_device(1, 250, clock=-3000)])
    # 206 for rank 0: k ends at 105, 1 until the collective, 4 until the synchronisation returns, 96 after it
    assert played_us(build(found), Remove(rows(found, KERNEL))) == [206, 356]


def test_ranks_that_do_not_wait_for_all_are_independent() -> None:
    """The root of a broadcast leaves as soon as it has sent its data."""
    name = "ncclDevKernel_Broadcast_RING_LL"
    found = concat_traces([on_device(0, 100, name=name), on_device(1, 250, name=name)])
    replay = build(found)
    assert (replay.tied, replay.untied) == (0, 2)
    assert played_us(replay, Scale(rows(found, "k", 1), 2)) == [400, 650]


def test_one_rank_alone_is_as_recorded() -> None:
    found = on_device(0, 100)
    replay = build(found)
    assert (replay.tied, replay.untied) == (0, 0)
    assert played_us(replay, Scale(rows(found, KERNEL), 0.5)) == [400 - 97]


def test_a_rank_does_not_wait_for_threads_of_other_ranks() -> None:
    """A call of rank 0 takes as long as work of another thread of rank 1. The call does not wait for this work,
    although the clocks agree."""
    first = trace([host("step", "step", 0, 1_000_000, step=0), host("call", "operator", 0, 900_000)], rank=0)
    other = trace(
        [host("step", "step", 0, 1_000_000, step=0), host("beside", "operator", 100_000, 790_000, tid=2)], rank=1
    )
    found = concat_traces([first, other])
    assert played_us(build(found), Scale(rows(found, "beside"), 3))[0] == 1000


def streams(number: int, launched: int, begun: int) -> Trace:
    """Return a collective on one stream until 300, then work w of 50 µs on another stream. If w begins after 301, it is
    launched 5 µs before. Otherwise it is launched 10 µs after the launch of the collective."""
    made = [
        host("step", "step", 0, 400, step=0),
        host("prepare", "operator", 0, launched),
        host("launch c", "runtime", launched, 10, correlation=1),
        device(KERNEL, "kernel", launched + 5, 295 - launched, 1) | {"stream": 20},
        host("launch w", "runtime", begun - 5 if begun > 301 else launched + 10, 10, correlation=2),
        device("w", "kernel", begun, 50, 2),
        host("cudaDeviceSynchronize", "sync", begun - 5 + 10 if begun > 301 else launched + 20, 0),
    ]
    made[-1]["dur_ns"] = begun + 54 - made[-1]["start_ns"]
    return trace([_at(one, 0) for one in made], rank=number)


def test_one_rank_shows_that_work_waits_for_the_collective() -> None:
    """On rank 0, w is launched at 10 and waits for the collective until 301. Rank 1 arrives last, at 290, and launches
    w at 340. This shows that rank 0's w waits for the collective."""
    found = concat_traces([streams(0, 10, 301), streams(1, 290, 345)])
    replay = build(found)
    assert repeats(replay)
    assert played_us(replay) == [400, 400]
    # Rank 0 arrives at 415, and the transfer takes 5. On rank 0, w is launched at 420 and runs from 425 to 475, the
    # call returns 4 later, and 45 follow. On rank 1, w runs from 420 to 470, the call returns 4 later, and 1 follows.
    assert played_us(replay, Insert(rows(found, "prepare", 0), host_ns=400 * US)) == [524, 475]


def test_a_collective_of_another_thread_is_awaited_where_it_ends() -> None:
    """The collective is started during a and ends at 800. The thread waits for it after b, from 200 on, and continues
    10 µs after its end."""
    args = json.dumps({"collective": {"name": "all_reduce", "on": "host"}})
    made = [
        host("step", "step", 0, 1000, step=0),
        host("a", "operator", 0, 100),
        host("all_reduce", "communication", 50, 750, tid=2, args=args),
        host("backward", "annotation", 100, 710),
        host("b", "operator", 100, 100),
    ]
    found = trace([_at(one, 0) for one in made])
    replay = build(found)
    assert repeats(replay)
    assert played_us(replay, Scale(rows(found, "all_reduce"), 0.5)) == [1000 - 375]
    # b ends at 200, the thread continues 10 later, and 190 follow
    assert played_us(replay, Scale(rows(found, "all_reduce"), 0.1)) == [400]
    assert played_us(replay, Scale(rows(found, "b"), 5)) == [1000]  # b now ends at 600
    assert played_us(replay, Remove(rows(found, "all_reduce"))) == [400]


def test_ranks_meet_in_collectives_of_other_threads() -> None:
    """Rank 1 starts the collective 300 µs after rank 0. The transfer takes 400 µs."""
    args = json.dumps({"collective": {"name": "all_reduce", "on": "host"}})
    parts = []
    for rank, late in ((0, 0), (1, 300)):
        made = [
            host("step", "step", 0, 1000, step=0),
            host("a", "operator", 0, 100 + late),
            host("all_reduce", "communication", 50 + late, 700 - late, tid=2, args=args),
            host("backward", "annotation", 100 + late, 660 - late),
        ]
        parts.append(trace([_at(one, 0) for one in made], rank=rank))
    found = concat_traces(parts)
    replay = build(found)
    assert repeats(replay)
    assert (replay.tied, replay.untied) == (2, 0)
    assert played_us(replay, Scale(rows(found, "all_reduce"), 0.5)) == [800, 800]


@pytest.fixture(scope="module")
def dlrm(traces: Path) -> Trace:
    return concat_traces([load(path) for path in sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))])


def test_eight_real_ranks_repeat_and_meet(dlrm: Trace) -> None:
    replay = build(dlrm)
    assert repeats(replay)
    assert (replay.tied, replay.untied) == (64, 0)  # 8 collectives on 8 ranks


@pytest.mark.parametrize("slow", [0, 7])
def test_one_slow_rank_makes_all_eight_slower(dlrm: Trace, slow: int) -> None:
    replay = build(dlrm)
    found = steps(replay)
    step = np.flatnonzero(dlrm.host & dlrm.rows("kind", "step"))
    later = found.played_ns(play(transformed(replay, [Scale(step[found.rank == slow], 2, device=False)])))
    assert (later > found.recorded_ns).all()


def test_ranks_whose_clocks_agree_meet_despite_others() -> None:
    """The clocks of ranks 2 and 3 jump by 5 ms between two collectives of all four ranks. The ranks then form two
    pairs, and each pair has one clock."""
    made = []
    for one in range(4):
        jump = 5_000_000 * (one > 1)
        times = [(100_000, 200_000), (20_000_000 + jump, 20_100_000 + jump)]
        both = (collective(*time, sequence=number, group_size=4) for number, time in enumerate(times))
        made.append(of_rank(one, *both, clock=7_000_000 * (one > 1), step_ns=30_000_000, world=4))
    assert (build(concat_traces(made)).tied, build(concat_traces(made)).untied) == (8, 0)
