"""The benchmark of the page writes a page and measures this page."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit_core
from benchmarks import pages
from benchmarks.inputs import SMALL, make
from tools.browser import MISSING


def test_what_is_measured_is_a_page_of_the_recording(bench_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(SMALL, bench_dir / "page.json", 1)
    monkeypatch.setattr(pages, "large", lambda size_mb: file)
    monkeypatch.setenv("CHROMIUM", "")
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    found = pages.section(1, 2, said.append)
    assert said == [f"{len(perfkit_core.load(file)):,} events", f"not opened: {MISSING}"]
    assert len(found.numbers["made"]) == 2
    assert 2e6 < found.numbers["bytes"] < 8e6
    assert [(check.holds is None) for check in found.checks] == [False, False, True], "what was not measured says so"
