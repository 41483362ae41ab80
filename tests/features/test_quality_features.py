"""Data-quality warnings are printed before any number, in both frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.cli.main import main
from tests.support.paths import DATA

FILES = {"torch": DATA / "torch-mlp.json.gz", "paddle": DATA / "paddle-mlp.pb"}


def test_warnings_come_before_any_number(framework: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = FILES[framework]
    findings = perfkit_core.load(source).quality
    assert "no-device-events" in [finding.code for finding in findings]
    for name in ("text", "markdown"):
        assert main(["summary", str(source), "--view", "operators", "--format", name]) == 0
        out = capsys.readouterr().out
        assert all(finding.code in out for finding in findings)
        warnings = [finding for finding in findings if not finding.note]
        assert all(out.index(finding.code) < out.index("Operators") for finding in warnings), "notes may come later"
    assert main(["summary", str(source), "--view", "operators", "--format", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content)[:2] == ["source", "quality"]
    assert [finding["code"] for finding in content["quality"]] == [finding.code for finding in findings]
    assert main(["report", str(source), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    body = page[page.index("<body") :]
    assert all(finding.code in body for finding in findings)
    assert all(finding.code in body[: body.index("<table")] for finding in findings if not finding.note)
