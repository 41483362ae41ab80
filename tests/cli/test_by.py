"""``--by VIEW.GROUPING`` splits the rows of this view and does not change other views."""

from __future__ import annotations

import json

import pytest

from perfkit_core.cli.main import main
from tests.support.paths import DATA

RECORDING = DATA / "torch-mlp.json.gz"


def shown(capsys: pytest.CaptureFixture[str], view: str, by: str) -> list[dict[str, object]]:
    assert main(["summary", str(RECORDING), "--view", "families,operators", "--by", by, "--format", "json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["views"][view]
    return rows


def test_only_the_named_view_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    both = shown(capsys, "operators", "phase")
    assert "phase" in both[0]
    assert "phase" in shown(capsys, "families", "families.phase")[0]
    assert "phase" not in shown(capsys, "operators", "families.phase")[0]


def test_unknown_groupings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(RECORDING), "--view", "families,operators", "--by", "families.shape"]) == 2
    assert "cannot be grouped by 'families.shape'" in capsys.readouterr().err
