"""Every command on the documentation page for users of other profilers works on recordings of both frameworks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`perfkit ((?:summary|export) RUN[^`]*)`", PAGE)))
RUNS = {"torch": "torch-mlp.json.gz", "paddle": "paddle-mlp.pb"}


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 35


@pytest.mark.parametrize("framework", RUNS)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_works(
    perfkit, command: str, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command succeeds, and it prints or writes something."""
    monkeypatch.chdir(tmp_path)
    run = str(ROOT / "tests" / "data" / RUNS[framework])
    code, out, err = perfkit(*[run if word == "RUN" else word for word in shlex.split(command)])
    assert code == 0
    assert "error" not in err
    assert out or list(tmp_path.iterdir())


def test_every_feature_that_has_a_view_is_on_the_page() -> None:
    codes = set()
    for first, last in re.findall(r"^\| ([A-EX]\d+)(?:–[A-EX](\d+))? \|", PAGE, re.M):
        codes |= {f"{first[0]}{number}" for number in range(int(first[1:]), int(last or first[1:]) + 1)}
    wanted = {"A": range(1, 9), "B": range(1, 9), "C": range(1, 13), "D": range(1, 6), "E": range(1, 9), "X": (7, 8)}
    assert codes == {f"{letter}{number}" for letter, numbers in wanted.items() for number in numbers}
