"""The stragglers among many ranks, and the number of ranks and steps that fit on a page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import perfkit_core
from perfkit_core.output.report.headline import stragglers
from perfkit_core.output.report.pictures import with_ranks
from perfkit_core.pages.profile import run_report
from perfkit_core.ranks.profile import opened
from perfkit_core.trace.model.report_data import Section
from tests.support.golden import check_golden
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


EQUAL = [500] * 4
STRAGGLERS: dict[str, tuple[list[int], pd.DataFrame]] = {
    "rank 1 causes most waiting, then rank 2": ([500, 600, *EQUAL], waiting([0, 900, 300, 0, 0, 0])),
    "two ranks take turns": (EQUAL[:2], waiting([500, 500])),
    "many ranks take turns": ([500] * 12, waiting([100] * 12)),
    "clock errors may explain 80 % of the waiting": (EQUAL, waiting([0, 900, 0, 0], doubtful=80)),
    "clock errors may explain 40 % of the waiting": (EQUAL, waiting([0, 900, 0, 0], doubtful=40)),
    "the waiting for two ranks is unknown": (EQUAL, waiting([10, 10, 0, 0], of_nobody=2)),
    "the waiting for one rank is unknown": (EQUAL, waiting([0, 900, 0, 0], of_nobody=1)),
    "a rank misses in 3 of 40 collectives, and may be the last": (EQUAL, waiting([10] * 4, incomplete=3)),
    "a rank misses in 3 of 40 collectives, and another is waited for": (EQUAL, waiting([0, 900, 0, 0], incomplete=3)),
    "a rank misses in 1 of 40 collectives, at the edge of the recording": (EQUAL, waiting([10] * 4, incomplete=1)),
    "no collectives; own time shows rank 3": ([500, 500, 524, 525], NOTHING),
    "no collectives; 524 of 500 ns is not slow": ([500, 500, 524], NOTHING),
    "no collectives; all ranks differ": ([500, 480, 520, 460, 540], NOTHING),
    "no collectives; all ranks differ, and rank 5 more": ([500, 480, 520, 460, 540, 800], NOTHING),
}


def test_stragglers_are_the_golden_ones() -> None:
    lines = []
    for title, (own, waits) in STRAGGLERS.items():
        told = stragglers(steps(own), waits)
        lines += [f"# {title}", f"stragglers: {list(told.ranks)}", *rendered(told.lines), ""]
    check_golden("output/stragglers.txt", "\n".join(lines))


def test_little_waiting_makes_no_straggler() -> None:
    assert stragglers(steps([500] * 4, dur=100_000), waiting([7000, 0, 0, 0])).ranks == ()
    assert stragglers(steps([500] * 4, dur=100_000), waiting([9000, 0, 0, 0])).ranks == (0,)


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
    report = run_report(opened(files))
    apart = {one.name: one for one in report.sections}["ranks"]
    pd.testing.assert_frame_equal(whole.table, apart.table)
    assert (rendered(whole.lines), whole.chart) == (rendered(apart.lines), apart.chart)
    assert whole.chart
    assert whole.chart.marked == (7,)
    assert rendered(report.headline)[-1] == rendered(whole.lines)[0], "a straggler is told first thing"
