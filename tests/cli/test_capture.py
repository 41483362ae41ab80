"""``perfkit capture``: what it prints, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.recording import on_demand
from perfkit_core.recording.writer import CycleWriter, DetachedCycle, trace_handler
from tests.support.demanded_loop import Loop, handler, while_running

pytestmark = [
    pytest.mark.bare, pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets"),
    pytest.mark.usefixtures("sockets"),
]  # fmt: skip


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CycleWriter[Any]]:
    monkeypatch.setattr(on_demand, "LOOK_S", 0.0)
    made = handler(tmp_path / "run")
    yield made
    assert made.demand
    made.demand.close()


def command(loop: Loop, *arguments: object) -> tuple[int, str]:
    """Run the command in another process, while the loop runs. Return its exit code and what it says."""
    loop.step()
    call = [sys.executable, "-m", "perfkit", "capture", *map(str, arguments)]
    result = while_running(lambda: subprocess.run(call, capture_output=True, text=True, check=False), loop.step)
    assert result.stdout == ""
    return result.returncode, result.stderr


def test_the_command_ends_when_the_steps_are_written(writer: CycleWriter[Any]) -> None:
    loop = Loop(writer)
    code, told = command(loop, os.getpid(), "--steps", 2)
    first, last = loop.steps("record", "last")
    assert last == first + 1
    assert (code, told.splitlines()) == (0, [
        f"perfkit: steps {first} to {last} will be recorded into {writer.run_dir}",
        f"perfkit: recorded {writer.run_dir} (1 file); next: perfkit summary {writer.run_dir} --step {first}-{last}",
    ])  # fmt: skip


def test_it_need_not_wait(writer: CycleWriter[Any]) -> None:
    code, told = command(Loop(writer), writer.run_dir, "--steps", 1, "--no-wait")
    assert code == 0
    assert told.count("\n") == 1
    assert "will be recorded" in told


def test_a_window_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(profiler: Any, place: Any) -> DetachedCycle:
        raise RuntimeError("nothing to take")

    monkeypatch.setattr(on_demand, "LOOK_S", 0.0)
    writer: CycleWriter[Any] = trace_handler(tmp_path, take, (), on_demand.environment.environment_rank, True)
    code, told = command(Loop(writer), tmp_path, "--steps", 1)
    assert code == 2
    assert f"error: process {os.getpid()}: " in told
    assert "nothing to take" in told
    assert writer.demand
    writer.demand.close()


def test_the_command_ends_with_the_training(writer: CycleWriter[Any]) -> None:
    """The training ends within the window, and its process lives on."""
    loop = Loop(writer)
    loop.step()
    call = [sys.executable, "-m", "perfkit", "capture", str(writer.run_dir), "--steps", "999"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        while "record" not in loop.states[-2:-1]:
            loop.step()
            time.sleep(0.001)
        writer(loop)
        told = process.communicate()[1].splitlines()
    first = loop.steps("record")[0]
    assert process.returncode == 2
    assert told[1].startswith(f"perfkit: recorded {writer.run_dir} (1 file); next: ")
    assert told[1].endswith(f"--step {first}")
    assert told[2].startswith(f"perfkit: error: process {os.getpid()}:")
    assert f": the training ended before step {first + 1} was complete; capture again" in told[2]


def test_mistakes_are_one_line(transcript) -> None:
    """Errors cannot control the terminal."""
    lines = ("capture 1 --steps 10001", "capture 'run\x1b[2J'", "capture none", "capture .", "capture 999999999")
    transcript("capture-mistakes", *lines)
