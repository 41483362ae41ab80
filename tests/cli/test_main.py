"""The command as a process: help, exit codes, pipes, and what it must not import."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.cli import builtin_commands
from perfkit_core.plugins.manager import get_plugins

COMMANDS = [command.name for command in builtin_commands()]


def _plain() -> dict[str, str]:
    """The environment without what makes libraries warn in their own code."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfkit_core.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, env={**_plain(), **environment}
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(perfkit, command: str) -> None:
    code, out, err = perfkit(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: perfkit {command}")
    assert len(out.splitlines()) > 4


def test_help_lists_every_command_but_hidden_ones(perfkit) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        code, out, _ = perfkit(*arguments)
        assert code == 0
        assert [name for name in COMMANDS if f"  {name} " in out] == [name for name in COMMANDS if name[0] != "_"]


def test_version(perfkit) -> None:
    code, out, _ = perfkit("--version")
    assert code == 0
    assert out.startswith("perfkit 0.")


def test_unknown_command_is_one_line(perfkit) -> None:
    code, out, err = perfkit("nope")
    assert (code, out) == (2, "")
    assert err == "perfkit: error: No such command 'nope'; see 'perfkit --help'\n"


def test_help_imports_no_framework_and_no_renderer() -> None:
    show = "print(sorted(sys.modules), file=sys.stderr)"
    code = f"import sys; from perfkit_core.cli.main import main; main(['--help']); {show}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    for module in ("torch", "paddle", "plotly", "jinja2", "rich"):
        assert f"'{module}'" not in ran.stderr


def test_a_closed_pipe_is_quiet(run: Path) -> None:
    command = f"'{sys.executable}' -m perfkit_core.cli summary '{run}' --view all --format json | head -c 1"
    ran = subprocess.run(command, shell=True, capture_output=True, encoding="utf-8", check=False, env=_plain())
    assert (ran.stdout, ran.stderr) == ("{", "")


def test_output_that_cannot_be_encoded_is_escaped(run: Path) -> None:
    ran = process("summary", run, PYTHONIOENCODING="latin-1")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u2500" in ran.stdout


def test_debug_shows_the_traceback(run: Path) -> None:
    assert "Traceback" not in process("summary", run, "--view", "nope").stderr
    assert "Traceback" in process("summary", run, "--view", "nope", PERFKIT_DEBUG="1").stderr


def test_an_unexpected_error_is_one_line(perfkit, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom\nboom")

    monkeypatch.setattr(importlib.import_module("perfkit_core.ranks.profile"), "load", broken)
    code, _, err = perfkit("summary", run)
    assert (code, err.count("\n")) == (2, 1)
    assert "unexpected ZeroDivisionError: boom boom" in err


def test_interrupt(perfkit, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("perfkit_core.ranks.profile"), "load", interrupted)
    assert perfkit("summary", run).code == 130


def test_plugins_lists_what_is_installed(perfkit) -> None:
    code, out, _ = perfkit("plugins")
    assert code == 0
    for name in (*get_plugins().listed, *get_plugins().views(), *get_plugins().renderers()):
        assert name in out


def test_plugins_names_the_broken_one(perfkit, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from perfkit_core.plugins.manager import load

    found = load([EntryPoint("bad", "no.such.module", "perfkit")])
    monkeypatch.setattr("perfkit_core.cli.plugins.get_plugins", lambda: found)
    code, out, _ = perfkit("plugins")
    assert code == 0
    assert "ModuleNotFoundError" in out
