"""``perfkit doctor`` in this environment, and in a broken one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.bare, pytest.mark.slow]

CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"


def doctor(*arguments: str, site: Path | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    folders = [str(site)] if site is not None else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*folders, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "perfkit", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, cwd=cwd)


def test_this_environment(tmp_path: Path) -> None:
    done = doctor("--json", cwd=tmp_path)
    checks: dict[str, dict[str, Any]] = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert [check for check in checks.values() if check["status"] == "problem"] == []
    assert done.returncode == 0
    for name in ("numpy", "pandas", "pyarrow", "msgspec"):
        assert checks[f"dependency.{name}"]["data"]["version"] == version(name)
    assert {"plugin.core", "plugin.torch", "plugin.paddle"} <= set(checks)
    for framework in ("torch", "paddle"):
        if importlib.util.find_spec(framework) is None:
            assert checks[f"framework.{framework}"]["status"] == "note"
        else:
            assert checks[f"framework.{framework}.recording"]["data"]["operators"] > 0
    assert checks["compiled.libraries"]["data"]["libraries"] > 20
    assert str(Path.home()) not in done.stdout or len(str(Path.home())) == 1


def test_broken_libraries_are_reported(tmp_path: Path) -> None:
    """Nearly everything in perfkit needs numpy, and here its import ends the process."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "numpy.py").write_text(CRASH, encoding="utf-8")
    done = doctor(site=tmp_path / "site", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    words = " ".join(done.stdout.split())
    assert f"numpy {version('numpy')} cannot be imported: the process crashed with SIGSEGV" in words
    assert "Folders ok recordings:" in words
