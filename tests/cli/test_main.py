"""The command as a process: help, exit codes, pipes, and modules that it must not import."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.cli.builtin import perfkit_commands
from perfkit_core.cli.main import DeferredCommand
from perfkit_core.plugins.manager import get_plugins
from tests.support.chrome import event, write

COMMANDS = [command.name for command in perfkit_commands()]


def _plain() -> dict[str, str]:
    """Return the environment without variables that make libraries warn in their own code."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfkit", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, env={**_plain(), **environment}
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(perfkit, command: str) -> None:
    code, out, err = perfkit(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: perfkit {command}")
    assert len(out.splitlines()) > 4
    assert max(map(len, out.splitlines())) <= 80


def test_the_list_of_commands_has_the_first_sentences_of_their_help() -> None:
    deferred = [command for command in get_plugins().commands().values() if isinstance(command, DeferredCommand)]
    assert len(deferred) > 10
    assert [command.short_help for command in deferred] == [
        command.load().get_short_help_str(200) for command in deferred
    ]


def test_help_lists_every_command_but_hidden_ones(perfkit) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        code, out, _ = perfkit(*arguments)
        assert code == 0
        assert [name for name in COMMANDS if f"  {name} " in out] == [name for name in COMMANDS if name[0] != "_"]
        assert not [line for line in out.splitlines() if line.endswith("...") and not line.startswith("Usage")]


def test_version(perfkit) -> None:
    code, out, _ = perfkit("--version")
    assert code == 0
    assert out.startswith("perfkit 0.")


def test_mistakes_are_one_line(transcript, run: Path, tmp_path: Path) -> None:
    """The mistakes are unknown commands, a link that leads to itself, an address that is none, wrong numbers, and
    sources as output."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "loop").symlink_to("loop")
    lines = ["nope", "sumary", "summary loop", "advise loop", "export loop --to chrome", "compare loop other"]
    lines += ["summary http://[::1", "summary x --limit abc", "compare x y --limit -3", "record --steps 0 x.py"]
    lines += ["record --steps 1.5 x.py", f"report x --workers {'9' * 30}", "verify --base x --change y --rounds a"]
    source = write(folder / "x.json", [event("aten::add", 1, 5)])
    before = source.read_bytes()
    write(folder / "y.json", [event("aten::mul", 1, 5)])
    (folder / "link.json").symlink_to("x.json")
    commands = ("summary x.json", "summary link.json", "advise x.json", "report x.json", "export x.json")
    commands += ("export x.json --stream --to parquet", "compare y.json x.json", "summary .", "runs .")
    lines += [f"{command} -o x.json" for command in (*commands, "compare y.json --baseline x.json,y.json")]
    lines += ["summary x.json -o link.json", "report x.json -o ../folder/x.json", "runs .. -o x.json"]
    (cycle,) = run.iterdir()
    shutil.copy(cycle, tmp_path / "run" / "cycle.perfkit.parquet")
    cycle.unlink()
    transcript("mistakes", *lines, "export ../run -o ../run/cycle.perfkit.parquet", folder=folder)
    assert source.read_bytes() == before


def test_a_closed_pipe_is_quiet(run: Path) -> None:
    command = f"'{sys.executable}' -m perfkit summary '{run}' --view all --format json | head -c 1"
    ran = subprocess.run(command, shell=True, capture_output=True, encoding="utf-8", check=False, env=_plain())
    assert (ran.stdout, ran.stderr) == ("{", "")


def shell(command: str, *places: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command, in which ``perfkit`` is the command and ``$1``, … are paths."""
    line = f'perfkit() {{ "{sys.executable}" -m perfkit "$@"; }}; {command}'
    arguments = ["bash", "-c", line, "bash", *map(str, places)]
    return subprocess.run(arguments, capture_output=True, encoding="utf-8", check=False, env=_plain(), timeout=600)


@pytest.mark.parametrize("command", ["summary $1", "export $1 --to chrome", "summary --help"])
def test_a_closed_standard_output_is_one_line(run: Path, command: str) -> None:
    ran = shell(f"perfkit {command} >&-", run)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "perfkit: error: standard output: closed, so nothing was printed\n"


def test_a_command_that_writes_to_a_file_needs_no_output(run: Path, tmp_path: Path) -> None:
    assert shell("perfkit summary $1 -o $2 >&- 2>&-", run, tmp_path / "s.txt").returncode == 0
    assert "Operators" in (tmp_path / "s.txt").read_text(encoding="utf-8")


def test_a_closed_error_output_changes_nothing(run: Path) -> None:
    assert shell("perfkit summary $1 2>&-", run).stdout == shell("perfkit summary $1", run).stdout != ""


@pytest.mark.parametrize("command", ["summary", "advise", "compare", "export --stream -o $2/t.parquet"])
def test_a_pipe_is_refused_in_words(tmp_path: Path, command: str) -> None:
    """A pipe without a writer is refused, too; reading it would never end."""
    os.mkfifo(tmp_path / "fifo.json")
    both = "$1 $1" if command == "compare" else "$1"
    ran = shell(f"perfkit {command} {both}", tmp_path / "fifo.json", tmp_path)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "fifo.json: a pipe or a device, which cannot be read twice; write the data to a file first" in ran.stderr


def test_only_cycles_of_a_run_folder_are_not_overwritten(perfkit, run: Path) -> None:
    for _ in range(2):
        assert perfkit("export", run, "-o", run / "t.json").code == 0


def test_output_that_cannot_be_encoded_is_escaped(run: Path) -> None:
    ran = process("summary", run, PYTHONIOENCODING="latin-1")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u2500" in ran.stdout


def test_debug_shows_the_traceback(run: Path) -> None:
    assert "Traceback" not in process("summary", run, "--view", "nope").stderr
    assert "Traceback" in process("summary", run, "--view", "nope", PERFKIT_DEBUG="1").stderr


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ZeroDivisionError("boom\nboom"), "unexpected ZeroDivisionError: boom boom"),
        (ImportError("libz.so: no"), "a package cannot be imported (libz.so: no); run perfkit doctor"),
    ],
)
def test_an_unexpected_error_is_one_line(
    perfkit, run: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(importlib.import_module("perfkit_core.readers.load"), "load_all", broken)
    code, _, err = perfkit("summary", run)
    assert (code, err.count("\n")) == (2, 1)
    assert text in err


def test_interrupt(perfkit, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("perfkit_core.readers.load"), "load_all", interrupted)
    assert perfkit("summary", run).code == 130


def test_plugins_lists_what_is_installed(perfkit) -> None:
    code, out, _ = perfkit("plugins")
    assert code == 0
    for name in (*get_plugins().listed, *get_plugins().views(), *get_plugins().renderers()):
        assert name in out


def test_plugins_names_the_broken_one(perfkit, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfkit_core.plugins.manager import EntryPoint, load

    found = load([EntryPoint("bad", "no.such.module")])
    monkeypatch.setattr("perfkit_core.cli.plugins.get_plugins", lambda: found)
    code, out, _ = perfkit("plugins")
    assert code == 0
    assert "ModuleNotFoundError" in out
