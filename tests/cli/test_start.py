"""A command imports only the modules that it needs."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.cli import record
from perfkit_core.cli.main import OBJECTS, collecting_rarely, main

pytestmark = pytest.mark.bare


HEAVY = ("numpy", "pandas", "pyarrow", "numba", "plotly", "rich", "jinja2", "fsspec", "upath", "asyncio", "msgspec",
         "torch", "paddle", "distributed")  # fmt: skip


def imported(arguments: list[str]) -> set[str]:
    """Return the modules that a process has imported after a command."""
    code = f"import sys; from perfkit_core.cli.main import main; assert main({arguments!r}) == 0; "
    child = subprocess.run(
        [sys.executable, "-c", code + "print('imported:', *sys.modules)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    return set(child.stdout.rpartition("imported: ")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["summary", "--help"],
        ["record", "--help"],
        ["verify", "--help"],
        ["calibrate", "--help"],
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported(arguments) & set(HEAVY) == set()


def test_the_list_of_commands_imports_no_command_and_no_package_metadata() -> None:
    """``importlib.metadata`` alone would take two fifths of the time."""
    names = imported(["--help"])
    assert not names & {"importlib.metadata", "email.message", "statistics", "perfkit_core.plugins.contracts"}
    commands = {name for name in names if name.startswith("perfkit_core.cli.")}
    assert commands <= {"perfkit_core.cli.main", "perfkit_core.cli.builtin"}


def test_a_summary_imports_no_framework_or_page_renderer(traces: Path, tmp_path: Path) -> None:
    file = traces / "torch" / "dlrm-8xv100" / "rank0.json"
    found = imported(["summary", str(file), "-o", str(tmp_path / "table.json")])
    assert found & set(HEAVY) <= {"numpy", "pandas", "pyarrow", "rich", "msgspec"}
    assert {name for name in found if name.startswith("perfkit_paddle")} <= {
        "perfkit_paddle", "perfkit_paddle.plugin", "perfkit_paddle.operator_names",
    }  # fmt: skip
    assert "perfkit_core.output.renderers.json" in found
    assert "perfkit_core.output.renderers.html.page" not in found


def test_garbage_is_collected_rarely_in_commands_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    usual = gc.get_threshold()
    with collecting_rarely():
        assert gc.get_threshold()[0] == OBJECTS
        assert gc.isenabled()
        record.prepare(record.Program(Path("train.py")), [])
        assert gc.get_threshold() == usual
    assert gc.get_threshold() == usual


def test_only_a_process_that_ends_leaves_its_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: left.append(True))
    monkeypatch.setattr(sys, "argv", ["perfkit", "--version"])
    assert main(["--version"]) == 0
    assert not left
    assert main() == 0
    assert left
