"""perfkit demo writes a page for each installed framework, and a page that compares the frameworks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit_core.cli import demo
from perfkit_core.cli.record import installed
from perfkit_core.storage.store import write_cycle
from tests.support.small_trace import small_trace


def recorders(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = SimpleNamespace(recorders=lambda: [SimpleNamespace(framework=name) for name in names])
    monkeypatch.setattr(demo, "get_plugins", lambda: found)


def test_pages_of_two_frameworks(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, "email", "json")  # the names of any installed modules
    monkeypatch.setattr(demo, "_train", lambda name, run_dir, tell: write_cycle(small_trace(), run_dir))
    code, out, err = perfkit("demo", "-o", tmp_path / "demo")
    assert (code, err) == (0, "")
    pages = [tmp_path / "demo" / name for name in ("email.html", "json.html", "compare.html")]
    assert [page for page in pages if str(page) in out and page.is_file()] == pages


def test_nothing_installed(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, "no_such_framework")
    code, _, err = perfkit("demo", "-o", tmp_path)
    assert code == 2
    assert err == 'perfkit: error: no framework is installed; pip install "perfkit[no_such_framework]"\n'


def test_a_failing_child_is_one_line(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, "json")
    code, _, err = perfkit("demo", "-o", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "the json demo failed: no plugin records json" in err


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_live(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    recorders(monkeypatch, framework)
    for _ in range(2):  # the second demo replaces the first, so there is still one run
        code, _, err = perfkit("demo", "-o", tmp_path)
        assert (code, err) == (0, "")
    assert "of 8 step times" in (tmp_path / f"{framework}.html").read_text(encoding="utf-8")
    assert len(list((tmp_path / framework).glob("*.parquet"))) == 1
