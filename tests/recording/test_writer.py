"""A handler that cannot write reports this in one line when it is created. Tracebacks are logged only at level
DEBUG."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.base.system import failures
from perfkit_core.readers.load import load
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from tests.support.small_trace import small_trace


def writer(folder: Path, **more: Any) -> CycleWriter[Any]:
    return CycleWriter(folder, lambda profiler, place: DetachedCycle(small_trace), **more)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages above DEBUG, which must have no traceback and no line break."""
    records = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert all(record.exc_info is None and "\n" not in record.getMessage() for record in records)
    return [record.getMessage() for record in records]


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    return tmp_path / "file" / "run"


def test_a_handler_that_is_not_used_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "deep" / "run", Path("run"), Path()):
        writer(folder)
    assert list(tmp_path.iterdir()) == []
    assert lines(caplog) == []


def test_an_unwritable_folder_is_reported_immediately_and_once(blocked: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = writer(blocked)
    assert lines(caplog) == [f"perfkit: {blocked} is not writable (Not a directory): new cycles are lost until it is"]
    made(None)
    made.flush()
    assert len(lines(caplog)) == 2
    assert f"a cycle is missing in {blocked}, training continues (" in lines(caplog)[1]
    assert made.written == []


def test_a_logging_handler_that_raises_does_no_harm(blocked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(record: logging.LogRecord) -> None:
        raise ValueError(record)

    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", emit)
    failures.logger.addHandler(handler)
    try:
        made = writer(blocked)
        made(None)
        assert made.flush()
    finally:
        failures.logger.removeHandler(handler)


def test_the_traceback_is_logged_at_level_debug(blocked: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "perfkit")
    made = writer(blocked)
    made(None)
    made.flush()
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.DEBUG].count(
        True
    ) == 1


def test_a_folder_that_becomes_writable_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("in the way", encoding="utf-8")
    made = writer(tmp_path / "run")
    (tmp_path / "run").unlink()
    made(None)
    made.flush()
    assert len(lines(caplog)) == 1
    assert len(load(tmp_path / "run")) == len(small_trace())


def test_a_failing_callback_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def mine(profiler: object) -> None:
        raise ValueError("two\nlines")

    writer(tmp_path, also=[mine])(None)
    (line,) = lines(caplog)
    assert "mine" in line
    assert line.endswith("failed, training continues (ValueError: two lines)")
    assert not (tmp_path / INCOMPLETE_MARK).exists()


def test_a_failing_extraction_is_one_line_and_marks_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def take(profiler: object, place: object) -> DetachedCycle:
        raise KeyError("x")

    CycleWriter(tmp_path, take)(None)
    assert len(lines(caplog)) == 1
    assert (tmp_path / INCOMPLETE_MARK).read_text(encoding="utf-8").endswith("cycle 0: KeyError: 'x'\n")


def test_the_mark_keeps_every_reason(tmp_path: Path) -> None:
    reasons = [KeyError("x"), ValueError("y")]

    def take(error: Exception, place: object) -> DetachedCycle:
        raise error

    made: CycleWriter[Exception] = CycleWriter(tmp_path, take)
    for error in reasons:
        made(error)
    mark = (tmp_path / INCOMPLETE_MARK).read_text(encoding="utf-8").splitlines()
    assert [line.partition(", ")[2] for line in mark] == ["cycle 0: KeyError: 'x'", "cycle 1: ValueError: y"]


def test_an_uncalled_handler_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes when the handler is deleted, and only for handlers that the user has passed to a profiler."""
    for warn in (True, False):
        made = writer(tmp_path / str(warn), of_user=warn)
        del made
        gc.collect()
    (line,) = lines(caplog)
    assert f"recorded nothing into {tmp_path / 'True'}, because its profiler never ended a cycle" in line
    assert "step()" in line


def test_a_called_handler_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = writer(tmp_path, of_user=True)
    made(None)
    made.flush()
    del made
    gc.collect()
    assert lines(caplog) == []


def test_a_schedule_without_an_end_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for user in (True, False):
        made = writer(tmp_path / str(user), of_user=user)
        for _ in range(22):
            made(None)
        made.flush()
    (line,) = lines(caplog)
    assert f"20 cycles are recorded into {tmp_path / 'True'}" in line
    assert "repeat=1" in line
