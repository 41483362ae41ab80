"""Fixtures for tests of commands: a run folder, and a function that runs a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perfkit_core.cli.main import main
from perfkit_core.trace.storage.store import write_cycle
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
def run(tmp_path: Path) -> Path:
    """Return a run folder with the small profile."""
    write_cycle(small_trace(), tmp_path / "run")
    return tmp_path / "run"
