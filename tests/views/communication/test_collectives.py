"""Collectives, clocks and stragglers of two ranks. The expected numbers were computed by hand.

True times in ns: collective A has 1000 bytes and runs on rank 0 from 100 and on rank 1 from 250, on both until 300.
Collective B has 3000 bytes and runs on rank 0 from 1000 and on rank 1 from 900, on both until 1100. So A takes 50 after
rank 1 has arrived, and B takes 100 after rank 0 has arrived. Rank 1's clock is 1000 ahead.
"""

from __future__ import annotations

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
from tests.support.tables import check_tables, view_rows, view_table

VIEWS = (collectives.VIEW, clocks.VIEW, stragglers.VIEW)


def first() -> Trace:
    return rank(0, collective(100, 300), collective(1000, 1100, 3000))


def second(clock: int = 1000) -> Trace:
    return rank(1, collective(250, 300), collective(900, 1100, 3000), clock=clock, step_ns=6000)


def both() -> Trace:
    return concat_traces([first(), second()])


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
    ((_, offset, residual, note),) = view_rows(clocks.VIEW, trace, "rank offset_ns max_residual_ns note")[1:]
    assert (offset, residual) == (700 + _shown(10**5, ppm) - 10**5, pytest.approx(0, abs=1))
    assert note.startswith("the drift is corrected")
    assert max(late for (late,) in view_rows(stragglers.VIEW, trace, "late_max_ns")) <= 1


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


def pipeline() -> Trace:
    """Return two stages of two ranks that share no collective. Rank 3 arrives 150 late, and rank 4 has no
    collectives."""
    stages = [(0, "dp0", 0), (1, "dp0", 0), (2, "dp1", 0), (3, "dp1", 150)]
    made = [
        rank(one, collective(100 + late, 300, group=group), clock=1000 * one, world=5) for one, group, late in stages
    ]
    return concat_traces([*made, rank(4, world=5)])


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
    found = view_rows(clocks.VIEW, moved, "offset_ns max_residual_ns")
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
    assert view_rows(clocks.VIEW, moved, "offset_ns") == [(0,), (0,)]


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
    assert view_rows(collectives.VIEW, both(), "calls", steps=(7,)) == [(2,), (2,)]
    assert view_rows(collectives.VIEW, both(), "calls", pattern="nothing like it") == []
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


def machines() -> Trace:
    """Return two machines of two ranks. The clocks of the second machine were set, and rank 3 arrives late."""
    return meeting({0: 0, 1: 0, 2: 5 * 10**6, 3: 5 * 10**6}, {3: 300_000})


