"""The replay of streams, events, synchronisations, copies and the launch queue. Expected values are computed by hand;
times in comments are in µs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import play
from perfkit_core.replay.played_steps import steps
from perfkit_core.replay.transforms import Remove, Scale, Unblock, transformed
from perfkit_core.replay.waits import sync_records
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.replayed import played_us, rows

US = 1_000


def call(name: str, start: int, dur: int, correlation: int | None = None, kind: str = "runtime") -> dict[str, Any]:
    return host(name, kind, start * US, dur * US, correlation=correlation)


def work(name: str, start: int, dur: int, correlation: int, stream: int = 7, kind: str = "kernel") -> dict[str, Any]:
    return device(name, kind, start * US, dur * US, correlation) | {"stream": stream}


def record(name: str, start: int, dur: int, correlation: int, stream: int, **args: int) -> dict[str, Any]:
    """Return the record that CUPTI writes for a call that synchronises."""
    return device(name, "sync", start * US, dur * US, correlation) | {"stream": stream, "args": json.dumps(args)}


def step(dur: int) -> dict[str, Any]:
    return host("step", "step", 0, dur * US, step=0)


def two_streams() -> Trace:
    """Stream 7 computes a and records an event. Stream 8 waits for this event before it runs b. The host waits for
    stream 8."""
    return trace(
        [
            step(170),
            call("launch a", 5, 5, 1),
            work("a", 10, 100, 1),
            call("cudaEventRecord", 12, 2, 2),
            call("cudaStreamWaitEvent", 16, 2, 3),
            record("Stream Wait Event", 16, 0, 3, 8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
            call("launch b", 20, 5, 4),
            work("b", 112, 50, 4, stream=8),
            call("cudaStreamSynchronize", 50, 115, 5, kind="sync"),
            record("Stream Synchronize", 50, 115, 5, 8, wait_on_stream=8),
        ]
    )


def test_a_stream_waits_for_the_event_of_another() -> None:
    found = two_streams()
    assert played_us(found) == [170]
    # a ends at 60 instead of 110. b runs from 62 to 112. The host returns 3 later, at 115, and works for 5.
    assert played_us(found, Scale(rows(found, "a"), 0.5)) == [120]
    # a ends at 210, b runs from 212 to 262, the host returns at 265 and works for 5
    assert played_us(found, Scale(rows(found, "a"), 2.0)) == [270]


def test_without_a_record_the_awaited_stream_is_inferred_from_its_end() -> None:
    """Without a record of the event, b begins 2 µs after the end of a. No other work explains this begin."""
    table = [row for row in two_streams().events.to_pylist() if row["kind"] != "sync" or row["device"] == "cpu"]
    keep = ("name", "kind", "start_ns", "dur_ns", "device", "stream", "correlation", "pid", "tid", "step")
    found = trace([{key: row[key] for key in keep} for row in table])
    assert played_us(found) == [170]
    assert played_us(found, Scale(rows(found, "a"), 0.5)) == [120]


def both_streams(name: str, **args: int) -> Trace:
    """Stream 7 works from 10 to 60, and stream 8 from 15 to 100. The host begins to wait at 20. It continues 3 µs after
    the end of the work for which it waits."""
    until = 63 if args else 103
    told = [record("Sync", 20, until - 20, 3, 7, **args)] if args else []
    return trace(
        [
            step(until + 7),
            call("launch a", 0, 5, 1),
            work("a", 10, 50, 1),
            call("launch b", 5, 5, 2),
            work("b", 15, 85, 2, stream=8),
            call(name, 20, until - 20, 3, kind="sync"),
            *told,
        ]
    )


def test_a_device_synchronisation_waits_for_all_streams() -> None:
    found = both_streams("cudaDeviceSynchronize")
    assert played_us(found) == [110]
    # a ends at 60. The call returns 5 later, the default where the recording shows no delay. The host then works for 7.
    assert played_us(found, Scale(rows(found, "b"), 0)) == [72]
    assert played_us(found, Scale(rows(found, "a"), 0)) == [110]  # the call waited for b


@pytest.mark.parametrize("stream", [-1, 2**32 - 1, 7])
def test_the_stream_of_a_device_synchronisation_is_ignored(stream: int) -> None:
    """The stream may be missing, arbitrary, or the number that older profilers write for no stream."""
    told = record("Context Sync", 20, 80, 3, stream)
    found = both_streams("cudaDeviceSynchronize")
    found = trace([*_as_rows(found), told])
    assert played_us(found) == [110]
    assert played_us(found, Scale(rows(found, "b"), 0)) == [72]


def test_every_number_for_no_stream_is_recognised() -> None:
    found = trace([*_as_rows(both_streams("cudaStreamSynchronize")), record("Sync", 20, 80, 3, 2**32 - 1)])
    assert sync_records(found).stream.tolist() == [-1]


def test_a_stream_synchronisation_waits_for_one_stream() -> None:
    found = both_streams("cudaStreamSynchronize", wait_on_stream=7)
    assert played_us(found) == [70]
    # the other stream does not matter
    assert played_us(found, Scale(rows(found, "b"), 3)) == [70]
    # a ends at 110, the call returns 3 later, the host works for 7
    assert played_us(found, Scale(rows(found, "a"), 2)) == [120]


def _as_rows(found: Trace) -> list[dict[str, Any]]:
    told = ("name", "kind", "start_ns", "dur_ns", "device", "pid", "tid", "stream", "correlation")
    return [{key: row[key] for key in told} | _step_of(row) for row in found.events.to_pylist()]


def _step_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"step": row["step"]} if row["kind"] == "step" else {}


def events(told: bool) -> Trace:
    """Return one stream that runs a, records an event, and runs b. The host waits for the event until 62, and then
    works for 8 µs."""
    record_of = record("Event Sync", 30, 32, 4, 7, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2)
    return trace(
        [
            step(70),
            call("launch a", 0, 5, 1),
            work("a", 10, 50, 1),
            call("cudaEventRecord", 8, 2, 2),
            call("launch b", 12, 5, 3),
            work("b", 60, 140, 3),
            call("cudaEventSynchronize", 30, 32, 4, kind="sync"),
            *([record_of] if told else []),
        ]
    )


@pytest.mark.parametrize("told", [True, False], ids=["recorded", "by-its-end"])
def test_an_event_synchronisation_does_not_wait_for_later_work(told: bool) -> None:
    found = events(told)
    assert played_us(found) == [70]
    # a ends at 110, the call returns 2 later, the host works for 8
    assert played_us(found, Scale(rows(found, "a"), 2)) == [120]
    assert played_us(found, Scale(rows(found, "b"), 3)) == [70]
    # the host works for 30 before the call and for 8 after it
    assert played_us(found, Remove(rows(found, "cudaEventSynchronize"))) == [38]


def copying(kind: str, name: str, until: int) -> Trace:
    """A copy runs on the device from 40 to 90. Its call begins at 10 and returns at ``until``, and 100 µs of host work
    follow."""
    copy = work("Memcpy HtoD", 40, 50, 1, kind="memcpy") | {"copy_kind": kind, "bytes": 500_000}
    return trace([step(until + 100), call(name, 10, until - 10, 1), copy])


def test_a_copy_of_pageable_memory_blocks_its_caller() -> None:
    found = copying("HtoD pageable", "cudaMemcpyAsync", 92)
    assert played_us(found) == [192]
    # 40 before the copy, 25 for the copy, 2 until the call returns, 100 after it
    assert played_us(found, Scale(rows(found, "Memcpy HtoD"), 0.5)) == [167]
    # 10 before the call, 5 for the call, 100 after it
    assert played_us(found, Unblock(rows(found, "cudaMemcpyAsync"), 5 * US)) == [115]


def test_a_copy_after_a_kernel_waits_and_stages_nothing() -> None:
    """The kernel runs from 5 to 60. The call of the copy begins at 10, the copy runs from 61 to 71, and the call ends
    at 73."""
    copy = work("Memcpy DtoH", 61, 10, 2, kind="memcpy") | {"copy_kind": "DtoH pageable", "bytes": 4}
    found = trace(
        [step(80), call("launch", 0, 5, 1), work("kernel", 5, 55, 1), call("cudaMemcpyAsync", 10, 63, 2), copy]
    )
    assert played_us(found) == [80]
    # The kernel ends at 15. The copy begins 1 later and takes 10. The call returns at 28, and the host works for 7.
    assert played_us(found, Scale(rows(found, "kernel"), 10 / 55)) == [35]


def test_a_copy_of_pinned_memory_does_not_block_its_caller() -> None:
    """The copy ends at 90, but the call returns at 15, so the duration of the copy does not delay the host."""
    found = copying("HtoD pinned", "cudaMemcpyAsync", 15)
    assert played_us(found) == [115]
    assert played_us(found, Scale(rows(found, "Memcpy HtoD"), 4)) == [115]


def test_a_pinned_copy_that_ends_early_was_not_waited_for() -> None:
    found = copying("HtoD pinned", "cudaMemcpyAsync", 92)
    assert played_us(found, Scale(rows(found, "Memcpy HtoD"), 4)) == [192]


def ahead(launched: bool = True) -> Trace:
    """Return four steps of 100 µs. In each step, the host launches a kernel of 80 µs and waits for the device until the
    end."""
    found: list[dict[str, Any]] = []
    for number in range(4):
        begin = 100 * number
        found += [
            host(f"step {number}", "step", begin * US, 100 * US, step=number),
            call("launch", begin, 10, number + 1 if launched else None),
            work("kernel", begin + 10, 80, number + 1),
            call("cudaDeviceSynchronize", begin + 20, 75, kind="sync"),
        ]
    return trace(found)


@pytest.mark.parametrize("launched", [True, False], ids=["launched", "no-launch-recorded"])
def test_without_waits_the_device_limits_a_long_training(launched: bool) -> None:
    """Without the waits, the host needs only 25 µs per step. In a long training, a step then takes the 80 µs of its
    kernel. The step of a kernel is that of its launch, or the step at its time if no launch was recorded."""
    found = ahead(launched)
    replay = build(found)
    own = steps(replay)
    graph = transformed(replay, [Remove(rows(found, "cudaDeviceSynchronize"))])
    assert (own.played_ns(play(graph)) // US).tolist() == [25] * 4
    assert (own.lasting_ns(replay, graph, play(graph)) // US).tolist() == [80] * 4
    assert (own.lasting_ns(replay, replay.graph, play(replay.graph)) // US).tolist() == [100] * 4
    faster = transformed(replay, [Remove(rows(found, "cudaDeviceSynchronize")), Scale(rows(found, "kernel"), 0.1)])
    assert (own.lasting_ns(replay, faster, play(faster)) // US).tolist() == [25] * 4


def test_the_device_limits_a_training_whose_host_runs_ahead() -> None:
    """Each of four steps launches a kernel of 80 µs and takes 25 µs on the host, so the last kernels run after the last
    step. In a long training, a step takes the 80 µs of its kernel, and the device is always busy."""
    found: list[dict[str, Any]] = []
    for number in range(4):
        begin = 25 * number
        found += [
            host(f"step {number}", "step", begin * US, 25 * US, step=number),
            call("launch", begin, 10, number + 1),
            work("kernel", 10 + 80 * number, 80, number + 1),
        ]
    facts = RuleInput(trace(found))
    replay, own = facts.replay, facts.steps
    assert own.recorded_ns.tolist() == [25 * US] * 4
    assert facts.ahead
    assert facts.late
    assert (facts.step_ns, facts.busy_ns) == (80 * US, 80 * US)
    assert own.lasting_ns(replay, replay.graph, play(replay.graph)).tolist() == [80 * US] * 4
    faster = transformed(replay, [Scale(rows(facts.trace, "kernel"), 0.5)])
    assert own.lasting_ns(replay, faster, play(faster)).tolist() == [40 * US] * 4
    assert not RuleInput(ahead()).ahead


def test_the_lead_of_the_host_counts_once() -> None:
    """Four steps as above. The last one also works on the host for 200 µs. Without the waits, the host is ahead by
    165 µs after three steps, so that this work is hidden behind the work of the device."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        begin = 100 * number
        events += [
            host(f"step {number}", "step", begin * US, (300 if number == 3 else 100) * US, step=number),
            call("launch", begin, 10, number + 1),
            work("kernel", begin + 10, 80, number + 1),
            call("cudaDeviceSynchronize", begin + 20, 75, kind="sync"),
        ]
    found = trace([*events, call("work", 395, 200, kind="operator")])
    replay = build(found)
    own = steps(replay)
    assert own.lasting_ns(replay, replay.graph, play(replay.graph)).tolist() == [100 * US] * 3 + [300 * US]
    graph = transformed(replay, [Remove(rows(found, "cudaDeviceSynchronize"))])
    assert own.played_ns(play(graph)).tolist() == [25 * US] * 3 + [225 * US]
    assert own.lasting_ns(replay, graph, play(graph)).tolist() == [80 * US] * 4
    assert own.lasting_ns(replay, graph, play(graph), 4).tolist() == [80 * US]


