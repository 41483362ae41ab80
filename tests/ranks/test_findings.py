"""Findings about the ranks of a profile of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.output.report.summary import choose_views
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.profile import opened
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Finding, spelled, united
from perfkit_core.trace.model.trace import concat_traces
from tests.support import chrome

ROUND, LOST, MORE = Finding("round", "rounded"), Finding("lost", "3 lost"), Finding("lost", "4 lost")


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((3,), "rank 3"), ((1, 0), "ranks 0, 1"), (range(8), "ranks 0–7"), ((5, 0, 1, 2, 3), "ranks 0–3, 5"),
        ((0, 2, 4), "ranks 0, 2, 4"), ((0, 1, 2, 4, 5), "ranks 0–2, 4, 5"),
    ],
)  # fmt: skip
def test_ranks_are_spelled_as_runs(ranks: tuple[int, ...], said: str) -> None:
    assert str(spelled(ranks)) == said


def test_a_finding_names_its_ranks() -> None:
    found = united([((0,), [ROUND, LOST]), ((1,), [ROUND, MORE]), ((2,), [ROUND, LOST])])
    assert [one.message for one in found] == ["rounded (ranks 0–2)", "3 lost (ranks 0, 2)", "4 lost (rank 1)"]
    assert [one.code for one in found] == ["round", "lost", "lost"]


def test_similar_findings_of_many_ranks_show_the_first() -> None:
    found = united([((rank,), [Finding("lost", f"{rank} lost"), ROUND][: 1 + rank % 2]) for rank in range(1, 6)])
    assert [one.message for one in found] == [
        "1 lost (rank 1; similar in 4 more of 5 ranks)",
        "rounded (ranks 1, 3, 5)",
    ]


def test_cycles_of_one_rank_and_unknown_ranks_add_no_finding() -> None:
    assert united([((0,), [ROUND]), ((0,), [ROUND, LOST])]) == (ROUND, LOST)
    assert united([((), [ROUND]), ((1,), [ROUND])]) == (ROUND,)


@pytest.mark.parametrize("ranks", [(), (0,)])
def test_missing_data_is_a_finding_if_a_whole_rank_lacks_it(ranks: tuple[int, ...]) -> None:
    none = Finding("no-steps", "no training steps")
    assert united([(ranks, [ROUND]), (ranks, [none, LOST])]) == (ROUND, LOST)
    assert united([(ranks, [none]), (ranks, [none, LOST])]) == (none, LOST)
    (said,) = united([((1,), [none]), ((2,), []), ((2,), [none])])
    assert said.message == "no training steps (rank 1)"


def test_a_last_cycle_of_one_open_step_removes_no_steps(tmp_path: Path) -> None:
    step, opened = (
        chrome.event("ProfilerStep#0", 0, 10, cat="user_annotation"),
        chrome.event("ProfilerStep#1", 100, 10, cat="user_annotation"),
    )
    work = [step, chrome.event("aten::mm", 1, 5)]
    first, last = (
        load(chrome.write(tmp_path / f"{number}.json", events)) for number, events in enumerate([work, [opened]])
    )
    assert {"empty-last-step", "no-steps"} <= {one.code for one in last.quality}
    codes = {one.code for one in concat_traces([first, last]).quality}
    assert "empty-last-step" in codes
    assert "no-steps" not in codes


ALL_REDUCE = {"Collective name": "allreduce", "Seq": 1}


@pytest.fixture(params=[0, 1 << 20], ids=["rank by rank", "together"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that writes files of ranks, and opens them. A file is a rank, a world size and events."""

    def open_job(*files: tuple[int, int | None, list[Any]]) -> Any:
        for number, (rank, world, events) in enumerate(files):
            place = {"backend": "nccl", "rank": rank} | ({"world_size": world} if world else {})
            chrome.write(tmp_path / f"{number}.json", events, distributedInfo=place)
        return opened([tmp_path], together_bytes=request.param)

    return open_job


def operator(start: int = 0) -> list[Any]:
    return [chrome.event("aten::mm", start, 1)]


def kernel(start: int, *group: int, **more: Any) -> Any:
    args = ALL_REDUCE | {"Group size": len(group), "Process Group Ranks": str(list(group)), **more}
    return chrome.event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", start, 5, cat="kernel", tid=7, args=args)


