"""perfkit report writes a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_report_writes_one_page(perfkit, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "report.html"
    code, out, err = perfkit("report", run, "-o", page)
    assert (code, out, err) == (0, "", f"wrote {page}\n")
    html = page.read_text(encoding="utf-8")
    found = re.findall(r'<h2 id="[^"]+-title"[^>]*>([^<]+)</h2>', html)
    titles = [
        "Step time",
        "Overview by kind of event",
        "Phases of the step",
        "Device utilisation",
        "Operators",
        "Kernels",
    ]
    assert [title for title in found if title in titles] == titles
    assert found[-2:] == ["Data quality", "Sections without data"]
    assert "The median of 2 step times is 9.00 ms." in html


def test_report_goes_to_the_working_folder(perfkit, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert perfkit("report", run).code == 0
    assert (tmp_path / "report.html").is_file()
