"""Tests of cycles that are written while the training continues: the order of the cycles, the maximum number of
unwritten cycles, and which calls wait for unwritten cycles."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.output.report.run_list import list_runs
from perfkit_core.readers.load import load
from perfkit_core.readers.run_folder import read_stored
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import background, store
from perfkit_core.trace.storage.background import LIMIT
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from tests.support.small_trace import small_trace


class Gate:
    """A profiler whose cycles can be finished only while the gate is open. It counts the cycles that are taken but not
    finished."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.taken = self.finished = 0
        self.thread: threading.Thread | None = None

    def take(self, profiler: object, place: object) -> DetachedCycle:
        self.taken += 1
        return DetachedCycle(self._finish)

    def _finish(self) -> Trace:
        self.thread = threading.current_thread()
        assert self.open.wait(60)
        self.finished += 1
        return small_trace()


@pytest.fixture
def gate() -> Gate:
    return Gate()


def open_soon(gate: Gate) -> None:
    threading.Timer(0.2, gate.open.set).start()


def test_training_continues_until_too_many_cycles_are_unwritten(gate: Gate, tmp_path: Path) -> None:
    """The handler returns LIMIT times although no cycle is finished. Then it waits. Every cycle is kept, in the right
    order."""
    writer: CycleWriter[Any] = CycleWriter(tmp_path, gate.take)
    for _ in range(LIMIT):
        writer(None)
    assert (gate.taken, gate.finished) == (LIMIT, 0)
    assert not writer.flush(timeout=0.01)
    open_soon(gate)
    writer(None)
    assert gate.finished >= 1
    assert [read_stored(path).meta.cycle for path in writer.written] == list(range(LIMIT + 1))


def test_no_thread_is_left(gate: Gate, tmp_path: Path) -> None:
    """A remaining thread would appear in the Python stacks of the next recording."""
    gate.open.set()
    writer: CycleWriter[Any] = CycleWriter(tmp_path, gate.take)
    writer(None)
    writer.flush()
    assert gate.thread is not None
    gate.thread.join(60)
    assert not gate.thread.is_alive()
    assert gate.thread is not threading.current_thread()
    writer(None)
    assert len(writer.written) == 2


def test_cycles_may_require_the_foreground(tmp_path: Path) -> None:
    threads = []

    def take(profiler: object, place: object) -> DetachedCycle:
        def finish() -> Trace:
            threads.append(threading.current_thread())
            return small_trace()

        return DetachedCycle(finish, background=False)

    CycleWriter(tmp_path, take)(None)
    assert threads == [threading.current_thread()]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("read", [load, list_runs, lambda folder: list_runs(folder.parent)])
def test_a_reader_of_the_folder_waits(read: Any, gate: Gate, tmp_path: Path) -> None:
    CycleWriter(tmp_path / "run", gate.take)(None)
    open_soon(gate)
    assert len(read(tmp_path / "run"))
    assert gate.finished == 1


def test_other_folders_do_not_wait(gate: Gate, tmp_path: Path) -> None:
    CycleWriter(tmp_path / "a", gate.take)(None)
    assert store.flush(tmp_path / "b", timeout=0)
    assert store.flush(tmp_path / "ab", timeout=0)
    assert not store.flush(tmp_path, timeout=0)
    assert not store.flush(tmp_path / "a" / "file", timeout=0)
    assert not store.flush(timeout=0)
    gate.open.set()
    assert store.flush()


def test_what_was_known_when_the_cycle_ended_is_kept(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    writer: CycleWriter[Any] = CycleWriter(tmp_path, gate.take)
    writer(None)
    monkeypatch.setenv("RANK", "4")
    gate.open.set()
    (path,) = writer.written
    assert read_stored(path).meta.ranks == (3,)


def test_a_relative_folder_is_resolved_when_the_handler_is_made(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training changes its current folder before the first cycle is written and before the second cycle."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    writer: CycleWriter[Any] = CycleWriter("run", gate.take)
    writer(None)
    monkeypatch.chdir(elsewhere)
    assert not writer.flush(timeout=0)
    gate.open.set()
    writer(None)
    assert [path.parent for path in writer.written] == [tmp_path / "run"] * 2
    assert list(elsewhere.iterdir()) == []


def test_a_failed_cycle_does_not_affect_other_cycles(tmp_path: Path) -> None:
    def take(number: int, place: object) -> DetachedCycle:
        return DetachedCycle(lambda: small_trace(str(1 // (number - 1))))

    writer: CycleWriter[int] = CycleWriter(tmp_path, take)
    for number in range(3):
        writer(number)
    assert [read_stored(path).meta.cycle for path in writer.written] == [0, 2]
    mark = (tmp_path / INCOMPLETE_MARK).read_text(encoding="utf-8")
    assert mark.endswith("cycle 1: ZeroDivisionError: integer division or modulo by zero\n")
    assert mark.count("\n") == 1


def test_if_no_thread_can_start_the_training_waits(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate.open.set()
    writer: CycleWriter[Any] = CycleWriter(tmp_path, gate.take)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        writer(None)
    assert gate.thread is threading.current_thread()
    assert len(writer.written) == 1


def test_the_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    """A reader that runs in the writer thread reads the files that are already written."""
    seen = []

    def finish() -> Trace:
        seen.append(background.shared().flush(timeout=60))
        return small_trace()

    writer: CycleWriter[Any] = CycleWriter(tmp_path, lambda profiler, place: DetachedCycle(finish))
    writer(None)
    assert len(writer.written) == 1
    assert seen == [True]