def test_a_recording_without_steps_tells_nothing_about_a_host_that_runs_ahead() -> None:
    """The host launches a kernel of 80 µs in 10 µs. The time of the recording is that of the host."""
    replay = build(trace([call("launch", 0, 10, 1), work("kernel", 10, 80, 1)]))
    own = steps(replay)
    assert own.device_ns(replay, replay.graph, replay.graph.start_ns).tolist() == [80 * US]
    assert own.usual_ns(replay).tolist() == own.recorded_ns.tolist() == [10 * US]


def test_without_steps_the_thread_that_runs_from_begin_to_end_tells_the_time() -> None:
    """A thread for the backward pass has more calls in 20 µs, and a thread that watches has fewer in 104 µs."""
    calls = [call("forward", 0, 10), call("wait", 50, 20), call("optimizer", 90, 10)]
    backward = [host("mul", "operator", (51 + 2 * number) * US, US, tid=2) for number in range(10)]
    watching = [host("poll", "operator", at * US, 2 * US, tid=3) for at in (0, 102)]
    assert steps(build(trace(calls + backward + watching))).recorded_ns.tolist() == [100 * US]
    assert steps(build(trace(calls + backward))).recorded_ns.tolist() == [100 * US]


def test_work_launched_before_the_recording_is_in_no_step() -> None:
    """Work of 60 µs without a launch runs at the beginning of a step of 100 µs. The step launches work of 30 µs."""
    found = trace(
        [
            step(100),
            work("before", 0, 60, 99),
            call("launch", 5, 10, 1),
            work("kernel", 60, 30, 1),
            call("cudaDeviceSynchronize", 20, 75, kind="sync"),
        ]
    )
    replay = build(found)
    graph = transformed(replay, [Remove(rows(found, "cudaDeviceSynchronize"))])
    assert (steps(replay).lasting_ns(replay, graph, play(graph)) // US).tolist() == [30]


def test_a_copy_to_the_host_stages_nothing() -> None:
    """The call of the copy takes long only because the copy waits for another stream, which works from 6 to 58."""
    copy = work("Memcpy DtoH", 60, 10, 2, kind="memcpy") | {"copy_kind": "DtoH pageable", "bytes": 4}
    other = work("other", 6, 52, 1, stream=8)
    found = trace([step(80), call("launch", 0, 5, 1), other, call("cudaMemcpyAsync", 10, 63, 2), copy])
    assert played_us(found) == [80]
    # the other stream ends at 32, the copy runs from 34 to 44, the call returns 3 later at 47, and the host works for 7
    assert played_us(found, Scale(rows(found, "other"), 0.5)) == [54]
