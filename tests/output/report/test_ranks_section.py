"""The stragglers among many ranks, and the number of ranks and steps that fit on a page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.output.report.headline import stragglers
from perfkit_core.output.report.pictures import with_ranks
from perfkit_core.pages.profile import run_report
from perfkit_core.ranks.profile import opened
from perfkit_core.trace.model.report_data import Section
from tests.support.rendered import rendered

NOTHING = pd.DataFrame()


def steps(own: list[int], count: int = 2, dur: int = 1000) -> pd.DataFrame:
    rows = [
        {"rank": rank, "step": step, "dur_ns": dur, "dur_over_median_ns": 0, "own_time_ns": each,
         "own_time_over_median_ns": 0, "device_compute_ns": each, "exposed_communication_ns": dur - each}
        for rank, each in enumerate(own) for step in range(count)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def waiting(caused: list[int], doubtful: int = 0, of_nobody: int = 0, incomplete: int = 0) -> pd.DataFrame:
    """Return the table of the view stragglers. The last ``of_nobody`` ranks share no collective with other ranks. In
    ``incomplete`` of 10 collectives of the first rank, a rank is missing."""
    known = len(caused) - of_nobody
    rows = [
        {"rank": rank, "collectives": 10 * (rank < known), "last": 5, "caused_wait_ns": each,
         "doubtful_ns": each * doubtful // 100, "incomplete": incomplete * (rank == 0)}
        for rank, each in enumerate(caused)
    ]  # fmt: skip
    return pd.DataFrame(rows).sort_values("caused_wait_ns", ascending=False, ignore_index=True)


def test_the_rank_that_causes_most_waiting_is_named_first() -> None:
    told = stragglers(steps([500, 600, 500, 500, 500, 500]), waiting([0, 900, 300, 0, 0, 0]))
    assert told.ranks == (1, 2)
    assert (
        "Rank 1 keeps the other ranks waiting: it was the last rank in 5 of 10 collectives" in rendered(told.lines)[0]
    )
    assert "900 ns for it, which is 75% of all" in rendered(told.lines)[0]
    assert "20% more than a step of the median rank" in rendered(told.lines)[2]
    assert "rank 2 takes 500 ns, which is not more than a step of the median rank" in rendered(told.lines)[3]


@pytest.mark.parametrize("caused", [[500, 500], [100] * 12])
def test_ranks_that_take_turns_are_no_stragglers(caused: list[int]) -> None:
    told = stragglers(steps([500] * len(caused)), waiting(caused))
    assert told.ranks == ()
    assert rendered(told.lines)[0].startswith("No single rank is the straggler")


def test_little_waiting_makes_no_straggler() -> None:
    assert stragglers(steps([500] * 4, dur=100_000), waiting([7000, 0, 0, 0])).ranks == ()
    assert stragglers(steps([500] * 4, dur=100_000), waiting([9000, 0, 0, 0])).ranks == (0,)


def test_doubtful_waits_make_no_straggler() -> None:
    """If clock errors could explain 80 % of the waiting that rank 1 causes, it is no straggler; with 40 % it is."""
    told = stragglers(steps([500] * 4), waiting([0, 900, 0, 0], doubtful=80))
    assert told.ranks == ()
    assert rendered(told.lines) == (
        "It is unknown whether other ranks wait for rank 1: clock errors could explain most of the apparent wait of "
        "900 ns.",
    )
    assert stragglers(steps([500] * 4), waiting([0, 900, 0, 0], doubtful=40)).ranks == (1,)


def test_ranks_with_unknown_waiting_are_named() -> None:
    nobody = rendered(stragglers(steps([500] * 4), waiting([10, 10, 0, 0], of_nobody=2)).lines)
    assert nobody == (
        "No single rank is the straggler among the 2 ranks with known waiting times. Together these ranks waited 20 ns "
        "for each other, which is 0.50% of their step time.",
        "The waiting times of 2 of 4 ranks are unknown (ranks 2, 3), because their clocks cannot be compared with the "
        "clocks of other ranks.",
    )
    named = stragglers(steps([500] * 4), waiting([0, 900, 0, 0], of_nobody=1))
    assert named.ranks == (1,)
    assert rendered(named.lines)[-1].startswith("The waiting times of 1 of 4 ranks are unknown (rank 3)")


def test_with_missing_ranks_waits_are_lower_bounds() -> None:
    """A rank that is missing in 3 of 40 collectives may be the last one. The edge of the recording can explain why a
    rank is missing in 1 of 40 collectives."""
    (nobody,) = rendered(stragglers(steps([500] * 4), waiting([10, 10, 10, 10], incomplete=3)).lines)
    assert nobody == (
        "The straggler is unknown, because some ranks cannot be compared or were not read. Together the ranks that "
        "can be compared waited at least 40 ns for each other, which is 0.50% of their step time."
    )
    named = stragglers(steps([500] * 4), waiting([0, 900, 0, 0], incomplete=3))
    assert named.ranks == (1,)
    assert rendered(named.lines)[0] == (
        "Among the ranks that can be compared, rank 1 keeps the other ranks waiting: it was the last rank in 5 of 10 "
        "collectives. The other ranks waited at least 900 ns for it, which is 100% of all known waiting."
    )
    edge = rendered(stragglers(steps([500] * 4), waiting([10, 10, 10, 10], incomplete=1)).lines)
    assert edge[0].startswith("No single rank is the straggler")


def test_without_collectives_own_time_shows_slow_ranks() -> None:
    told = stragglers(steps([500, 500, 524, 525]), NOTHING)
    assert told.ranks == (3,)
    assert rendered(told.lines) == (
        "Rank 3 is slower than the other ranks: without exposed communication, its steps take 525 ns, which is 5% more "
        "than the steps of the median rank.",
    )
    assert stragglers(steps([500, 500, 524]), NOTHING).ranks == ()


def test_ranks_that_all_differ_are_not_slow() -> None:
    assert stragglers(steps([500, 480, 520, 460, 540]), NOTHING).ranks == ()
    assert stragglers(steps([500, 480, 520, 460, 540, 800]), NOTHING).ranks == (5,)


def test_one_step_is_drawn_by_its_parts_several_by_steps() -> None:
    one = with_ranks(Section("ranks", "Ranks", steps([500, 900], 1)), {}).chart
    several = with_ranks(Section("ranks", "Ranks", steps([500, 900], 2)), {}).chart
    assert one
    assert several
    assert (one.x, one.y, one.by, one.marked) == ("", ("device_compute_ns", "exposed_communication_ns"), "rank", (1,))
    assert (several.x, several.y[0]) == ("step", "own_time_ns")


def test_many_ranks_and_steps_are_averages_of_stretches() -> None:
    table = steps([500] * 64, 200)
    table["own_time_ns"] = table["step"] + table["rank"]
    shown = with_ranks(Section("ranks", "Ranks", table, "Note."), {})
    assert len(shown.table) == 64 * 67, "stretches of 3 of 200 steps, so that 64 ranks fit"
    assert shown.table["step"].tolist()[:2] == ["0–2", "3–5"]
    assert shown.table["own_time_ns"].tolist()[:2] == [1, 4]
    last = shown.table.iloc[-1]
    assert (last["rank"], last["step"], last["own_time_ns"]) == (63, "198–199", 262), "63 + 198.5, rounded up"
    assert shown.note.startswith("Note. Each row is the average of up to 3 steps")


def test_ranks_read_one_by_one_have_the_same_section(traces: Path) -> None:
    files = sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))
    whole = {one.name: one for one in run_report(perfkit_core.load(files)).sections}["ranks"]
    apart = {one.name: one for one in run_report(opened(files)).sections}["ranks"]
    pd.testing.assert_frame_equal(whole.table, apart.table)
    assert (rendered(whole.lines), whole.chart) == (rendered(apart.lines), apart.chart)
    assert whole.chart
    assert whole.chart.marked == (7,)
    assert rendered(run_report(opened(files)).headline)[-1] == rendered(whole.lines)[0], (
        "a straggler is told first thing"
    )
