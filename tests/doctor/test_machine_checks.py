"""Folders, compiled functions and the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.doctor import machine_checks
from perfkit_core.plugins.checks import Check
from tests.support.paths import ROOT

pytestmark = pytest.mark.bare

COMPILE = """
import json, sys
from perfkit_core.doctor.machine_checks import cached_functions
from perfkit_core.runtime.compile import compiled_at_once
import kernels
done = [compiled_at_once(getattr(kernels, name)) for name in ("double", "triple")]
for function in done:
    function(1)
(check,) = cached_functions()
print(json.dumps([check.status, dict(check.data), done[0].stats.cache_path]))
"""


def test_compiled_functions_are_counted_where_numba_keeps_them(tmp_path: Path) -> None:
    """In a folder of its own, numba keeps exactly the two functions that this test compiles."""
    code = "def double(x):\n    return 2 * x\n\ndef triple(x):\n    return 3 * x\n"
    (tmp_path / "kernels.py").write_text(code, encoding="utf-8")
    cache = tmp_path / "cache"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=environment, check=True)
    status, data, folder = json.loads(done.stdout)
    files = [path for path in cache.rglob("*.nb*") if path.is_file()]
    assert status == "ok"
    assert Path(folder).parent == cache
    assert data == {
        "folder": str(cache), "bytes": sum(path.stat().st_size for path in files), "functions": 2, "writable": True,
    }  # fmt: skip


def test_the_folders_are_those_that_perfkit_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "state").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs, cache, state = machine_checks.folders()
    assert (runs.status, runs.data["folder"]) == ("ok", str(tmp_path / "runs"))
    assert (cache.status, cache.data["folder"]) == ("ok", str(tmp_path / "cache" / "perfkit"))
    assert (state.status, state.data["writable"]) == ("warning", False)
    assert "XDG_STATE_HOME" in state.fix
    assert not (tmp_path / "runs").exists()


def test_the_browser_and_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def checks() -> dict[str, Check]:
        return {check.name: check for check in machine_checks.terminal()}

    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    assert checks()["terminal.output"].data["terminal"] is False
    assert checks()["terminal.browser"].status == "note"
    monkeypatch.setenv("BROWSER", "firefox")
    monkeypatch.setattr("webbrowser.get", lambda: type("Browser", (), {"name": "firefox"}))
    assert checks()["terminal.browser"].text == "perfkit view opens firefox"
