"""Processes that a recorded script starts record themselves, and otherwise run as they would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.recording.child_processes import VARIABLE, recorded_children

CHILD = "import os, sys, sitecustomize as s\nprint(getattr(s, 'OWN', ''), s.__file__, 'numpy' in sys.modules)\n"


def child(folder: Path, code: str = CHILD, **more: str) -> str:
    environment = {**os.environ, **more}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout


def test_the_environment_is_as_before_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.delenv(VARIABLE, raising=False)
    with recorded_children(tmp_path, 3, {"shapes": True, "step_on": len}, ["torch"]):
        folder, mine = os.environ["PYTHONPATH"].split(os.pathsep)
        assert (Path(folder) / "sitecustomize.py").is_file()
        assert mine == "mine"
        assert json.loads(os.environ[VARIABLE]) == {
            "run_dir": str(tmp_path), "steps": 3, "options": {"shapes": True}, "frameworks": ["torch"]
        }  # fmt: skip
    assert os.environ["PYTHONPATH"] == "mine"
    assert VARIABLE not in os.environ


def test_a_process_keeps_its_own_sitecustomize_and_starts_without_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with recorded_children(tmp_path / "run", 3, {}, ["torch"]):
        assert child(tmp_path).rstrip().endswith("child_site/sitecustomize.py False")
        (tmp_path / "sitecustomize.py").write_text("OWN = 'mine'\n", encoding="utf-8")
        assert child(tmp_path) == f"mine {tmp_path / 'sitecustomize.py'} False\n"


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"frameworks": 3}'])
def test_another_text_in_the_variable_is_ignored(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_children(tmp_path, 3, {}, ["torch"]):
        child(tmp_path, "import colorsys\n", **{VARIABLE: text})
