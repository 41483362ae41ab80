"""Folders, compiled functions and the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.integrations.doctor import machine_checks
from perfkit_core.plugins.contracts import Check
from tests.support.paths import ROOT

pytestmark = pytest.mark.bare


def test_compiled_modules_are_counted_and_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (check,) = machine_checks.compiled_functions()
    files = [*ROOT.glob("perfkit_*/_compiled/*.so")]
    assert check.status == "ok"
    assert check.data["libraries"] == len(files)
    assert check.data["bytes"] == sum(path.stat().st_size for path in files)
    file = tmp_path / "perfkit_core" / "integrations" / "doctor" / "machine_checks.py"
    monkeypatch.setattr(machine_checks, "__file__", str(file))
    assert [check.text for check in machine_checks.compiled_functions()] == [f"compiled code is missing in {tmp_path}"]
    (tmp_path / "perfkit_core" / "_compiled").mkdir(parents=True)
    (tmp_path / "perfkit_core" / "_compiled" / "a.so").write_bytes(b"no library")
    (check,) = machine_checks.compiled_functions()
    assert (check.status, check.data["broken"]) == ("problem", ["a.so"])
    assert check.text.startswith("a.so cannot be loaded (")
    assert "perfkit" in check.fix


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
