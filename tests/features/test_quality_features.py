"""Data-quality warnings (X8) are printed before any number, in both frameworks. Every feature has a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.cli.main import main
from tests.support.paths import DATA, ROOT

FILES = {"torch": DATA / "torch-mlp.json.gz", "paddle": DATA / "paddle-mlp.pb"}
FEATURES = {"A": range(1, 9), "B": range(1, 9), "C": range(1, 13), "D": range(1, 6), "E": range(1, 9), "X": (7, 8)}


@pytest.mark.parametrize("framework", FILES)
def test_X8_findings_come_first(framework: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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


def test_X8_work_without_a_launch_and_rounded_clocks(traces: Path) -> None:
    """Missing launches of kernels in a torch trace and rounded times in a Paddle file are both reported."""
    torch_codes = {
        f.code for f in perfkit_core.load(traces / "torch" / "mi300x-resnet-act-checkpoint-steps.json.gz").quality
    }
    paddle_codes = {f.code for f in perfkit_core.load(traces / "paddle" / "versions" / "probe_3.3.1.json.gz").quality}
    assert "device-events-without-launch" in torch_codes
    assert {"rounded-clocks", "rebuilt-parents"} <= paddle_codes


def test_every_feature_has_a_test_in_both_frameworks() -> None:
    """The names of tests contain feature codes and frameworks, as in test_C7_E6_kernels_torch. A test without a
    framework in its name or folder counts for both."""
    tested: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def (test_(?:[A-EX]\d+_)+\w+)", path.read_text(encoding="utf-8"), re.M):
            where = {framework for framework in FILES if framework in name or framework in path.parent.name}
            for code in re.findall(r"(?<=_)([A-EX]\d+)(?=_)", name):
                tested.setdefault(code, set()).update(where or FILES)
    for letter, numbers in FEATURES.items():
        for number in numbers:
            assert tested.get(f"{letter}{number}") == set(FILES), f"{letter}{number}: {tested.get(f'{letter}{number}')}"