def told(profile: Any, code: str, *views: str, **more: Any) -> list[str]:
    found = profile.compute(choose_views(views or ["overview"]), ViewRequest(), **more)
    return [str(one.message) for one in found.quality if one.code == code]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [((0, 1, 3, 6), "4 of 8 ranks were not read (2, 4, 5, 7)"), (range(1, 8), "1 of 8 ranks were not read (0)"),
     (range(8), ""), ((5,), "")],
)  # fmt: skip
def test_missing_ranks_of_the_job_are_reported(job: Callable[..., Any], ranks: tuple[int, ...], said: str) -> None:
    messages = told(job(*((rank, 8, operator()) for rank in ranks)), "ranks-missing")
    assert [one.partition(":")[0] for one in messages] == [said][: bool(said)]


@pytest.mark.parametrize(
    ("cycles", "said"),
    [(((0, 2), (1, 8), (2, 8)), "2: rank 0; 8: ranks 1, 2"), (((0, 3), (1, 3), (0, 2)), "2: rank 0; 3: ranks 0, 1"),
     (((0, None), (0, 2), (1, 3)), "2: rank 0; 3: rank 1")],
    ids=["ranks", "cycles", "not told by all"],
)  # fmt: skip
def test_ranks_of_several_jobs_are_reported(
    job: Callable[..., Any], cycles: tuple[tuple[int, int | None], ...], said: str
) -> None:
    (message,) = told(job(*((*cycle, operator(10 * at)) for at, cycle in enumerate(cycles))), "jobs-mixed")
    assert message.endswith(f"different world sizes ({said})")


def test_ranks_with_unknown_waiting_are_reported(job: Callable[..., Any]) -> None:
    """Ranks 0 and 1 share a collective. Rank 2 has no collective, and rank 3 has no events, so waiting is unknown for
    both."""
    shared = [kernel(0, 0, 1)]
    profile = job((0, 4, shared), (1, 4, shared), (2, 4, operator()), (3, 4, []))
    (said,) = told(profile, "waits-not-known", "stragglers", "clocks")
    assert said.startswith("the waits of 2 of 4 ranks are unknown (ranks 2, 3): their clocks cannot be compared with ")
    found = profile.compute(choose_views(["clocks"]), ViewRequest())
    assert found.tables["clocks"]["rank"].tolist() == [0, 1, 2, 3]
    some = profile.compute(choose_views(["stragglers"]), ViewRequest(pattern="mm"))
    assert "waits-not-known" not in {one.code for one in some.quality}


def test_waits_of_some_steps_do_not_hide_unknown_waits(job: Callable[..., Any]) -> None:
    """Rank 1's step has no collective, but a collective outside the steps connects rank 1 with the other ranks."""
    launch = chrome.event("cudaLaunchKernel", 2, 1, cat="cuda_runtime", args={"correlation": 1})
    work = [launch, kernel(5, 0, 1, 2, correlation=1)]
    steps = [chrome.event("ProfilerStep#1", begin, 20, cat="user_annotation") for begin in (0, 100, 0)]
    profile = job(*((rank, 3, [step, *work]) for rank, step in enumerate(steps)))
    assert not told(profile, "waits-not-known", "stragglers", own_steps=True)
    found = profile.compute(choose_views(["stragglers"]), ViewRequest(), own_steps=True)
    assert sorted(found.tables["stragglers"]["rank"]) == [0, 2]


def test_waits_for_ranks_that_were_not_read_are_known_at_least(job: Callable[..., Any]) -> None:
    profile = job(*((rank, 3, [kernel(0, 0, 1, 2)]) for rank in (0, 2)))
    (said,) = told(profile, "waits-not-known", "stragglers")
    assert said.startswith("in 100% of the collectives, a rank is missing, because it was not read")


def test_the_reason_names_two_ranks_without_collectives(job: Callable[..., Any]) -> None:
    views = choose_views(["clocks", "stragglers", "ranks"])
    found = job(*((rank, 2, operator()) for rank in range(2))).compute(views, ViewRequest())
    reasons = [str(found.why_empty(view)) for view in views]
    expected = ("no collectives were recorded", "no collectives of several ranks", "no training steps were recorded")
    assert [reason[: len(start)] for reason, start in zip(reasons, expected, strict=True)] == list(expected)


def test_findings_of_recorded_ranks(traces: Path) -> None:
    """Each rank has the same findings, read alone and in the profile of all ranks."""
    files = sorted((traces / "torch" / "dlrm-8xv100").glob("rank*.json"))
    alone = [{one.message for one in load(file).quality} for file in files]
    whole = load(files).quality
    assert whole
    for one in whole:
        message, _, ranks = one.message.rpartition(" (rank")
        assert ranks
        told = [rank for rank, messages in enumerate(alone) if message in messages]
        assert f"({spelled(told)})" == one.message[len(message) + 1 :]
