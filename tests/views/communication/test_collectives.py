"""Collectives, clocks and stragglers of two ranks. The expected numbers were computed by hand.

True times in ns: collective A has 1000 bytes and runs on rank 0 from 100 and on rank 1 from 250, on both until 300.
Collective B has 3000 bytes and runs on rank 0 from 1000 and on rank 1 from 900, on both until 1100. So A takes 50 after
rank 1 has arrived, and B takes 100 after rank 0 has arrived. Rank 1's clock is 1000 ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.communication import clocks, collectives, instances, stragglers
from perfkit_core.views.communication.clocks import aligned
from perfkit_core.views.communication.collectives import bus_factors, size_class
from perfkit_core.views.communication.instances import kernel_name
from perfkit_core.views.merging import reduction, table_of
from tests.support.ranks import collective, rank

VIEWS = (collectives.VIEW, clocks.VIEW, stragglers.VIEW)


def first() -> Trace:
    return rank(0, collective(100, 300), collective(1000, 1100, 3000))


def second(clock: int = 1000) -> Trace:
    return rank(1, collective(250, 300), collective(900, 1100, 3000), clock=clock, step_ns=6000)


def both() -> Trace:
    return concat_traces([first(), second()])


def rows(view: View, trace: Trace, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    table = table_of(view, trace, ViewRequest(**request))
    found = table[columns.split()].astype(object)
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in found.itertuples(index=False)]


def test_clock_of_the_second_rank() -> None:
    """No collective can end on one rank before the other rank has begun it. These times bound the offset of the
    clock."""
    columns = "rank offset_ns earliest_ns latest_ns matched unmatched residual_ns max_residual_ns"
    assert rows(clocks.VIEW, both(), columns) == [(0, 0, 0, 0, 2, 0, 0, 0), (1, 1000, 950, 1100, 2, 0, 0, 0)]


def test_collectives_have_times_and_bandwidths_by_size() -> None:
    """A has 1000 bytes and takes 200 on rank 0 and 50 on rank 1. B has 3000 bytes and takes 100 and 200. The bus factor
    of an all-reduce of two ranks is 1."""
    columns = (
        "message_bytes size calls total_ns min_ns median_ns max_ns algorithm_bandwidth_bytes_per_s "
        "bus_bandwidth_bytes_per_s known_transfers transfer_ns transfer_bus_bandwidth_bytes_per_s"
    )
    assert rows(collectives.VIEW, both(), columns) == [
        (3000, "2 to 4 KiB", 2, 300, 100, 100, 200, 20e9, 20e9, 2, 100, 30e9),
        (1000, "512 B to 1 KiB", 2, 250, 50, 50, 200, 8e9, 8e9, 2, 50, 20e9),
    ]
    assert rows(collectives.VIEW, both(), "collective group group_size algorithm protocol")[0] == (
        "all_reduce", "dp", 2, "RING", "LL128",
    )  # fmt: skip


def test_collectives_by_rank_and_size() -> None:
    """Durations are those of one rank. The transfer time also needs the start of the other rank, which was recorded."""
    found = rows(collectives.VIEW, both(), "rank size total_ns transfer_ns", by=("rank", "size"))
    assert sorted(found) == [(0, 1000, 200, 50), (0, 3000, 100, 100), (1, 1000, 50, 50), (1, 3000, 200, 100)]


def test_one_rank_alone_has_no_transfer() -> None:
    assert rows(collectives.VIEW, first(), "bus_bandwidth_bytes_per_s known_transfers transfer_ns") == [
        (5e9, 0, None), (30e9, 0, None),
    ]  # fmt: skip


def test_stragglers_have_the_waits_they_caused() -> None:
    """Rank 0 waits 150 for rank 1 in A. Rank 1 waits 100 for rank 0 in B."""
    columns = "rank steps avg_step_ns collectives last last_ratio late_p50_ns late_max_ns waited_ns caused_wait_ns"
    assert rows(stragglers.VIEW, both(), columns) == [
        (1, 1, 6000, 2, 1, 0.5, 0, 150, 100, 150),
        (0, 1, 5000, 2, 1, 0.5, 0, 100, 150, 100),
    ]
    assert rows(stragglers.VIEW, both(), "rank step dur_ns last waited_ns", by=("rank", "step")) == [
        (0, 7, 5000, 1, 150), (1, 7, 6000, 1, 100),
    ]  # fmt: skip
    columns = "step min_step_ns max_step_ns collectives skew_p50_ns skew_max_ns waited_ns last_rank"
    assert rows(stragglers.VIEW, both(), columns, by=("step",)) == [(7, 5000, 6000, 2, 100, 150, 250, 1)]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_clock_changes_nothing_but_its_offset(view: View) -> None:
    """All other columns are the same, however far apart the clocks are."""
    far = concat_traces([first(), second(10**15)])
    changed = {"offset_ns", "earliest_ns", "latest_ns"}
    here, there = (
        table_of(view, trace, ViewRequest()).drop(columns=list(changed), errors="ignore") for trace in (both(), far)
    )
    pd.testing.assert_frame_equal(here, there)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_views_keep_their_contract_and_merge_rank_by_rank(view: View) -> None:
    for trace in (both(), first()):
        check_view(view, trace)
    request = ViewRequest()
    parts = [reduction(view).reduce(one, request) for one in (first(), second())]
    pd.testing.assert_frame_equal(reduction(view).merge(parts, request), table_of(view, both(), request))


def test_a_third_rank_is_reached_through_the_second() -> None:
    """Rank 2 shares a collective only with rank 1. Its clock is 300 behind the clock of rank 1."""
    tie = {"group": "tp", "size": 8}
    one = rank(1, collective(100, 300), collective(400, 450, **tie), clock=1000, world=3)
    two = rank(2, collective(420, 450, **tie), clock=700, world=3)
    trace = concat_traces([rank(0, collective(100, 300), world=3), one, two])
    assert rows(clocks.VIEW, trace, "rank offset_ns matched") == [(0, 0, 1), (1, 1000, 1), (2, 700, 1)]


def test_collectives_that_differ_are_not_matched() -> None:
    """The second collectives have different sizes, so they and all later collectives are not matched."""
    one = rank(0, collective(0, 100), collective(200, 300), collective(400, 500))
    two = rank(1, collective(0, 100), collective(200, 300, 8), collective(400, 500))
    assert rows(clocks.VIEW, concat_traces([one, two]), "matched unmatched") == [(1, 2), (1, 2)]


def test_library_numbers_match_a_recording_that_began_later() -> None:
    one = rank(0, *(collective(100 * i, 100 * i + 50, sequence=i) for i in range(4)))
    two = rank(1, *(collective(100 * i, 100 * i + 50, sequence=i) for i in range(2, 4)), clock=20)
    assert rows(clocks.VIEW, concat_traces([one, two]), "offset_ns matched unmatched") == [(0, 2, 2), (20, 2, 0)]


def test_a_contradictory_clock_has_no_offset() -> None:
    """Sizes of an all-to-all may differ, so only the times show that the collectives are different."""
    far = 5_000_000
    one = rank(0, collective(0, 100, name="all_to_all"), collective(2 * far, 2 * far + 100, name="all_to_all"))
    two = rank(1, collective(0, 100, name="all_to_all"), collective(far, far + 100, name="all_to_all"))
    ((_, offset, note),) = rows(clocks.VIEW, concat_traces([one, two]), "rank offset_ns note")[1:]
    assert offset is None
    assert "contradict" in note
    assert rows(stragglers.VIEW, concat_traces([one, two]), "rank") == []


def test_an_unnamed_group_of_all_ranks_is_the_world() -> None:
    told = {"group": None, "group_size": None}
    one, two = (rank(number, collective(0, 100, **told)) for number in range(2))
    assert rows(collectives.VIEW, concat_traces([one, two]), "group_size bus_bandwidth_bytes_per_s") == [(2, 1e10)]
    assert rows(collectives.VIEW, one, "group_size bus_bandwidth_bytes_per_s") == [(None, None)]


def test_sends_belong_to_no_group() -> None:
    """One rank sends, and the other rank receives. The following collective still matches."""
    one = rank(0, collective(0, 10, name="send"), collective(100, 200))
    two = rank(1, collective(0, 10, name="recv"), collective(0, 10, name="recv"), collective(100, 200))
    assert rows(clocks.VIEW, concat_traces([one, two]), "matched unmatched") == [(1, 0), (1, 0)]


def test_the_drift_of_clocks_is_estimated() -> None:
    """Ten collectives over 9 s. The clock gains 50 µs per second."""
    starts = [i * 10**9 for i in range(10)]
    one = rank(0, *(collective(at, at + 10**6) for at in starts))
    two = rank(1, *(collective(at, at + 10**6 + at // 20_000) for at in starts))
    ((_, drift),) = rows(clocks.VIEW, concat_traces([one, two]), "rank drift_ppm")[1:]
    assert drift == pytest.approx(50.0)


def drifting(ppm: int, count: int = 10, late: int = 0, took: int = 100_000) -> Trace:
    """Return two ranks with a collective every second. Rank 1's clock gains ``ppm``. Rank 1 arrives ``late`` ns after
    rank 0."""
    times = [(i * 10**9, i * 10**9 + late, i * 10**9 + late + took) for i in range(count)]
    one = (collective(begun, end, sequence=end) for begun, _, end in times)
    two = (collective(_shown(come, ppm), _shown(end, ppm), sequence=end) for _, come, end in times)
    return concat_traces([rank(0, *one), rank(1, *two, clock=700)])


def _shown(time: int, ppm: int) -> int:
    return time + time * ppm // 10**6


@pytest.mark.parametrize("ppm", [50, -50, 400])
def test_a_drift_causes_no_waits(ppm: int) -> None:
    """The drift is up to 3.6 ms over 9 s; a collective takes 0.1 ms. The offset holds at the end of the first
    collective."""
    trace = drifting(ppm)
    ((_, offset, residual, note),) = rows(clocks.VIEW, trace, "rank offset_ns max_residual_ns note")[1:]
    assert (offset, residual) == (700 + _shown(10**5, ppm) - 10**5, pytest.approx(0, abs=1))
    assert note.startswith("the drift is corrected")
    assert max(late for (late,) in rows(stragglers.VIEW, trace, "late_max_ns")) <= 1


def test_the_delay_of_a_rank_with_a_drifting_clock_is_exact() -> None:
    found = rows(stragglers.VIEW, drifting(50, late=40_000), "rank last caused_wait_ns doubtful_ns")[0]
    assert found == (1, 10, pytest.approx(400_000, abs=10), 0)


def test_a_drift_over_too_few_collectives_makes_waits_doubtful() -> None:
    """5 collectives over 4 s are too few to measure a drift. So the constant offset is wrong by up to 100 µs, which is
    more than a collective takes."""
    found = rows(stragglers.VIEW, drifting(50, count=5, took=50_000), "caused_wait_ns doubtful_ns")
    assert [caused for caused, _ in found] == pytest.approx([100_000, 100_000], abs=10)
    assert all(doubtful == caused for caused, doubtful in found)


def test_changes_faster_than_clocks_drift_are_no_drift() -> None:
    """Rank 1 recorded only every second collective of rank 0. The ends would lie on a line, but with a clock that is
    twice as fast."""
    one = rank(0, *(collective(i * 10**9, i * 10**9 + 100) for i in range(12)))
    two = rank(1, *(collective(2 * i * 10**9, 2 * i * 10**9 + 100) for i in range(12)))
    ((offset, note),) = rows(clocks.VIEW, concat_traces([one, two]), "offset_ns note")[1:]
    assert offset is None
    assert note.startswith("collectives matched by order contradict each other")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([0, 5 * 10**6], "collectives with the same number contradict"),
        ([0, 10**10 + 2 * 10**6], "its clock may drift: to measure the drift, 9 collectives are needed"),
    ],
)
def test_why_numbered_collectives_have_no_offset(ends: list[int], told: str) -> None:
    """A change of 2 ms in 10 s may be a drift, which two collectives cannot show. A sudden change of 5 ms is no
    drift."""
    one = rank(
        0, *(collective(at // 10**9 * 10**9, at // 10**9 * 10**9 + 100, sequence=i) for i, at in enumerate(ends))
    )
    two = rank(1, *(collective(at, at + 100, sequence=i) for i, at in enumerate(ends)))
    ((note,),) = rows(clocks.VIEW, concat_traces([one, two]), "note")[1:]
    assert note.startswith(told)


def meeting(clocks: dict[int, int], late: dict[int, int], world: int = 0, took: int = 10**6) -> Trace:
    """Return ranks that meet in five collectives, 20 ms apart. A collective ends ``took`` after the last rank arrives.
    From the fourth collective on, each rank's clock is changed by its item in ``clocks``. ``late`` has each rank's
    delay."""
    last, size = max(late.values(), default=0), world or len(clocks)
    made = []
    for one, jump in clocks.items():
        shift = [0, 0, 0, jump, jump]
        times = [
            (i * 20 * 10**6 + by + late.get(one, 0), i * 20 * 10**6 + by + last + took) for i, by in enumerate(shift)
        ]
        numbered = (collective(*time, sequence=i, group_size=size) for i, time in enumerate(times))
        made.append(rank(one, *numbered, world=size))
    return concat_traces(made)


def test_different_ends_of_a_collective_make_waits_doubtful() -> None:
    """No rank is late, but the clock of rank 1 changes by 0.4 ms, which is within the bounds. So rank 0 seems to wait
    for rank 1."""
    trace = meeting({0: 0, 1: 400_000}, {})
    assert rows(clocks.VIEW, trace, "offset_ns max_residual_ns")[1] == (0, 400_000)
    assert rows(stragglers.VIEW, trace, "rank caused_wait_ns doubtful_ns") == [(1, 800_000, 800_000), (0, 0, 0)]
    ((calls, known, transfer),) = rows(collectives.VIEW, trace, "calls known_transfers transfer_ns")
    assert (calls, known, transfer) == (10, 8, 10**6)


def test_a_last_rank_that_seems_to_wait_itself_is_in_doubt() -> None:
    """Rank 2 arrives last, but at two collectives its clock hides the delay. Rank 1 then seems to be last, although
    rank 1 itself took 0.2 ms longer than rank 2."""
    found = rows(stragglers.VIEW, meeting({0: 0, 1: 0, 2: -400_000}, {1: 100_000, 2: 300_000}), "rank last doubtful_ns")
    assert found == [(2, 3, 0), (1, 2, 600_000), (0, 0, 0)]


def test_ends_that_scatter_leave_a_straggler() -> None:
    found = rows(stragglers.VIEW, meeting({0: 0, 1: 3000}, {1: 500_000}), "rank caused_wait_ns doubtful_ns")[0]
    assert found == (1, 5 * 500_000 + 2 * 3000, 2 * 3000)


def test_ranks_that_agree_have_a_clock_despite_others() -> None:
    """The cases are: the clock of the lowest rank was set, or the clocks of all ranks of one machine were set."""
    columns = "rank reference_rank offset_ns"
    lowest = meeting({0: 5 * 10**6, 1: 0, 2: 0}, {2: 300_000})
    assert rows(clocks.VIEW, lowest, columns) == [(0, 1, None), (1, 1, 0), (2, 1, 0)]
    assert rows(stragglers.VIEW, lowest, "rank last caused_wait_ns incomplete")[0] == (2, 5, 5 * 300_000, 5)
    machine = meeting({0: 0, 1: 0, 2: 5 * 10**6, 3: 5 * 10**6}, {3: 300_000})
    assert rows(clocks.VIEW, machine, columns) == [(0, 0, 0), (1, 0, 0), (2, 2, 0), (3, 2, 0)]
    told = (
        "this rank's clock contradicts the clock of rank 0: this rank is compared only with ranks whose clocks agree "
        "with its own clock"
    )
    assert rows(clocks.VIEW, machine, "note")[1:] == [(None,), (told,), (told,)]
    found = rows(stragglers.VIEW, machine, "rank last caused_wait_ns incomplete")
    assert found[:2] == [(3, 5, 5 * 300_000, 5), (2, 0, 0, 5)]
    assert rows(stragglers.VIEW, machine, "collectives incomplete waited_ns last_rank", by=("step",)) == [
        (5, 5, 5 * 300_000, 3)
    ]


def test_a_clock_that_was_set_does_not_block_ranks_after_it() -> None:
    """Only rank 1, whose clock was set, shares collectives with rank 0. Ranks 2 and 3 share collectives with rank 1 and
    with each other."""
    ends = [i * 20 * 10**6 + 10**6 for i in range(6)]
    jumped = [end + 5 * 10**6 * (i > 2) for i, end in enumerate(ends)]
    own, all_three = {"group": "tp"}, {"group": "dp", "group_size": 3}
    near = [collective(end - 100, end, sequence=i, **own) for i, end in enumerate(ends)]
    bridge = [collective(end - 100 + by, end + by, sequence=i, **group)
              for by, group in ((0, own), (1000, all_three)) for i, end in enumerate(jumped)]  # fmt: skip
    far = [[collective(end + 900, end + 1000, sequence=i, **all_three) for i, end in enumerate(ends)] for _ in (2, 3)]
    ranks = [rank(one, *each, world=4) for one, each in enumerate([near, bridge, *far])]
    assert rows(clocks.VIEW, concat_traces(ranks), "rank reference_rank offset_ns note")[0] == (
        0, None, None,
        "no synchronous collective (such as all_reduce) connects this rank with a reference rank",
    )  # fmt: skip
    assert rows(clocks.VIEW, concat_traces(ranks), "rank reference_rank offset_ns")[1:] == [
        (1, 2, None), (2, 2, 0), (3, 2, 0),
    ]  # fmt: skip


def test_a_contradiction_of_two_ranks_is_reported_once() -> None:
    found = rows(clocks.VIEW, meeting({0: 0, 1: 5 * 10**6}, {}), "rank reference_rank offset_ns")
    assert found == [(0, 0, 0), (1, 0, None)]


def test_a_collective_without_all_of_its_ranks_is_incomplete() -> None:
    """Two of three ranks were read. If the group size is unknown, all ranks of the job are expected."""
    assert rows(stragglers.VIEW, meeting({0: 0, 1: 0}, {}), "incomplete") == [(0,), (0,)]
    assert rows(stragglers.VIEW, meeting({0: 0, 1: 0}, {}, world=3), "incomplete") == [(5,), (5,)]
    for world, count in ((2, 0), (3, 1)):
        ranks = [rank(one, collective(0, 100, group=None, group_size=None), world=world) for one in (0, 1)]
        assert rows(stragglers.VIEW, concat_traces(ranks), "incomplete") == [(count,), (count,)]


@pytest.mark.parametrize("took", [100_000, 4 * 10**6])
def test_an_uncorrected_drift_is_reported(took: int) -> None:
    """The clock drifts by 600 ppm over 9 s. The bounds may or may not allow an offset."""
    ((note, drift),) = rows(clocks.VIEW, drifting(600, took=took), "note drift_ppm")[1:]
    assert note == "its clock drifts by more than 500 ppm, so the drift is not corrected"
    assert drift == pytest.approx(600, abs=1)


def pipeline() -> Trace:
    """Return two stages of two ranks that share no collective. Rank 3 arrives 150 late, and rank 4 has no
    collectives."""
    stages = [(0, "dp0", 0), (1, "dp0", 0), (2, "dp1", 0), (3, "dp1", 150)]
    made = [
        rank(one, collective(100 + late, 300, group=group), clock=1000 * one, world=5) for one, group, late in stages
    ]
    return concat_traces([*made, rank(4, world=5)])


def test_ranks_without_ties_have_their_own_clock() -> None:
    assert rows(clocks.VIEW, pipeline(), "rank reference_rank offset_ns matched") == [
        (0, 0, 0, 1), (1, 0, 1000, 1), (2, 2, 0, 1), (3, 2, 1000, 1), (4, None, None, 0),
    ]  # fmt: skip
    assert rows(stragglers.VIEW, pipeline(), "rank collectives last caused_wait_ns")[0] == (3, 1, 1, 150)
    assert rows(collectives.VIEW, pipeline(), "group known_transfers transfer_ns") == [("dp0", 2, 200), ("dp1", 2, 50)]


def test_a_lowest_rank_that_only_broadcasts_blocks_no_clock() -> None:
    """A broadcast can end on its root before other ranks arrive, so it does not connect the ranks."""
    ranks = [rank(0, collective(0, 10, name="broadcast"))]
    ranks += [rank(one, collective(0, 10, name="broadcast"), collective(100, 300), clock=one) for one in (1, 2)]
    assert rows(clocks.VIEW, concat_traces(ranks), "rank reference_rank offset_ns") == [
        (0, None, None), (1, 1, 0), (2, 1, 1),
    ]  # fmt: skip


def test_alignment_names_all_ranks_that_keep_their_times() -> None:
    moved = aligned(pipeline())
    assert {one.code for one in moved.quality[-2:]} == {"clocks-not-aligned"}
    unknown, elsewhere = (one.message for one in moved.quality[-2:])
    assert "of 1 of 5 ranks could not be aligned: rank 4 " in unknown
    assert "the clocks of 2 of 5 ranks were not aligned (rank 2, 3): no shared collectives connect them" in elsewhere
    steps = moved.ints("start_ns")[moved.rows("kind", "step")]
    assert steps.tolist() == [0, 0, 2000, 3000]


def test_the_clock_of_most_ranks_is_taken() -> None:
    alone = rank(0, collective(0, 50, group="tp"), clock=9 * 10**9)
    moved = aligned(concat_traces([alone, rank(1, collective(0, 50)), rank(2, collective(0, 50), clock=300)]))
    assert moved.ints("start_ns")[moved.rows("kind", "step")].tolist() == [9 * 10**9, 0, 0]
    assert "could not be aligned: rank 0 " in moved.quality[-1].message


@pytest.mark.parametrize("ppm", [50, -50])
def test_times_of_a_drifting_clock_pass_as_on_the_other(ppm: int) -> None:
    """Times are corrected for the drift. Events without a gap still have no gap, and no event becomes longer than the
    event that contains it."""
    moved = aligned(drifting(ppm))
    found = rows(clocks.VIEW, moved, "offset_ns max_residual_ns")
    assert max(abs(value) for row in found for value in row) <= 1
    kernels = moved.rows("kind", "kernel")
    start, end = moved.ints("start_ns")[kernels].reshape(2, -1), moved.end_ns[kernels].reshape(2, -1)
    assert abs(start[0] - start[1]).max() <= 1
    assert abs(end[0] - end[1]).max() <= 1
    assert (moved.ints("self_ns") <= moved.ints("dur_ns")).all()


def test_the_reason_for_an_empty_table_is_about_all_ranks() -> None:
    """The reason is not that of the single rank without rows."""
    request = ViewRequest()
    for view, said in ((clocks.VIEW, "align the clocks"), (stragglers.VIEW, "matched and aligned")):
        explain = reduction(view).explain
        assert explain
        parts = [reduction(view).reduce(rank(one), request) for one in (0, 1)]
        assert said in str(explain(parts))
        assert "only one rank" in str(explain(parts[:1]))


def test_aligned_ranks_differ_by_their_shift_alone() -> None:
    trace, moved = both(), aligned(both())
    shift = trace.ints("start_ns") - moved.ints("start_ns")
    assert shift.tolist() == np.where(trace.ints("rank") == 1, 1000, 0).tolist()
    assert moved.events.drop_columns(["start_ns"]).equals(trace.events.drop_columns(["start_ns"]))
    assert moved.meta.window_ns == (0, 6000)
    assert "clocks-aligned" in {finding.code for finding in moved.quality}
    assert rows(clocks.VIEW, moved, "offset_ns") == [(0,), (0,)]


@pytest.mark.parametrize(
    ("clock", "told"),
    [
        (0, "agreed with this clock"),
        (-400, "agreed with this clock"),
        (1600, "were up to 1.60 µs ahead"),
        (-1_234_567, "were up to 1.23 ms behind"),
        (25 * 10**6, "were up to 25.0 ms ahead"),
        (-3600 * 10**9, "were up to 3,600 s behind"),
    ],
)
def test_how_far_clocks_were_apart_is_told_in_words(clock: int, told: str) -> None:
    finding = aligned(concat_traces([first(), second(clock)])).quality[-1]
    assert finding.message.endswith(f"at shared collectives. Before alignment, the other clocks {told}")


def test_nothing_to_align() -> None:
    moved = aligned(first())
    assert moved.events.equals(first().events)
    assert {finding.code for finding in moved.quality} >= {"clocks-not-aligned"}


def test_only_the_chosen_step_is_counted_but_all_align() -> None:
    assert rows(collectives.VIEW, both(), "calls", steps=(7,)) == [(2,), (2,)]
    assert rows(collectives.VIEW, both(), "calls", pattern="nothing like it") == []
    with pytest.raises(UsageError, match="step 3"):
        table_of(collectives.VIEW, both(), ViewRequest(steps=(3,)))


def test_partials_are_plain() -> None:
    """Partials contain tables and numbers, no trace. They are small enough to be sent."""
    (part,) = instances.reduce_each(first(), ViewRequest())
    assert {type(value) for value in part.values()} <= {pd.DataFrame, int}
    assert len(part["collectives"]) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, ncclWork*)", ("all_reduce", "RING", "LL")),
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL128(ncclDevKernelArgs<4096ul>)", ("all_reduce", "TREE", "LL128")),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS_SIMPLE(x)", ("all_reduce", "NVLS", "SIMPLE")),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE(x)", ("all_reduce", "NVLS_TREE", "SIMPLE")),
        ("ncclDevKernel_AllGather_RING_LL(x)", ("all_gather", "RING", "LL")),
        ("ncclDevKernel_ReduceScatter_Sum_f32_COLLNET_DIRECT_LL", ("reduce_scatter", "COLLNET_DIRECT", "LL")),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", ("all_reduce", "RING", "LL")),
        ("ncclAllReduceTreeLL128Kernel_sum_f32(ncclColl)", ("all_reduce", "TREE", "LL128")),
        ("ncclBroadcastRingKernel_copy_i8(ncclColl)", ("broadcast", "RING", "SIMPLE")),
        ("ncclDevKernel_SendRecv(x)", (None, None, None)),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", (None, None, None)),
        ("ncclDevKernel_Generic_4(x)", (None, None, None)),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", ("reduce", "RING", "LL")),
        ("hcom_allReduce__503_0_1", ("all_reduce", None, None)),
        ("hcom_send__822_0_1", ("send", None, None)),
        ("hcom_receive__822_1_1", ("recv", None, None)),
        ("hcom_batchSendRecv__822_2_1", (None, None, None)),
    ],
)  # fmt: skip
def test_names_of_kernels(name: str, expected: tuple[str | None, ...]) -> None:
    assert tuple(kernel_name(name)) == expected


def test_bus_factors_of_nccl_tests() -> None:
    names = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "barrier", "all_reduce"]
    sizes = pd.Series([8, 8, 4, 2, 8, None, 8, 1], dtype="Int64")
    factors = bus_factors(pd.Series(names), sizes).tolist()
    assert factors[:6] == [1.75, 0.875, 0.75, 0.5, 1.0, 1.0]
    assert np.isnan(factors[6:]).all()


def test_classes_of_sizes() -> None:
    sizes = pd.Series([0, 1, 1023, 1024, 2**20 - 1, 5 * 2**20, 2**39, None], dtype="Int64")
    assert size_class(sizes).tolist() == [
        "0 B", "1 to 2 B", "512 B to 1 KiB", "1 to 2 KiB", "512 KiB to 1 MiB", "4 to 8 MiB", "512 GiB to 1 TiB", None,
    ]  # fmt: skip


def test_a_tie_has_no_last_rank() -> None:
    """Ranks 1 and 2 come last together at the second collective, all ranks at the third, rank 2 alone at the last."""
    starts = {0: (100, 1100, 2100, 3100), 1: (100, 1150, 2100, 3100), 2: (120, 1150, 2100, 3160)}
    job = [
        rank(number, *(collective(at, 1000 * i + 500, group_size=3) for i, at in enumerate(times)), world=3)
        for number, times in starts.items()
    ]
    columns = "rank collectives tied last last_ratio waited_ns caused_wait_ns"
    assert rows(stragglers.VIEW, concat_traces(job), columns, by=("rank",)) == [
        (2, 4, 2, 2, 1.0, 0, 20 + 20 + 60 + 60),
        (1, 4, 2, 0, 0.0, 20 + 60, 0),
        (0, 4, 2, 0, 0.0, 20 + 50 + 60, 0),
    ]
    assert rows(stragglers.VIEW, concat_traces(job), "collectives waited_ns last_rank", by=("step",)) == [(4, 210, 2)]
    equal = [rank(number, collective(100, 500), collective(600, 900)) for number in (0, 1)]
    assert rows(stragglers.VIEW, concat_traces(equal), "rank tied last last_ratio") == [
        (1, 2, 0, None),
        (0, 2, 0, None),
    ]
