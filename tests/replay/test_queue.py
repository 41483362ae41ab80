"""A full launch queue: the host waits for room, so the device limits the speed although nothing synchronises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.operators import kernels
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.readers.load import load
from perfkit_core.replay.build import build
from perfkit_core.replay.critical_path import contradiction
from perfkit_core.replay.device_work import DEPTH
from perfkit_core.replay.graph import play
from perfkit_core.replay.played_steps import steps
from perfkit_core.replay.transforms import Scale, transformed
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.server_trace import Server

KERNEL_NS, CALL_NS, QUEUED_NS = 10_000, 1_000, 1_000


def full_queue(launches: int) -> Trace:
    """Return consecutive launches that take 1 µs if the queue has room. A launch into a full queue ends 1 µs after the
    kernel that makes room begins."""
    rows, now = [], 0
    for number in range(launches):
        room = QUEUED_NS + (number - DEPTH) * KERNEL_NS
        end = max(now + CALL_NS, room + CALL_NS if number >= DEPTH else 0)
        rows.append(host("cudaLaunchKernel", "runtime", now, end - now, correlation=number + 1))
        rows.append(device("k", "kernel", QUEUED_NS + number * KERNEL_NS, KERNEL_NS, number + 1))
        now = end
    return trace([*rows, host("step", "step", 0, now, step=0)])


def test_a_faster_device_frees_the_queue_sooner() -> None:
    found = full_queue(DEPTH + 200)
    replay = build(found)
    (recorded,) = steps(replay).recorded_ns.tolist()
    assert recorded == QUEUED_NS + 199 * KERNEL_NS + CALL_NS
    for factor in (0.9, 2):
        changed = transformed(replay, (Scale(kernels(found), factor, below=False),))
        assert steps(replay).played_ns(play(changed)).tolist() == [QUEUED_NS + 199 * KERNEL_NS * factor + CALL_NS]


@pytest.mark.parametrize("blocked", [1000, 3000])
def test_most_launches_may_be_blocked(blocked: int) -> None:
    """Few launches that find room are enough to show the time of a launch with room."""
    found = full_queue(DEPTH + blocked)
    replay = build(found)
    faster = transformed(replay, (Scale(kernels(found), 0.5, below=False),))
    assert steps(replay).played_ns(play(faster)).tolist() == [QUEUED_NS + (blocked - 1) * 5_000 + CALL_NS]


def test_a_queue_with_room_blocks_nobody() -> None:
    found = full_queue(DEPTH)
    replay = build(found)
    assert steps(replay).recorded_ns.tolist() == [DEPTH * CALL_NS]
    for factor in (0.5, 2):
        changed = transformed(replay, (Scale(kernels(found), factor, below=False),))
        assert steps(replay).played_ns(play(changed)).tolist() == [DEPTH * CALL_NS]


def test_the_queue_is_full_when_real_launches_block(traces: Path) -> None:
    """The length of the queue is the number of kernels that were launched but have not begun. When a call of more than
    100 µs begins, the queue is full."""
    found = load(traces / "torch" / "v100-ns-resolution.json.gz")
    launched_by, start, dur = found.ints("launched_by"), found.ints("start_ns"), found.ints("dur_ns")
    on_stream = (~found.host) & (launched_by >= 0) & found.rows("kind", "kernel", "memcpy", "memset")
    work = np.flatnonzero(on_stream & (found.ints("stream") == np.bincount(found.ints("stream")[on_stream]).argmax()))
    calls = launched_by[work]
    waiting = np.searchsorted(np.sort(start[calls]), start[calls]) - np.searchsorted(np.sort(start[work]), start[calls])
    blocked = waiting[dur[calls] > 100_000]
    assert waiting.max() == DEPTH
    assert len(blocked) > 500
    assert (blocked == DEPTH).mean() > 0.95


def test_steps_with_a_full_queue_follow_the_device(traces: Path) -> None:
    """The device works for 94 of 96 ms. If its work takes 10 % less time, steps with a full queue become 10 %
    shorter."""
    facts = RuleInput(load(traces / "torch" / "v100-ns-resolution.json.gz"))
    assert facts.busy_ns > 0.98 * facts.step_ns
    faster = transformed(facts.replay, (Scale(kernels(facts.trace), 0.9, below=False),))
    after = facts.steps.played_ns(play(faster))[-3:].sum() / facts.steps.recorded_ns[-3:].sum()
    assert abs(after - 0.9) < 0.01


@pytest.mark.parametrize("captured", [False, True])
def test_the_replay_of_a_graph_is_one_launch(captured: bool, tmp_path: Path) -> None:
    """The graph of a diffusion step has more kernels than the queue has places. It does not wait for its own kernels,
    also if they were attributed to captured operators, which take no time."""
    count = DEPTH + 100
    if captured:
        server = Server()
        server.range("capture_1_FULL", 0, 100 * count)
        server.add("cuda_runtime", "cudaStreamBeginCapture", 10, 2)
        for number in range(count):
            server.operator("aten::mul", 30 + 10 * number, 8)
            server.add("cuda_runtime", "cudaLaunchKernel", 31 + 10 * number, 5, correlation=number + 1, kernel="k")
        server.add("cuda_runtime", "cudaStreamEndCapture", 90 * count, 2)
        server.write(tmp_path / "t.capture.json")
    server = Server()
    for number in range(2):
        at = 20_000 * number
        server.range(f"denoise_step_{number}", at, 19_900)
        server.launch("cudaGraphLaunch", at + 30, [("k", at + 60 + 10 * node, 10) for node in range(count)])
        server.add("cuda_runtime", "cudaStreamSynchronize", at + 40, 19_000)
    found = load(server.write(tmp_path / "t.json"))
    assert (found.has_values("op_name"), contradiction(build(found))) == (captured, None)
    error = advise(found).identity.error
    assert error is not None
    assert error < 0.01
    slower = transformed(build(found), (Scale(kernels(found), 2, below=False),))
    launch = np.flatnonzero(found.rows("name", "cudaGraphLaunch"))[0]
    assert play(slower)[build(found).after[launch]] == found.end_ns[launch]