def test_clocks() -> None:
    """No collective can end on one rank before the other rank has begun it. These times bound the offset of a clock."""
    starts = [i * 10**9 for i in range(10)]
    jobs = {
        "rank 1 is 1000 ahead": both(),
        "rank 2 shares a collective only with rank 1, and its clock is 300 behind that of rank 1": concat_traces([
            rank(0, collective(100, 300), world=3),
            rank(1, collective(100, 300), collective(400, 450, group="tp", size=8), clock=1000, world=3),
            rank(2, collective(420, 450, group="tp", size=8), clock=700, world=3),
        ]),
        "the ranks with which rank 3 shares a collective end it at 450 and 480": concat_traces([
            rank(0, collective(100, 300, group_size=3), world=4),
            *(rank(one, collective(100, 300, group_size=3), collective(400, end, group="tp", group_size=3), world=4)
              for one, end in ((1, 450), (2, 480))),
            rank(3, collective(420, 460, group="tp", group_size=3), clock=700, world=4),
        ]),
        "the second collectives differ in size, so that they and all later ones are not matched": concat_traces([
            rank(0, collective(0, 100), collective(200, 300), collective(400, 500)),
            rank(1, collective(0, 100), collective(200, 300, 8), collective(400, 500)),
        ]),
        "numbers of the library match a recording that began later": concat_traces([
            rank(0, *(collective(100 * i, 100 * i + 50, sequence=i) for i in range(4))),
            rank(1, *(collective(100 * i, 100 * i + 50, sequence=i) for i in range(2, 4)), clock=20),
        ]),
        "one rank sends, the other receives twice: these belong to no group": concat_traces([
            rank(0, collective(0, 10, name="send"), collective(100, 200)),
            rank(1, collective(0, 10, name="recv"), collective(0, 10, name="recv"), collective(100, 200)),
        ]),
        "sizes of an all-to-all may differ, so that only the times contradict": contradictory(),
        "a broadcast can end on its root before others arrive, so that it does not connect ranks": concat_traces([
            rank(0, collective(0, 10, name="broadcast")),
            *(rank(one, collective(0, 10, name="broadcast"), collective(100, 300), clock=one) for one in (1, 2)),
        ]),
        "two stages share no collective, and rank 4 has none": pipeline(),
        "ten collectives over 9 s, in which the clock gains 50 ppm": concat_traces([
            rank(0, *(collective(at, at + 10**6) for at in starts)),
            rank(1, *(collective(at, at + 10**6 + at // 20_000) for at in starts)),
        ]),
        "a drift of 600 ppm is not corrected, if the bounds allow an offset": drifting(600, took=4 * 10**6),
        "nor if they do not": drifting(600, took=100_000),
        "rank 1 recorded every second collective: its clock would be twice as fast, which is no drift": concat_traces([
            rank(0, *(collective(i * 10**9, i * 10**9 + 100) for i in range(12))),
            rank(1, *(collective(2 * i * 10**9, 2 * i * 10**9 + 100) for i in range(12))),
        ]),
        "a sudden change of 5 ms is no drift": numbered([0, 5 * 10**6]),
        "a change of 2 ms in 10 s may be a drift, which two collectives cannot show":
            numbered([0, 10**10 + 2 * 10**6]),
        "a contradiction of two ranks is reported once": meeting({0: 0, 1: 5 * 10**6}, {}),
        "the clock of the lowest rank was set": meeting({0: 5 * 10**6, 1: 0, 2: 0}, {2: 300_000}),
        "the clocks of a whole machine were set": machines(),
        "only rank 1, whose clock was set, shares collectives with rank 0": bridged(),
    }  # fmt: skip
    check_tables("views/clocks.txt", {name: view_table(clocks.VIEW, job) for name, job in jobs.items()})


def contradictory() -> Trace:
    starts = ((0, 10_000_000), (0, 5_000_000))
    ranks = [[collective(at, at + 100, name="all_to_all") for at in of_rank] for of_rank in starts]
    return concat_traces([rank(number, *of_rank) for number, of_rank in enumerate(ranks)])


def numbered(ends: list[int]) -> Trace:
    """Return two ranks with numbered collectives, which end at these times on rank 1."""
    whole = [at // 10**9 * 10**9 for at in ends]
    return concat_traces([
        rank(0, *(collective(at, at + 100, sequence=i) for i, at in enumerate(whole))),
        rank(1, *(collective(at, at + 100, sequence=i) for i, at in enumerate(ends))),
    ])  # fmt: skip


def bridged() -> Trace:
    """Return four ranks. Only rank 1, whose clock was set, shares collectives with rank 0. Ranks 2 and 3 share
    collectives with rank 1 and with each other."""
    ends = [i * 20 * 10**6 + 10**6 for i in range(6)]
    jumped = [end + 5 * 10**6 * (i > 2) for i, end in enumerate(ends)]
    own, all_three = {"group": "tp"}, {"group": "dp", "group_size": 3}
    near = [collective(end - 100, end, sequence=i, **own) for i, end in enumerate(ends)]
    bridge = [collective(end - 100 + by, end + by, sequence=i, **group)
              for by, group in ((0, own), (1000, all_three)) for i, end in enumerate(jumped)]  # fmt: skip
    far = [[collective(end + 900, end + 1000, sequence=i, **all_three) for i, end in enumerate(ends)] for _ in (2, 3)]
    return concat_traces([rank(one, *each, world=4) for one, each in enumerate([near, bridge, *far])])


def tied() -> Trace:
    """Return three ranks. Ranks 1 and 2 come last together at the second collective, all ranks at the third, rank 2
    alone at the last."""
    starts = {0: (100, 1100, 2100, 3100), 1: (100, 1150, 2100, 3100), 2: (120, 1150, 2100, 3160)}
    return concat_traces([
        rank(number, *(collective(at, 1000 * i + 500, group_size=3) for i, at in enumerate(times)), world=3)
        for number, times in starts.items()
    ])  # fmt: skip


def test_stragglers() -> None:
    """At first, rank 0 waits 150 for rank 1 in A, and rank 1 waits 100 for rank 0 in B."""
    columns = "rank collectives tied last last_ratio late_max_ns waited_ns caused_wait_ns doubtful_ns incomplete"
    by_step = "step collectives skew_p50_ns skew_max_ns waited_ns last_rank incomplete"
    unnamed = [
        [rank(one, collective(0, 100, group=None, group_size=None), world=world) for one in (0, 1)] for world in (2, 3)
    ]
    jobs = {
        "two ranks": both(),
        "a drift of 50 ppm is corrected, and rank 1 is 40 µs late": drifting(50, late=40_000),
        "5 collectives over 4 s are too few to measure a drift, which is more than a collective takes":
            drifting(50, count=5, took=50_000),
        "the clock of rank 1 changes by 0.4 ms, within the bounds, so that rank 0 seems to wait":
            meeting({0: 0, 1: 400_000}, {}),
        "rank 2 comes last, which its clock hides twice; then rank 1 seems to be last, although it took longer":
            meeting({0: 0, 1: 0, 2: -400_000}, {1: 100_000, 2: 300_000}),
        "ends that scatter leave a straggler": meeting({0: 0, 1: 3000}, {1: 500_000}),
        "the clock of the lowest rank was set": meeting({0: 5 * 10**6, 1: 0, 2: 0}, {2: 300_000}),
        "the clocks of a whole machine were set": machines(),
        "two of three ranks were read": meeting({0: 0, 1: 0}, {}, world=3),
        "without a size of the group, all ranks of the job are expected: two of two": concat_traces(unnamed[0]),
        "two of three": concat_traces(unnamed[1]),
        "rank 3 of a pipeline arrives 150 late": pipeline(),
        "contradictory clocks": contradictory(),
        "ranks that come together": tied(),
        "all ranks always come together":
            concat_traces([rank(number, collective(100, 500), collective(600, 900)) for number in (0, 1)]),
    }  # fmt: skip
    tables = {name: view_table(stragglers.VIEW, job, columns) for name, job in jobs.items()}
    tables["two ranks by step"] = view_table(stragglers.VIEW, both(), by=("step",))
    tables["two ranks by rank and step"] = view_table(stragglers.VIEW, both(), by=("rank", "step"))
    for name, job in {"ranks that come together": tied(), "the clocks of a whole machine were set": machines()}.items():
        tables[f"{name}, by step"] = view_table(stragglers.VIEW, job, by_step, by=("step",))
    check_tables("views/stragglers.txt", tables)


def test_collectives_have_times_and_bandwidths_by_size() -> None:
    """A has 1000 bytes and takes 200 on rank 0 and 50 on rank 1. B has 3000 bytes and takes 100 and 200. The bus factor
    of an all-reduce of two ranks is 1. Durations are those of one rank; the transfer time also needs the start of the
    other rank."""
    unnamed = [rank(number, collective(0, 100, group=None, group_size=None)) for number in range(2)]
    check_tables("views/collectives.txt", {
        "two ranks": view_table(collectives.VIEW, both()),
        "by rank and size": view_table(collectives.VIEW, both(), by=("rank", "size")),
        "one rank alone has no transfer": view_table(collectives.VIEW, first()),
        "an unnamed group of all ranks is the world": view_table(collectives.VIEW, concat_traces(unnamed)),
        "of one rank, its size is unknown": view_table(collectives.VIEW, unnamed[0]),
        "two stages of a pipeline": view_table(collectives.VIEW, pipeline()),
        "ends that differ have no transfer": view_table(collectives.VIEW, meeting({0: 0, 1: 400_000}, {})),
    })  # fmt: skip
