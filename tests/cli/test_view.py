"""``perfkit view`` makes the page of a profile and opens it, or says how to open it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from perfkit_core.cli.main import main
from perfkit_core.trace.storage.store import write_cycle
from tests.support.events import host, trace


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run folder. No display and no earlier pages are known."""
    for name in ("BROWSER", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_cycle(trace([host("op", "operator", 0, 10)], rank=0), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses that the browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_a_page_is_opened_at_a_place_that_stays(
    run: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["view", str(run)]) == main(["view", str(run / ".." / "run")]) == 0
    (page,) = (tmp_path / "cache" / "perfkit" / "pages").iterdir()
    assert opened == [page.as_uri()] * 2
    assert page.name.startswith("run-")
    assert "<h1><bdi>Profile of run" in page.read_text(encoding="utf-8")
    assert main(["view", str(run), "-o", str(tmp_path / "own.html")]) == 0
    assert opened[2:] == [(tmp_path / "own.html").as_uri()]


@pytest.mark.parametrize("session", [{}, {"DISPLAY": ":0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}])
def test_without_a_display_it_says_how_to_open_the_page(
    run: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    session: dict[str, str],
    tmp_path: Path,
) -> None:
    for name, value in session.items():
        monkeypatch.setenv(name, value)
    assert main(["view", str(run), "-o", str(tmp_path / "own.html")]) == 0
    assert opened == []
    said = capsys.readouterr().err
    assert f"wrote {tmp_path / 'own.html'}" in said
    assert f"python -m http.server --directory {tmp_path}" in said


def test_bad_input_is_one_line(run: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run / "nothing")]) == 2
    assert main(["view", str(run), "-o", str(run / "page.txt")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert opened == []


def test_without_a_source_the_newest_run_is_shown(
    run: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view"]) == 2
    assert "no SOURCE given, and there is no run below runs; record one with" in capsys.readouterr().err
    (tmp_path / "runs").mkdir()
    run.rename(tmp_path / "runs" / "train-1")
    assert main(["view", "-o", str(tmp_path / "own.html")]) == 0
    assert "<h1><bdi>Profile of train-1" in (tmp_path / "own.html").read_text(encoding="utf-8")
