"""Tests of the pages that commands make of a recording in which every name is hostile: report, comparison, advice and
ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import perfkit
from perfkit_core.cli.main import main
from perfkit_core.notebook import displays
from perfkit_core.output.renderers.cells import visible
from tests.support.hostile_files import EVIL, FILE, named, paddle_recording, recording, sound
from tests.support.paths import EXAMPLES

Open = Callable[[Path], Any]
SHOWN = visible(EVIL)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two recordings, the second with slower kernels."""
    folder = tmp_path_factory.mktemp("hostile")
    return recording(folder / "a"), recording(folder / "b", 200)


def made(folder: Path, *arguments: str) -> Path:
    """Return the page that a command writes."""
    file = folder / "page.html"
    assert main([*arguments, "-o", str(file)]) == 0
    return file


def test_the_report_on_a_recording(opened: Open, recordings: tuple[Path, Path], tmp_path: Path) -> None:
    page = opened(made(tmp_path, "report", str(recordings[0])))
    sound(page)
    assert visible(FILE) in page.title()
    assert visible(str(recordings[0])) in page.locator(".path").inner_text()
    shown = page.locator("body").evaluate("(body) => body.textContent")
    for what in ("operator", "kernel", "range", "file"):
        assert f"{what} {SHOWN}" in shown, what
    for top in range(0, page.evaluate("document.documentElement.scrollHeight"), 700):
        page.evaluate("(top) => scrollTo(0, top)", top)
        page.wait_for_timeout(50)
    sound(page)


def test_the_timeline_of_a_recording(opened: Open, recordings: tuple[Path, Path], tmp_path: Path) -> None:
    page = opened(made(tmp_path, "report", str(recordings[0])))
    timeline = page.locator(".timeline[data-ready]")
    timeline.get_by_label("Find").fill(f"kernel {SHOWN}")
    expect(timeline.locator(".status")).to_contain_text("matches: 1")
    timeline.get_by_label("Find").press("Enter")
    details = timeline.locator(".details")
    expect(details).to_contain_text(f"kernel {SHOWN}")
    timeline.get_by_label("Find").fill("operator")
    timeline.get_by_label("Find").press("Enter")
    expect(details).to_contain_text(f"operator {SHOWN}")
    expect(details).to_contain_text(f"thread {SHOWN}")
    sound(page)


@pytest.mark.parametrize("kind", ["paddle", "run folder"])
def test_all_pages_of_other_sources(opened: Open, recordings: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    """A recording of Paddle, and a run folder with a hostile name: the report, the comparison, the advice, and what a
    notebook shows."""
    source = paddle_recording(tmp_path / "paddle<")
    if kind == "run folder":
        source = tmp_path / f"run{visible(FILE)}"
        assert main(["export", str(recordings[0]), "--keep-host", "-o", str(source / "a.perfkit.parquet")]) == 0
    for arguments in (("report", source), ("compare", recordings[1], source), ("advise", source)):
        page = opened(made(tmp_path, *map(str, arguments)))
        sound(page)
        page.wait_for_timeout(50)
    trace = perfkit.load(source)
    outputs = [displays.trace(trace), perfkit.summarize(trace)._repr_html_(), displays.advices(perfkit.advise(trace)),
               displays.comparison(perfkit.compare(perfkit.load(recordings[0]), trace))]  # fmt: skip
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(filter(None, outputs))}", encoding="utf-8")
    page = opened(notebook)
    shown = page.locator("body").evaluate("(body) => body.textContent")
    assert SHOWN in shown
    assert page.locator("img, [onerror], script, a[href^=javascript]").count() == 0
    assert "broken" not in page.title()


def test_a_ledger(opened: Open, tmp_path: Path) -> None:
    lines = (EXAMPLES / "advice" / "ledger.jsonl").read_text().splitlines()[:4]
    hostile = {name: named(name) for name in ("base", "change", "cpu", "advice", "rule", "framework")}
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("\n".join(json.dumps(json.loads(line) | hostile) for line in lines), encoding="utf-8")
    page = opened(made(tmp_path, "advise", "--ledger", str(ledger)))
    sound(page)
    assert SHOWN in page.locator("body").evaluate("(body) => body.textContent")
