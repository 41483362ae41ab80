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
from tests.support.tables import check_events

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


@pytest.mark.parametrize("dur", [2 * MS, 1600 * MS, 2**32, 300 * DAY])
def test_work_over_later_work_of_its_stream_has_a_wrong_duration(dur: int) -> None:
    found = trace(launches(dur_ns=dur))
    assert implausible(found) == {"k1"}
    assert column(found, "start_ns")["k1"] == NOW + MS + MS // 10
    assert json.loads(column(found, "args")["k1"])["recorded_dur_ns"] == dur
    assert implausible_times.OVERLONG in codes(found)


def named(rows: list[dict[str, Any]], name: str = "k", **changed: Any) -> list[dict[str, Any]]:
    """Give all kernels one name, and other changed fields."""
    return [row | {"name": name, **changed} if row["kind"] == "kernel" else row for row in rows]


def graphs() -> list[dict[str, Any]]:
    """Return two launches of a graph, of which one was not recorded. Its nodes overlap."""
    rows = [host("graph", "runtime", NOW + 6 * MS, 5, correlation=7)]
    for graph, at in ((7, NOW + 10 * MS), (8, NOW + 20 * MS)):
        rows.append(device(f"outer {graph}", "kernel", at, 5 * MS, graph))
        rows += [device(f"inner {graph} {i}", "kernel", at + i * MS, MS // 2, graph) for i in range(1, 4)]
    return rows


def dependent() -> list[dict[str, Any]]:
    """Return launches in which a kernel begins before the one before it has ended."""
    rows = launches(stream=20, dur_ns=100 * MS)
    rows[7]["start_ns"] = rows[5]["start_ns"] + MS // 2 - 4_000
    rows[6]["start_ns"] = rows[4]["start_ns"] + 20
    return rows


def stepped(*durations: int) -> list[dict[str, Any]]:
    rows = [host(f"step {i}", "step", NOW + i * MS, dur, step=i) for i, dur in enumerate(durations)]
    return rows + [host(f"op {i}", "operator", NOW + i * MS + 5, 5) for i in range(4)]


def test_unusual_times_that_are_plausible() -> None:
    queue = launches(start_ns=NOW + MS - 3 * MS // 10)
    queue += [host(f"queued {i}", "runtime", NOW + 7 * MS + i, 1, correlation=100 + i) for i in range(50)]
    queue += [device(f"q{i}", "kernel", NOW + 8 * MS + 2 * i * 10**9, 2 * 10**9, 100 + i) for i in range(50)]
    inner = [host(f"inner {i}", "step", NOW + i, 1, step=i) for i in range(4)]
    last = launches()
    last[-1]["dur_ns"] = 1600 * MS
    cases = {
        "an ordinary recording": launches(),
        "the device works off 100 s of launches, and kernel 1 starts 0.3 ms before its launch": queue,
        "a pause of hours": [*launches(), host("next cell", "operator", NOW + 10 * HOUR, 5)],
        "a last kernel that is longer than other kernels": last,
        "nodes of one graph launch may overlap, also if the launch itself was not recorded": [*launches(), *graphs()],
        "other streams and programmatic dependent launches may overlap": dependent(),
        "steps inside a step": [host("step 0", "step", NOW, MS, step=0), *inner, host("op", "operator", NOW + 5, 5)],
        "a history of allocations may last for days":
            [host(f"m{i}", "memory", NOW + i * 3 * DAY, 0, bytes=512) for i in range(3)],
    }  # fmt: skip
    for name, rows in cases.items():
        found = trace(rows)
        assert not implausible(found), name
        assert not codes(found) & {implausible_times.FAR, implausible_times.OTHER_CLOCK, implausible_times.OVERLONG}


def test_impossible_times() -> None:
    """A step without a duration is no step: the last step was open when the recording ended; another one has lost its
    duration. All durations of a stream may overflow: no kernel contains another one, because each ends later than the
    one before. Nothing follows on the stream after the last kernel, but other calls of it are shorter."""
    far = [*launches(), host("step", "step", NOW, 6 * MS, step=3)]
    far += [host(f"other {i}", "operator", NOW - 400 * DAY + i, 5, tid=2) for i in range(3)]
    far += [host("endless", "operator", NOW + MS, 300 * DAY, tid=3)]
    other = moved(launches(), -HOUR, *range(6))
    other += [host("launch", "runtime", NOW, 5, correlation=9), device("k", "kernel", NOW + 9, 5, 9, device="cuda:1")]
    last = named(launches())
    last[-1]["dur_ns"] = 1600 * MS
    cases = {
        "work that lost its start is not moved": named(launches(), start_ns=0),
        "the clock of a device is moved, and another device keeps its clock": other,
        "a thread with another clock, and an event whose duration overflowed": far,
        "many events at one time are the wrong ones":
            [*launches(), *(host(f"zero {i}", "operator", 0, 5 + i) for i in range(20))],
        "all durations of a stream overflowed": named(launches(), dur_ns=2**32),
        "the last kernel ends far behind everything else": last,
        "a step that contains later steps has a wrong duration": stepped(MS, 10**9, MS, MS),
        "steps without a duration": stepped(MS, 0, MS, 0),
        "kernels outside the steps are noted if utilisation exceeds 100%":
            [*launches(), host("step", "step", NOW, 2 * MS, step=1)],
        "not otherwise": [*launches(), host("step", "step", NOW, 6 * MS, step=1)],
    }  # fmt: skip
    traces = {name: trace(rows) for name, rows in cases.items()}
    for found in traces.values():
        check_trace(found)
    check_events("trace/implausible_times.txt", traces, "kind step start_ns dur_ns args", "no-phases")
    assert traces["a thread with another clock, and an event whose duration overflowed"].meta.window_ns == (
        NOW, NOW + 6 * MS,
    )  # fmt: skip


@pytest.mark.parametrize("window", [(0, 5), (NOW - 400 * DAY, NOW + MS), (NOW, NOW + 400 * DAY)])
def test_a_recorded_window_at_another_time_is_not_used(window: tuple[int, int]) -> None:
    starts = trace(launches()).ints("start_ns")
    assert not implausible_times.is_window(window, starts)
    assert implausible_times.is_window((NOW - MS, NOW + 10 * HOUR), starts)


@pytest.mark.parametrize("name", ["paddle-mlp.pb", "paddle-mlp.json.gz", "torch-mlp.json.gz"])
def test_recordings_of_both_frameworks_are_plausible(name: str) -> None:
    assert not implausible(load(DATA / name))
