"""Records whose times cannot be are counted and not used. What is unusual but possible stays as it was recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfkit_core import load
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.assembly import implausible_times
from perfkit_core.trace.model.schema import IMPLAUSIBLE
from perfkit_core.trace.model.trace import Trace
from tests.support.events import codes, column, device, host, names_of_rows, trace
from tests.support.paths import DATA

MS, HOUR, DAY = 10**6, 3600 * 10**9, 24 * 3600 * 10**9
NOW = 1_765_000_000 * 10**9


def launches(count: int = 6, origin: int = NOW, **first: Any) -> list[dict[str, Any]]:
    """Return launches every ms, each with a kernel of 0.5 ms that starts 0.1 ms later. ``first``: changed fields of the
    second kernel."""
    rows: list[dict[str, Any]] = []
    for i in range(count):
        at = origin + i * MS
        rows.append(host(f"launch {i}", "runtime", at, MS // 100, correlation=i))
        rows.append({**device(f"k{i}", "kernel", at + MS // 10, MS // 2, correlation=i), "args": None})
    rows[3] |= first
    return rows


def moved(rows: list[dict[str, Any]], by: int, *numbers: int) -> list[dict[str, Any]]:
    """Move the kernels with these numbers in time."""
    for i in numbers:
        rows[2 * i + 1]["start_ns"] += by
    return rows


def implausible(found: Trace) -> set[str]:
    check_trace(found)
    return {name for name, kind in column(found, "kind").items() if kind == IMPLAUSIBLE}


def test_a_plausible_recording_is_not_changed() -> None:
    found = trace(launches())
    assert not implausible(found)
    assert not codes(found) & {implausible_times.FAR, implausible_times.OTHER_CLOCK, implausible_times.OVERLONG}


@pytest.mark.parametrize("by", [-100_000 * 10**9, -2 * MS, HOUR, 400 * DAY])
def test_work_far_from_its_launch_has_another_clock(by: int) -> None:
    """The record stays with its launch, what was recorded stays in ``args``, and the window does not contain it."""
    rows = launches()
    rows[3]["args"] = '{"grid":[1,1,1]}'
    found = trace(moved(rows, by, 1, 2))
    assert implausible(found) == {"k1", "k2"}
    assert implausible_times.OTHER_CLOCK in codes(found)
    assert names_of_rows(found, "launched_by")["k1"] == "launch 1"
    assert column(found, "start_ns")["k1"] == NOW + MS
    recorded = {"recorded_kind": "kernel", "recorded_start_ns": NOW + MS + MS // 10 + by, "recorded_dur_ns": MS // 2}
    assert json.loads(column(found, "args")["k1"]) == {"grid": [1, 1, 1], **recorded}
    assert found.meta.window_ns == (NOW, NOW + 5 * MS + 6 * MS // 10)


@pytest.mark.parametrize("by", [-100_000 * 10**9, -5 * MS, HOUR, -NOW])
def test_the_clock_of_a_whole_device_is_moved(by: int) -> None:
    """Durations and order of the work are right. The earliest work begins at its launch."""
    found = trace(moved(launches(), by, *range(6)))
    assert not implausible(found)
    start = column(found, "start_ns")
    assert [start[f"k{i}"] for i in range(6)] == [NOW + i * MS for i in range(6)]
    (text,) = [finding.message for finding in found.quality if finding.code == implausible_times.CLOCK_OFFSET]
    assert text.startswith("the clock of cuda:0 differs by ")


def test_another_device_keeps_its_clock() -> None:
    rows = moved(launches(), -HOUR, *range(6))
    rows += [host("launch", "runtime", NOW, 5, correlation=9), device("k", "kernel", NOW + 9, 5, 9, device="cuda:1")]
    start = column(trace(rows), "start_ns")
    assert (start["k"], start["k0"]) == (NOW + 9, NOW)


def test_work_that_lost_its_start_is_not_moved() -> None:
    rows = launches()
    for i in range(6):
        rows[2 * i + 1]["start_ns"] = 0
    assert implausible(trace(rows)) == {f"k{i}" for i in range(6)}


def test_a_long_queue_and_an_error_of_clocks_are_plausible() -> None:
    """The device works off 100 s of launches. Kernel 1 starts 0.3 ms before its launch."""
    rows = launches(start_ns=NOW + MS - 3 * MS // 10)
    rows += [host(f"queued {i}", "runtime", NOW + 7 * MS + i, 1, correlation=100 + i) for i in range(50)]
    rows += [device(f"q{i}", "kernel", NOW + 8 * MS + 2 * i * 10**9, 2 * 10**9, 100 + i) for i in range(50)]
    assert not implausible(trace(rows))


def test_host_events_days_away_are_not_used() -> None:
    """A thread with another clock, and an event whose duration overflowed."""
    rows = [*launches(), host("step", "step", NOW, 6 * MS, step=3)]
    rows += [host(f"other {i}", "operator", NOW - 400 * DAY + i, 5, tid=2) for i in range(3)]
    rows += [host("endless", "operator", NOW + MS, 300 * DAY, tid=3)]
    found = trace(rows)
    assert implausible(found) == {"other 0", "other 1", "other 2", "endless"}
    assert {implausible_times.FAR, implausible_times.OVERLONG} <= codes(found)
    assert found.meta.window_ns == (NOW, NOW + 6 * MS)


def test_many_events_at_one_time_are_the_wrong_ones() -> None:
    rows = [*launches(2), *(host(f"zero {i}", "operator", 0, 5 + i) for i in range(20))]
    assert implausible(trace(rows)) == {f"zero {i}" for i in range(20)}


def test_a_pause_of_hours_is_plausible() -> None:
    assert not implausible(trace([*launches(), host("next cell", "operator", NOW + 10 * HOUR, 5)]))


@pytest.mark.parametrize("dur", [2 * MS, 1600 * MS, 2**32, 300 * DAY])
def test_work_over_later_work_of_its_stream_has_a_wrong_duration(dur: int) -> None:
    found = trace(launches(dur_ns=dur))
    assert implausible(found) == {"k1"}
    assert column(found, "start_ns")["k1"] == NOW + MS + MS // 10
    assert json.loads(column(found, "args")["k1"])["recorded_dur_ns"] == dur
    assert implausible_times.OVERLONG in codes(found)


def test_all_durations_of_a_stream_may_overflow() -> None:
    """No kernel contains another one, because each ends later than the one before."""
    rows = launches()
    for row in rows[1::2]:
        row |= {"name": "k", "dur_ns": 2**32}
    kinds = trace(rows).events["kind"].to_pylist()
    assert kinds.count(IMPLAUSIBLE) == 6


def test_the_last_work_ends_far_behind_everything_else() -> None:
    """Nothing follows on the stream, but other calls of the kernel are shorter."""
    rows = launches()
    for row in rows[1::2]:
        row["name"] = "k"
    rows[-1]["dur_ns"] = 1600 * MS
    found = trace(rows)
    kinds = found.events["kind"].to_pylist()
    assert (kinds.count("kernel"), kinds.count(IMPLAUSIBLE)) == (5, 1)
    rows[-1]["name"] = "another kernel"
    assert IMPLAUSIBLE not in trace(rows).events["kind"].to_pylist()


def test_nodes_of_one_graph_launch_may_overlap() -> None:
    """Also if the launch itself was not recorded."""
    rows = launches()
    for graph, at in ((7, NOW + 10 * MS), (8, NOW + 20 * MS)):
        rows.append(device(f"outer {graph}", "kernel", at, 5 * MS, graph))
        rows += [device(f"inner {graph} {i}", "kernel", at + i * MS, MS // 2, graph) for i in range(1, 4)]
    rows.append(host("graph", "runtime", NOW + 6 * MS, 5, correlation=7))
    assert not implausible(trace(rows))


def test_other_streams_and_dependent_launches_may_overlap() -> None:
    """With programmatic dependent launch, a kernel begins before the one before it has ended."""
    rows = launches(stream=20, dur_ns=100 * MS)
    rows[7]["start_ns"] = rows[5]["start_ns"] + MS // 2 - 4_000
    rows[6]["start_ns"] = rows[4]["start_ns"] + 20
    assert not implausible(trace(rows))


def test_a_step_that_contains_later_steps_has_a_wrong_duration() -> None:
    rows = [host(f"step {i}", "step", NOW + i * MS, MS, step=i) for i in range(4)]
    rows += [host(f"op {i}", "operator", NOW + i * MS + 5, 5) for i in range(4)]
    rows[1]["dur_ns"] = 10**9
    found = trace(rows)
    assert implausible(found) == {"step 1"}
    assert (column(found, "step")["op 0"], column(found, "step")["op 1"]) == (0, None)
    nested = [*rows[:1], *(host(f"inner {i}", "step", NOW + i, 1, step=i) for i in range(4)), rows[4]]
    assert not implausible(trace(nested))


def test_a_step_without_a_duration_is_no_step() -> None:
    """The last step was open when the recording ended; another one has lost its duration."""
    rows = [host(f"step {i}", "step", NOW + i * MS, MS, step=i) for i in range(4)]
    rows += [host(f"op {i}", "operator", NOW + i * MS + 5, 5) for i in range(4)]
    rows[1]["dur_ns"] = rows[3]["dur_ns"] = 0
    found = trace(rows)
    check_trace(found)
    assert [name for name, kind in column(found, "kind").items() if kind == "step"] == ["step 0", "step 2"]
    messages = {finding.code: finding.message for finding in found.quality}
    assert messages["steps-without-duration"].startswith("step 1 ")
    assert messages["partial-step"] == "the recording ended inside step 3: it is not counted as a step"


def test_only_implausible_work_is_not_called_absent() -> None:
    rows = launches()
    for row in rows[1::2]:
        row["start_ns"] = 0
    (text,) = [finding.message for finding in trace(rows).quality if finding.code == "no-device-events"]
    assert text.startswith("no device work has usable times")


def test_a_history_of_allocations_may_last_for_days() -> None:
    rows = [host(f"m{i}", "memory", NOW + i * 3 * DAY, 0, bytes=512) for i in range(3)]
    assert not implausible(trace(rows))


def test_kernels_outside_the_steps_are_noted_if_utilisation_exceeds_100_percent() -> None:
    rows = [*launches(), host("step", "step", NOW, 2 * MS, step=1)]
    (finding,) = [finding for finding in trace(rows).quality if finding.code == implausible_times.ABOVE_100]
    assert (finding.note, "cuda:0" in finding.message) == (True, True)
    rows[-1]["dur_ns"] = 6 * MS
    assert implausible_times.ABOVE_100 not in codes(trace(rows))


@pytest.mark.parametrize("window", [(0, 5), (NOW - 400 * DAY, NOW + MS), (NOW, NOW + 400 * DAY)])
def test_a_recorded_window_at_another_time_is_not_used(window: tuple[int, int]) -> None:
    starts = trace(launches()).ints("start_ns")
    assert not implausible_times.is_window(window, starts)
    assert implausible_times.is_window((NOW - MS, NOW + 10 * HOUR), starts)


@pytest.mark.parametrize("name", ["paddle-mlp.pb", "paddle-mlp.json.gz", "torch-mlp.json.gz"])
def test_recordings_of_both_frameworks_are_plausible(name: str) -> None:
    assert not implausible(load(DATA / name))
