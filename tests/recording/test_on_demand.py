"""Recording on demand: a training is asked for a window of steps, and records these steps, whatever happens around it.

The loops here call the schedule as a profiler does. The client runs in another thread or process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.recording import capture, capture_socket, environment, on_demand, schedule, signals
from perfkit_core.recording.capture import CaptureClient, CaptureResult
from perfkit_core.recording.on_demand import OnDemand
from perfkit_core.recording.writer import CycleWriter, DetachedCycle, trace_handler
from tests.support.demanded_loop import NATIVE, Loop, asked, handler, while_running
from tests.support.small_trace import small_trace

pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets"), pytest.mark.usefixtures("sockets")
]  # fmt: skip


@pytest.fixture(autouse=True)
def _look_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LOOK_S", 0.0)


Make = Callable[[str], CycleWriter[Any]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return a function that makes a handler for a folder of this name. The test's handlers end with the test."""
    made: list[CycleWriter[Any]] = []

    def handler_of(name: str) -> CycleWriter[Any]:
        made.append(handler(tmp_path / name))
        return made[-1]

    yield handler_of
    for writer in made:
        assert writer.demand
        writer.demand.close()


@pytest.fixture
def writer(make: Make) -> CycleWriter[Any]:
    return make("run")


@pytest.fixture
def loop(writer: CycleWriter[Any]) -> Loop:
    """Return a loop that has begun its first step."""
    first = Loop(writer)
    first.step()
    return first


def send(writer: CycleWriter[Any], request: bytes) -> socket.socket:
    first = min(capture.sockets_below(str(writer.run_dir)), key=lambda path: path.stat().st_ctime_ns)
    connection = capture_socket.connect(first)
    connection.sendall(request)
    return connection


def answered(loop: Loop, **request: Any) -> dict[str, Any]:
    """Send a request, begin the next step, and return the answer."""
    with send(loop.writer, json.dumps(request).encode() + b"\n") as connection:
        loop.step()
        answer: dict[str, Any] = json.loads(connection.recv(4096))
        return answer


def windows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / ".capture" / "requests").read_text().splitlines()]


def results(folder: Path) -> list[dict[str, Any]]:
    path = folder / ".capture" / "results"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("by", ["process", "folder"])
def test_a_window_is_recorded_and_written(writer: CycleWriter[Any], by: str) -> None:
    loop = Loop(writer)
    accepted, (recorded,) = asked(loop, str(os.getpid()) if by == "process" else str(writer.run_dir))
    first = accepted.first
    assert (accepted.last, accepted.run_dir) == (first + 2, writer.run_dir)
    assert loop.steps("warm up") == [first - 2, first - 1]
    assert loop.steps("record", "last") == [first, first + 1, first + 2]
    assert loop.steps("last") == [first + 2]
    assert recorded == CaptureResult(
        (capture_socket.host(), os.getpid()), None, True, (first, first + 2), writer.written[0], None
    )
    assert recorded.path
    assert len(read_stored(recorded.path)) == len(small_trace())


def test_windows_follow_each_other(writer: CycleWriter[Any]) -> None:
    loop = Loop(writer)
    accepted = [asked(loop, str(writer.run_dir), steps)[0] for steps in (1, 4)]
    chosen = [step for one in accepted for step in range(one.first, one.last + 1)]
    assert loop.steps("record", "last") == chosen
    assert len(chosen) == 5
    assert len(writer.written) == 2


