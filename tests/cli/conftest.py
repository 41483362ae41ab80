"""Fixtures for tests of commands: a run folder, and functions that run commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perfkit_core.cli.main import main
from perfkit_core.output.renderers.text import WIDEST_PIPE
from perfkit_core.trace.storage.store import write_cycle
from tests.support.golden import check_golden
from tests.support.small_trace import small_trace


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The output without line breaks and indents: text wraps sentences."""
        return " ".join(self.out.split())


Perfkit = Callable[..., Result]
Transcript = Callable[..., None]


@pytest.fixture
def perfkit(capsys: pytest.CaptureFixture[str]) -> Perfkit:
    """Return a function that runs a command in this process: ``perfkit("summary", path, …)``."""

    def call(*arguments: object) -> Result:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def transcript(perfkit: Perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Transcript:
    """Return a function that compares command lines and their outputs with ``tests/golden/cli/NAME.txt``. The commands
    run in ``folder``, by default that of the test, so that outputs hardly have its path. Where they have it, in errors,
    it becomes FOLDER."""

    def check(name: str, *lines: str, folder: Path = tmp_path) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", str(WIDEST_PIPE))
        parts = []
        for line in lines:
            result = perfkit(*shlex.split(line))
            end = f"[exit code {result.code}]\n" if result.code else ""
            shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in line)
            parts.append(f"$ perfkit {shown}\n{result.out}{result.err}{end}")
        check_golden(f"cli/{name}.txt", "\n".join(parts).replace(str(folder), "FOLDER"))

    return check


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder with the small profile."""
    write_cycle(small_trace(), tmp_path / "run")
    return tmp_path / "run"
