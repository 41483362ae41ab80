"""The steps that a window selects, and the calls of the profiler for a recording, compared with results made by
hand."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.recording.schedule import StepWindow, step_window
from perfkit_core.recording.step_clock import Action, StepClock
from perfkit_core.recording.step_recording import Ending, Held, StepRecording
from perfkit_core.recording.window_limit import EventEstimate
from perfkit_core.recording.writer import CycleWriter
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from tests.support.recording_scripts import run


def drawn(window: StepWindow, begun: int = 0, count: int = 14) -> str:
    """Return a letter for each step: ``.`` for a step that is not recorded, ``w`` for warm-up, ``R`` for a recorded
    step, and ``E`` for the last recorded step of a cycle."""
    letters = {Action.OFF: ".", Action.WARM_UP: "w", Action.RECORD: "R"}
    return "".join(
        "E" if window.action(step, begun) is Action.RECORD and window.ends_cycle(step, begun)
        else letters[window.action(step, begun)]
        for step in range(begun, begun + count)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "begun", "expected"),
    [
        ({}, 0, ".wRRRRE......."),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 0}, 0, ".wRE.wRE.wRE.w"),
        ({"wait": 0, "warmup": 0, "active": 2, "repeat": 2}, 0, "RERE.........."),
        ({"wait": 0, "warmup": 2, "active": 1, "skip_first": 3}, 0, "...wwE........"),
        ({"wait": 0, "warmup": 1, "active": 2}, 500, "wRE..........."),
        ({"steps": (3, 5)}, 0, "..wRRE........"),
        ({"steps": (0, 1)}, 0, "RE............"),
        ({"steps": (3, 5), "warmup": 0}, 0, "...RRE........"),
        ({"steps": (502, 503)}, 500, ".wRE.........."),
        ({"steps": (499, 501)}, 500, "RE............"),
        ({"steps": (3, 5)}, 500, ".............."),
    ],
)
def test_options_choose_the_steps_of_a_window(options: dict[str, Any], begun: int, expected: str) -> None:
    assert drawn(step_window(**options), begun) == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": (2, 1)}, "steps=(2, 1) selects no steps; give the first and the last step to record"),
        ({"steps": (-1, 1)}, "steps=(-1, 1) selects no steps; "),
        ({"steps": 4}, "steps=4 is no pair of steps; "),
        ({"steps": (1, 2), "warmup": "1"}, "warmup='1' is no valid number; give a whole number of 0 or more"),
        ({"active": 0}, "active=0 is no valid number; give a whole number of 1 or more"),
        ({"wait": -1}, "wait=-1 is no valid number; give a whole number of 0 or more"),
        ({"repeat": 1.5}, "repeat=1.5 is no valid number; "),
    ],
)
def test_windows_without_a_step_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        step_window(**options)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("options", "begun", "words"),
    [
        ({"steps": (3, 5)}, 500, "steps 3 to 5"),
        ({}, 500, "steps 502 to 506"),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 0}, 0, "steps 2 to 3, then 2 of every 4 steps"),
    ],
)
def test_windows_in_words(options: dict[str, Any], begun: int, words: str) -> None:
    assert step_window(**options).described(begun) == words


class NotedCalls:
    """A profiler that notes its calls. The call ``fails_at`` raises an error."""

    def __init__(self, run_dir: Path, fails_at: str = "") -> None:
        self.writer: CycleWriter[Any] = CycleWriter(run_dir, lambda profiler, place: 1 / 0)  # type: ignore[arg-type, return-value]
        self.clock = StepClock()
        self.calls: list[str] = []
        self.fails_at = fails_at
        self.estimated, self.counted = 0, None
        self.written: list[Finding] = []

    def _note(self, text: str) -> None:
        self.calls.append(text)
        if text == self.fails_at:
            raise RuntimeError("no device")

    def warm_up(self, step: int) -> None:
        self._note(f"warm up {step}")

    def start(self, step: int) -> None:
        self._note(f"start {step}")

    def next(self, step: int) -> None:
        self._note(f"next {step}")

    def hold(self, ending: Ending) -> Held:
        self._note({Ending.ENDED: "stop", Ending.NOT_BEGUN: "cut off", Ending.INTERRUPTED: "broken off"}[ending])
        return lambda *findings: self.written.extend(findings)

    def estimate(self) -> EventEstimate:
        return EventEstimate(1, 1, 100, lambda: self.estimated)

    def records_waits(self, source: Any) -> bool:
        return isinstance(source, set)

    def begin_wait(self, label: str) -> None:
        self._note(f"wait for {label}")

    def end_wait(self) -> None:
        self._note("waited")

    def events(self) -> int | None:
        return self.counted

    def cancel(self) -> None:
        self._note("cancel")


def recorded(tmp_path: Path, script: str, fails_at: str = "") -> list[str]:
    """Return the profiler's calls for a recording of the steps 2 to 4. Each letter of ``script`` is an action: ``s``
    ends a step, ``p`` pauses, ``r`` resumes, ``f`` finishes, and ``a`` aborts."""
    profiler = NotedCalls(tmp_path, fails_at)
    recording = StepRecording(step_window((2, 4)), lambda: profiler)
    actions = {"s": recording.step_ended, "p": recording.pause, "r": recording.resume,
               "f": recording.finish, "a": recording.abort}  # fmt: skip
    recording.begin(0)
    for letter in script:
        actions[letter]()
    recording.abort()
    return profiler.calls


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ("ssssssf", ["warm up 1", "start 2", "next 3", "next 4", "stop"]),
        ("sssprssf", ["warm up 1", "start 2", "next 3", "cut off", "start 3", "next 4", "stop"]),
        ("ssprsssf", ["warm up 1", "start 2", "cancel", "start 2", "next 3", "next 4", "stop"]),
        ("sprsssf", ["warm up 1", "cancel", "warm up 1", "start 2", "next 3", "next 4", "cut off"]),
        ("sssppprrssf", ["warm up 1", "start 2", "next 3", "cut off", "start 3", "next 4", "stop"]),
        ("ssspsf", ["warm up 1", "start 2", "next 3", "cut off", "start 4", "cancel"]),
        ("sssa", ["warm up 1", "start 2", "next 3", "broken off"]),
        ("ssa", ["warm up 1", "start 2", "broken off"]),
        ("ssf", ["warm up 1", "start 2", "cancel"]),
        ("sff", ["warm up 1", "cancel"]),
        ("fsss", []),
    ],
)
def test_calls_of_the_profiler(script: str, calls: list[str], tmp_path: Path) -> None:
    assert recorded(tmp_path, script) == calls


@pytest.mark.parametrize(
    ("fails_at", "calls"),
    [
        ("warm up 1", ["warm up 1"]),
        ("start 2", ["warm up 1", "start 2", "cancel"]),
        ("next 3", ["warm up 1", "start 2", "next 3", "cancel"]),
        ("cut off", ["warm up 1", "start 2", "next 3", "cut off"]),
    ],
)
def test_a_failure_ends_the_recording_only(fails_at: str, calls: list[str], tmp_path: Path) -> None:
    """No error is raised, the profiler is stopped and not called again, and the run folder contains the reason."""
    assert recorded(tmp_path, "sssprssssf", fails_at) == calls
    assert "no device" in (tmp_path / INCOMPLETE_MARK).read_text()


def begun(tmp_path: Path) -> tuple[NotedCalls, StepRecording]:
    profiler = NotedCalls(tmp_path)
    recording = StepRecording(StepWindow(0, 0, 4, repeat=2), lambda: profiler)
    recording.begin(0)
    return profiler, recording


def test_waits_are_recorded_in_recorded_steps(tmp_path: Path) -> None:
    """A wait for a loader that the framework records is left to it. A wait may go on with another object."""
    profiler = NotedCalls(tmp_path)
    recording = StepRecording(StepWindow(0, 0, 1, repeat=1, skip_first=1), lambda: profiler)
    recording.begin(0)
    for source in ([], [], set(), []):
        recording.wait_begins(source, "rows")
        recording.wait_begins(iter(source), "rows")
        recording.wait_ended()
        recording.step_ended()
    assert profiler.calls == ["start 1", "wait for rows", "waited", "stop"]
    profiler = NotedCalls(tmp_path)
    recording = StepRecording(StepWindow(0, 0, 1, repeat=1), lambda: profiler)
    recording.begin(0)
    recording.wait_begins([], "rows")
    recording.wait_begins(set(), "rows")
    recording.wait_ended()
    assert profiler.calls == ["start 0", "wait for rows", "waited"]


@pytest.mark.parametrize("fails_at", ["wait for rows", "waited"])
def test_a_wait_that_cannot_be_recorded_ends_the_recording_only(tmp_path: Path, fails_at: str) -> None:
    profiler = NotedCalls(tmp_path, fails_at)
    recording = StepRecording(StepWindow(0, 0, 4, repeat=1), lambda: profiler)
    recording.begin(0)
    for _ in range(2):
        recording.wait_begins([], "rows")
        recording.wait_ended()
        recording.step_ended()
    assert profiler.calls[-2:] == [fails_at, "cancel"]


def test_a_window_ends_where_the_next_step_would_not_fit(tmp_path: Path) -> None:
    """The limit is 100 events. The next window is recorded again."""
    profiler, recording = begun(tmp_path)
    for profiler.estimated in (40, 80, 0, 0, 20, 0):
        recording.step_ended()
    assert profiler.calls == ["start 0", "next 1", "stop", "start 4", "next 5", "next 6"]
    (finding,) = profiler.written
    assert str(finding.text) == (
        "recording ended early, because it would have more than 100 events: 2 steps are complete"
    )
    assert recording.cut is not None


def test_a_step_with_too_many_events_ends_within(tmp_path: Path) -> None:
    """If a step is complete, the step that follows may have twice as many events."""
    profiler, recording = begun(tmp_path)
    profiler.estimated = 101
    recording.check()
    recording.check()
    recording.step_ended()
    assert profiler.calls == ["start 0", "broken off"]
    profiler, recording = begun(tmp_path)
    for profiler.estimated, calls in ((30, ["start 0", "next 1"]), (200, []), (201, ["broken off"])):
        recording.check() if profiler.estimated > 30 else recording.step_ended()
        assert profiler.calls[-len(calls) :] == calls or not calls


def test_an_estimate_that_was_too_high_costs_one_step(tmp_path: Path) -> None:
    """torch must not record again while a label is open that began before."""
    profiler, recording = begun(tmp_path)
    profiler.estimated, profiler.counted = 101, 24
    recording.check()
    profiler.estimated = 0
    recording.step_ended()
    recording.step_ended()
    assert profiler.calls == ["start 0", "broken off", "start 2"]
    assert (profiler.written, recording.cut) == ([], None)
    profiler.estimated = 77  # 24 events of 100 are recorded
    recording.check()
    assert profiler.calls[-1] == "broken off"


def test_a_check_within_another_method_waits(tmp_path: Path) -> None:
    profiler, recording = begun(tmp_path)
    profiler.estimated = 101
    profiler.next = lambda step: recording.check()  # type: ignore[method-assign]
    recording.most_events = 1000
    recording.step_ended()
    assert profiler.calls == ["start 0"]


LOST_SIGNAL = """
from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.recording.schedule import step_window
from tests.recording.test_step_recording import NotedCalls

class Closed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

profiler = NotedCalls(Path(sys.argv[1]))
profiler.hold = lambda ending: lambda: print("stopped:", ending.name, file=sys.stderr)
recording = StepRecording(step_window((0, 9)), lambda: profiler)
recording.begin(0)
Closed()
print("the training goes on", file=sys.stderr)
recording.step_ended()
print("to the next step", file=sys.stderr)
"""


def test_a_signal_that_python_ignored_ends_the_next_step(tmp_path: Path) -> None:
    """Python ignores an exception in a destructor."""
    code, told = run(LOST_SIGNAL, tmp_path)
    assert code == 128 + signal.SIGTERM
    assert "the training goes on" in told
    assert "to the next step" not in told
    assert told.endswith("stopped: INTERRUPTED\n")