@pytest.mark.parametrize("open_before", [False, True])
def test_only_the_user_can_open_the_socket(writer: CycleWriter[Any], open_before: bool) -> None:
    """A folder that others could open is closed for them."""
    folder = writer.run_dir / ".capture"
    if open_before:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    Loop(writer).step()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = folder.glob("*.perfkit")
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_folder_of_another_user_is_not_used(
    writer: CycleWriter[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    loop = Loop(writer)
    loop.step()
    loop.step()
    assert loop.states == ["off", "off"]
    (record,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    assert "belongs to another user" in record.getMessage()


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell who connects")
def test_requests_of_other_users_are_not_read(writer: CycleWriter[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_socket.struct, "unpack", lambda *_: (1, os.geteuid() + 1, 1))
    loop = Loop(writer)
    with pytest.raises(CaptureError, match="ended its training before it began another step"):
        asked(loop, str(writer.run_dir))
    assert windows(writer.run_dir) == []


def test_a_request_is_answered_where_the_next_step_begins(loop: Loop) -> None:
    """The training has one process, so its warm-up of two steps begins at once. A second request has to wait until the
    step after the last one has begun."""
    answer = answered(loop, steps=2)
    assert (answer["first"], answer["last"], answer["run_dir"]) == (3, 4, str(loop.writer.run_dir))
    for _ in range(2, 5):
        assert answered(loop, steps=1) == {"busy": "is recording steps 3 to 4"}
    assert answered(loop, steps=1)["first"] == 8  # the profiler is off in step 5
    assert loop.states == ["off", "warm up", "warm up", "record", "last", "off"]


@pytest.mark.parametrize("steps", [0, -1, 10**9, "5", None])
def test_windows_that_cannot_be_recorded_are_refused(loop: Loop, steps: Any) -> None:
    assert answered(loop, steps=steps) == {"error": f"cannot record {steps} steps"}


def test_who_gives_up_before_the_answer_gets_no_window(loop: Loop) -> None:
    send(loop.writer, b'{"steps": 2}\n').close()
    loop.step()
    assert windows(loop.writer.run_dir) == []


@pytest.mark.parametrize("text", [b"[1]\n", b"no json\n", b"\xff\n", b"x" * 5000, b"{}"])
def test_what_is_no_request_does_no_harm(loop: Loop, text: bytes) -> None:
    with send(loop.writer, text):
        loop.step()
        assert answered(loop, steps=1)["first"] == 4
    assert len(windows(loop.writer.run_dir)) == 1


def test_planned_windows_come_first(writer: CycleWriter[Any]) -> None:
    """The schedule records the steps 3 and 4 of every 10. A window of 2 + 4 steps fits into what it leaves, where the
    profiler is off before and after. A window of 2 + 5 steps fits nowhere."""
    plan = {3: "record", 4: "last"}
    loop = Loop(writer, lambda step: plan.get(step % 10, "off"))
    loop.step()
    assert answered(loop, steps=4)["first"] == 8
    while len(loop.states) < 16:
        loop.step()
    assert loop.states[:6] == ["off", "off", "off", "record", "last", "off"]
    assert loop.states[6:12] == ["warm up", "warm up", "record", "record", "record", "last"]
    assert loop.states[12:16] == ["off", "record", "last", "off"]
    assert answered(loop, steps=5) == {"busy": "never leaves 7 steps without the profiler, because of its schedule"}


def test_a_planned_cycle_is_not_reported_as_a_capture(writer: CycleWriter[Any]) -> None:
    loop = Loop(writer, lambda step: {1: "record", 2: "last"}.get(step, "off"))
    loop.step()
    answered(loop, steps=2)
    for _ in range(10):
        loop.step()
    assert len(writer.written) == 2
    assert [(one["steps"], one["path"]) for one in results(writer.run_dir)] == [([6, 7], str(writer.written[1]))]


def test_a_training_that_ends_within_its_window_reports_what_it_has(writer: CycleWriter[Any], make: Make) -> None:
    """The training ends in its last step, and the profiler hands over the steps before it. The process lives on, and
    its next training can be captured at once, also with the same handler. How many steps run until the client has its
    answer depends on the machine."""
    loop = Loop(writer)
    loop.step()
    with CaptureClient(str(os.getpid())) as request:
        accepted = while_running(lambda: request.ask(999), loop.step)
        while len(loop.states) < accepted.first + 3:
            loop.step()
        writer(loop)
        last = len(loop.states) - 1
        (recorded,) = request.wait(accepted, lambda text: None)
    assert recorded.steps == (accepted.first, last - 1)
    assert recorded.path == writer.written[0]
    assert recorded.error == f"the training ended before step {last} was complete"
    with pytest.raises(CaptureError, match="the training that recorded into this folder has ended"):
        CaptureClient(str(writer.run_dir))
    other = make("other")
    for next_loop in Loop(other), Loop(writer):
        accepted, (recorded,) = asked(next_loop, str(os.getpid()), 1)
        assert (recorded.steps, recorded.error) == ((accepted.first, accepted.first), None)


def test_a_training_that_ends_before_its_window_says_so(tmp_path: Path) -> None:
    """The handler is deleted with the variables of the function that trains."""

    def train() -> None:
        loop = Loop(handler(tmp_path))
        loop.step()
        assert answered(loop, steps=2)["first"] == 3

    train()
    (result,) = results(tmp_path)
    assert (result["done"], result["path"]) == (True, None)
    assert result["error"] == "the training ended before step 1 was complete"


def test_the_next_training_of_a_handler_ends_the_windows_of_the_last_one(writer: CycleWriter[Any]) -> None:
    loop = Loop(writer)
    while len(loop.states) < 9:
        loop.step()
    answered(loop, steps=9)
    again = Loop(writer)
    again.step()
    writer.flush()
    (result,) = results(writer.run_dir)
    assert result["error"] == "the training ended before step 9 was complete"
    assert answered(again, steps=1)["first"] == 3


@pytest.mark.parametrize(("step", "left_s"), [(1, 5.0), (5, 60.0)])
def test_a_loop_that_makes_no_more_steps_is_left(
    writer: CycleWriter[Any], make: Make, monkeypatch: pytest.MonkeyPatch, step: int, left_s: float
) -> None:
    """Its window is that of steps 4 to 6. Before, ten of its steps of 0.1 s suffice, but it has at least 5 s."""
    now = [100.0]
    monkeypatch.setattr(on_demand, "time", SimpleNamespace(monotonic=lambda: now[0]))
    loop, other = Loop(writer), make("other")
    loop.step()
    now[0] += 0.1
    loop.step()
    assert answered(loop, steps=3)["first"] == 4
    while loop.states[step:] == []:
        now[0] += 0.1
        loop.step()
    waiting = Loop(other)
    waiting.step()
    now[0] += left_s
    assert "busy" in answered(waiting, steps=1)
    now[0] += 0.01
    assert answered(waiting, steps=1)["first"] == 4
    writer.flush()
    (result,) = results(writer.run_dir)
    assert result["error"] == f"the training ended before step {len(loop.states) - 1} was complete"


def test_a_paused_window_goes_on(loop: Loop) -> None:
    """A callback stops the profiler for a validation in step 4, and starts it again in the same step. The training ends
    in step 6 of the steps 3 to 11."""
    demand = loop.writer.demand
    assert demand
    assert answered(loop, steps=9)["first"] == 3
    while len(loop.states) < 5:
        loop.step()
    demand.paused = True
    loop.writer(loop)
    demand.paused = False
    while len(loop.states) < 7:
        loop.step()
    demand.close()
    loop.writer.flush()
    assert [(one["done"], one["steps"], one["error"]) for one in results(loop.writer.run_dir)] == [
        (False, [3, 3], None), (True, None, "the training ended before step 6 was complete")
    ]  # fmt: skip


@pytest.mark.parametrize("begins", [False, True])
def test_nobody_waits_for_a_loop_that_makes_no_more_steps(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    with CaptureClient(str(loop.writer.run_dir)) as request:
        accepted = while_running(lambda: request.ask(2), loop.step) if begins else None
        monkeypatch.setattr(capture, "SILENT_S", 0.0)
        if accepted:
            (recorded,) = request.wait(accepted, lambda text: None)
            assert recorded.error == "nothing was reported for 0 s, so the loop may be over"
        else:
            with pytest.raises(CaptureError, match="has not begun a step within 0 s; its loop may be over"):
                request.ask(2)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell who connects")
def test_sockets_of_other_users_are_not_asked(writer: CycleWriter[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Loop(writer).step()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(capture, "peer", lambda connection: (1, 1001))
    with pytest.raises(CaptureError, match="belongs to another user; only its user can capture it"):
        CaptureClient(str(writer.run_dir))


@pytest.mark.parametrize(
    "answer",
    [
        "no json", "[1]", "{}", '{"id": 3}', '{"id": "ID", "first": 1, "last": 2, "processes": []}',
        '{"id": "ID", "first": 1, "last": 9, "processes": [["vm", 1]]}',
        '{"id": "other", "first": 1, "last": 2, "processes": [["vm", 1]]}',
        '{"id": "ID", "first": 1, "last": 2, "processes": [["vm", "x"]]}',
    ],
)  # fmt: skip
def test_answers_are_checked(tmp_path: Path, answer: str) -> None:
    """Another program may listen. It gets a request of two steps with the id ID."""
    folder = tmp_path / ".capture"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{descriptor}/{capture_socket.host()}-1-0.perfkit")
        os.close(descriptor)
        listener.listen()

        def answers() -> None:
            with listener.accept()[0] as connection:
                request = json.loads(connection.recv(4096))
                connection.sendall(answer.replace("ID", request["id"]).encode() + b"\n")

        threading.Thread(target=answers, daemon=True).start()
        refused = pytest.raises(CaptureError, match="gave an answer that is not perfkit")
        with CaptureClient(str(tmp_path)) as request, refused:
            request.ask(2)


def test_a_process_can_only_name_a_folder_of_its_socket(tmp_path: Path) -> None:
    """A socket with a long path lies elsewhere, and its run folder has a link to it."""
    elsewhere = tmp_path / "digest" / "vm-1-0.perfkit"
    (tmp_path / "run" / ".capture").mkdir(parents=True)
    (tmp_path / "run" / ".capture" / elsewhere.name).symlink_to(elsewhere)
    (tmp_path / "other" / ".capture").mkdir(parents=True)
    (tmp_path / "other" / ".capture" / elsewhere.name).touch()
    run_dir = tmp_path / "run"
    assert capture.run_folder(elsewhere, str(run_dir)) == (run_dir, run_dir / ".capture")
    for named in (str(tmp_path / "other"), str(tmp_path), "", "a\0b", "s3://bucket/run"):
        assert capture.run_folder(elsewhere, named) is None
    inside = run_dir / ".capture" / "vm-2-0.perfkit"
    assert capture.run_folder(inside, str(tmp_path / "other")) == (run_dir, run_dir / ".capture")
    container = Path("/proc/7/root/run/.capture/vm-7-0.perfkit")
    assert capture.run_folder(container, "/run") == (Path("/proc/7/root/run"), container.parent)


def test_a_failed_window_is_reported(tmp_path: Path) -> None:
    def take(profiler: Any, place: Any) -> DetachedCycle:
        raise RuntimeError("nothing to take")

    writer: CycleWriter[Any] = trace_handler(tmp_path, take, (), environment.environment_rank, True)
    loop = Loop(writer)
    _, (recorded,) = asked(loop, str(tmp_path), 1)
    assert (recorded.done, recorded.path, recorded.error) == (True, None, "RuntimeError: nothing to take")
    assert writer.demand
    writer.demand.close()


def test_sigusr2_asks_too_and_the_handler_of_the_script_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    try:
        writer = handler(tmp_path)
        loop = Loop(writer)
        loop.step()
        signal.raise_signal(signal.SIGUSR2)
        for _ in range(20):
            loop.step()
        assert seen == [signal.SIGUSR2]
        assert loop.steps("record", "last") == list(range(3, 3 + on_demand.STEPS))
        assert writer.demand
        writer.demand.close()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_no_signal_handler_is_set_outside_the_main_thread(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    thread = threading.Thread(target=handler, args=[tmp_path])
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_handler_that_cannot_take_signals_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    signals._tell_unset.cache_clear()
    made: list[CycleWriter[Any]] = []
    try:
        for _ in range(2):
            thread = threading.Thread(target=lambda: made.append(handler(tmp_path)))
            thread.start()
            thread.join()
        assert [one.getMessage() for one in caplog.records] == [
            "perfkit: SIGUSR2 records nothing, because the handler with on_demand=True was made outside the main "
            "thread: use perfkit capture"
        ]
        made.append(handler(tmp_path))  # the main thread sets perfkit's handler, which also serves other threads
        thread = threading.Thread(target=lambda: made.append(handler(tmp_path)))
        thread.start()
        thread.join()
        signal.raise_signal(signal.SIGUSR2)
        assert [one.demand._signalled for one in made if one.demand] == [False, False, True, True]
        assert len(caplog.records) == 1
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_second_signal_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        signal.raise_signal(signal.SIGUSR2)
        loop.step()
    assert [one.getMessage() for one in caplog.records] == [
        "perfkit: SIGUSR2 is ignored: the process is recording steps 3 to 12"
    ]


def test_sockets_of_ended_processes_are_removed(writer: CycleWriter[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = writer.run_dir / ".capture"
    folder.mkdir(parents=True)
    stale = folder / f"{capture_socket.host()}-1-0.perfkit"
    monkeypatch.chdir(folder)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(stale.name)
    elsewhere = folder / "other_machine-1-0.perfkit"
    elsewhere.touch()
    Loop(writer).step()
    assert not stale.exists()
    assert elsewhere.exists()
    assert len(list(folder.glob("*.perfkit"))) == 2


def test_a_process_that_takes_no_connections_is_not_waited_for(
    writer: CycleWriter[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop may be over. Connecting to it would wait as long as it runs."""
    folder = writer.run_dir / ".capture"
    folder.mkdir(parents=True)
    full = folder / f"{capture_socket.host()}-1-0.perfkit"
    monkeypatch.chdir(folder)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(full.name)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(full.name)
            with pytest.raises(CaptureError, match="too many requests wait for its next step"):
                CaptureClient(str(writer.run_dir))
            Loop(writer).step()
            assert full.exists()


def test_sockets_of_long_paths_lie_in_a_short_folder(tmp_path: Path, sockets: Path) -> None:
    writer = handler(tmp_path / ("long" * 30))
    asked(Loop(writer), str(writer.run_dir))
    asked(Loop(writer), str(os.getpid()))
    (link,) = (writer.run_dir / ".capture").glob("*.perfkit")
    target = link.readlink()
    assert len(str(target)) < 104
    assert target.parent.parent.parent == sockets
    assert stat.S_IMODE(target.parent.stat().st_mode) == stat.S_IMODE(target.parent.parent.stat().st_mode) == 0o700
    assert writer.demand
    writer.demand.close()
    assert not link.is_symlink()
    assert not target.parent.parent.exists()


def test_an_error_ends_the_recording_on_demand_only(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    (loop.writer.run_dir / ".capture" / "requests").unlink()
    for _ in range(3):
        loop.step()
    assert loop.states == ["off"] * 4
    (message,) = (one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)
    assert message.startswith("perfkit: nothing can be recorded on demand any more, training continues")


def test_a_handler_that_records_on_demand_needs_a_schedule(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = handler(tmp_path)
    del made
    (record,) = caplog.records
    assert "no schedule asks for its requests: pass on_demand=handler to perfkit's schedule" in record.getMessage()


def test_no_warning_if_nobody_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Loop(handler(tmp_path)).step()
    assert caplog.records == []


def test_a_schedule_needs_a_handler_on_demand(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_demand=True"):
        schedule.demanded(CycleWriter(tmp_path, lambda *_: DetachedCycle(small_trace)), None, NATIVE, 1)
    with pytest.raises(UsageError, match="wait is missing"):
        schedule.has_plan("schedule", {"wait": None, "warmup": 1, "active": 2}, "warmup", None)
    with pytest.raises(UsageError, match="active is missing"):
        schedule.has_plan("schedule", {"wait": 1, "warmup": 1, "active": None}, "warmup", object())
    assert not schedule.has_plan("schedule", {"wait": None, "warmup": 5, "active": None}, "warmup", object())


def test_another_handler_of_the_process_waits(writer: CycleWriter[Any], make: Make) -> None:
    """A process can have only one running profiler."""
    other = make("other")
    loop, waiting = Loop(writer), Loop(other)
    loop.step()
    waiting.step()
    answered(loop, steps=1)
    assert answered(waiting, steps=1) == {"busy": "is recording steps 3 to 3"}
    while len(loop.states) < 5:
        loop.step()
    assert answered(waiting, steps=1)["first"] == 4


def test_the_handler_of_a_loop_that_is_over_does_not_matter(writer: CycleWriter[Any], make: Make) -> None:
    over = make("over")
    Loop(over).step()
    accepted, _ = asked(Loop(writer), str(os.getpid()))
    assert accepted.run_dir == writer.run_dir


def test_several_loops_take_one_request_once(writer: CycleWriter[Any], make: Make) -> None:
    other = make("other")
    loops = Loop(writer), Loop(other)
    for loop in loops:
        loop.step()
    answers = [answered(loop, steps=2, id="request") for loop in loops]
    assert answers[0] == answers[1]
    assert answers[0]["run_dir"] == str(writer.run_dir)


class Rank:
    """The loop of a rank, which looks like a process of its own to the other ranks."""

    def __init__(self, folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(OnDemand, "_other_handlers", lambda demand: ())
        self.writer = handler(folder)
        self.loop = Loop(self.writer)
        assert self.writer.demand
        self.writer.demand.process_rank = lambda: environment.ProcessRank(rank, 2)


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rank]]:
    made = [Rank(tmp_path, rank, monkeypatch) for rank in range(2)]
    yield made
    for rank in made:
        assert rank.writer.demand
        rank.writer.demand.close()


def test_ranks_record_the_same_steps(ranks: list[Rank], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "AGREE_S", 0.0)
    one, other = (rank.loop for rank in ranks)
    for _ in range(3):
        one.step()
        other.step()
    first = answered(one, steps=3)["first"]
    assert first == 3 + 2 + 2  # two steps ahead, then two steps of warm-up
    for _ in range(first + 6):
        one.step()
        other.step()
    assert one.steps("record", "last") == other.steps("record", "last") == [first, first + 1, first + 2]
    assert all(rank.writer.flush() for rank in ranks)
    assert sorted((one["rank"], one["steps"]) for one in results(tmp_path)) == [
        (0, [first, first + 2]), (1, [first, first + 2])
    ]  # fmt: skip


@pytest.mark.parametrize(("rate", "ahead"), [(0.25, 2), (40, 80), (1.01, 3)])
def test_a_window_of_several_ranks_begins_when_all_have_read_it(
    ranks: list[Rank], monkeypatch: pytest.MonkeyPatch, rate: float, ahead: int
) -> None:
    """It begins after two seconds, but at least two steps later. ``rate``: steps per second."""
    loop, now = ranks[0].loop, [100.0]
    monkeypatch.setattr(on_demand, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(3):
        loop.step()
        now[0] += 1 / rate
    assert answered(loop, steps=1)["first"] == 3 + ahead + 2


def test_a_rank_that_is_late_says_so(ranks: list[Rank], tmp_path: Path) -> None:
    one, other = (rank.loop for rank in ranks)
    one.step()
    other.step()
    first = answered(one, steps=2)["first"]
    other.states += ["off"] * first  # it makes these steps without looking
    other.step()
    assert other.steps("warm up", "record", "last") == []
    (result,) = results(tmp_path)
    assert (result["rank"], result["done"]) == (1, True)
    assert result["error"] == f"step {first + 1} began before it read the request"


def test_a_forked_child_does_not_hold_the_socket(writer: CycleWriter[Any]) -> None:
    """Otherwise, the worker of a loader would keep requests waiting after the training has ended."""
    Loop(writer).step()
    (path,) = (writer.run_dir / ".capture").glob("*.perfkit")
    child = os.fork()
    if not child:
        names = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()]
        os._exit(int(any(name.startswith("socket:") for name in names)) + 2 * (not path.exists()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDING = """
import sys
from perfkit_core.recording.schedule import NativeActions, demanded
from perfkit_core.recording.writer import DetachedCycle, trace_handler
from perfkit_core.recording.environment import environment_rank
from tests.support.small_trace import small_trace
writer = trace_handler(sys.argv[1], lambda profiler, place: DetachedCycle(small_trace), (), environment_rank, True)
schedule = demanded(writer, None, NativeActions("off", "warm", "record", "last"), 1)
schedule(0)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_the_end_of_a_process_is_told(tmp_path: Path, end: str) -> None:
    """A request waits for a step that does not come."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        with CaptureClient(str(process.pid)) as request:
            process.kill() if end == "is killed" else process.stdin.close()
            with pytest.raises(CaptureError, match="ended its training before it began another step"):
                request.ask(1)
    with pytest.raises(CaptureError, match=f"there is no process {process.pid}"):
        CaptureClient(str(process.pid))
    with pytest.raises(CaptureError, match="the training that recorded into this folder has ended"):
        CaptureClient(str(tmp_path))
    assert len(list((tmp_path / ".capture").glob("*.perfkit"))) == (end == "is killed")


def test_targets_that_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such folder; give the run folder of a running training"):
        CaptureClient(str(tmp_path / "none"))
    with pytest.raises(CaptureError, match="no training records on demand into this folder"):
        CaptureClient(str(tmp_path))
    with pytest.raises(CaptureError, match="does not record on demand now; its training needs trace_handler"):
        CaptureClient(str(os.getpid()))
    with pytest.raises(CaptureError, match="there is no process 99999999999999999999"):
        CaptureClient("99999999999999999999")
    for target in ("0", "-5", "00"):
        with pytest.raises(CaptureError, match=f"{target} is no process id; give the process id of the training"):
            CaptureClient(target)


def test_the_time_to_wait_can_be_limited(writer: CycleWriter[Any]) -> None:
    Loop(writer).step()
    with (
        CaptureClient(str(writer.run_dir), 0.0) as request,
        pytest.raises(CaptureError, match="has not begun a step within 0 s"),
    ):
        request.ask(1)
