"""Text and JSON of the results: complete, and without names of the user and of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit_core.integrations.doctor import examine
from perfkit_core.plugins.contracts import Check

pytestmark = pytest.mark.bare

CHECKS = [
    Check("dependency.numpy", "ok", "numpy 2.0"),
    Check("dependency.pandas", "ok", "pandas 3.0"),
    Check(
        "dependency.msgspec", "problem", "msgspec is not installed", 'pip install "msgspec>=0.19"', {"version": None}
    ),
    Check("extra.duckdb", "note", "duckdb is not installed", 'pip install "perfkit[sql]"'),
    Check("framework.x", "warning", "no device"),
]


def test_the_text_begins_with_the_verdict() -> None:
    assert (
        examine.text(CHECKS)
        == """\
perfkit doctor: 1 problem, 1 warning, 1 note

Dependencies
ok       numpy 2.0, pandas 3.0
PROBLEM  msgspec is not installed
         → pip install "msgspec>=0.19"

Extras
note     duckdb is not installed
         → pip install "perfkit[sql]"

Frameworks
warning  no device
"""
    )
    assert examine.text(CHECKS[:2]).startswith("perfkit doctor: no problems\n")


def test_json_has_every_field() -> None:
    content = json.loads(examine.document(CHECKS))
    assert content["status"] == "problem"
    assert content["checks"][2] == {
        "name": "dependency.msgspec", "status": "problem", "text": "msgspec is not installed",
        "fix": 'pip install "msgspec>=0.19"', "data": {"version": None},
    }  # fmt: skip
    assert [examine.broken(checks) for checks in (CHECKS, CHECKS[3:])] == [True, False]


def test_a_check_that_fails_is_a_problem() -> None:
    (check,) = examine._results("folder", lambda: [Check("folder.a", "ok", str(1 / 0))])
    assert (check.name, check.status) == ("folder.check", "problem")
    assert "division by zero" in check.text


def test_names_and_credentials_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    monkeypatch.setattr("platform.node", lambda: "gpu17.corp.example.com")
    told = {
        "/home/alice/env/lib": "~/env/lib",
        "/home/alice2/env": "/home/alice2/env",
        "/data/alice/runs of alice": "/data/USER/runs of USER",
        "malice in alice.py": "malice in USER.py",
        "on gpu17.corp.example.com and gpu17": "on HOST and HOST",
        "https://bob:secret@pypi.example.com/simple?token=1234 failed": "https://pypi.example.com/simple failed",
    }
    checks = [Check("a", "ok", text, text, {"folders": [text], "a": {"b": text}, "n": 1}) for text in told]
    for check, expected in zip(examine.without_names(checks), told.values(), strict=True):
        assert check == Check("a", "ok", expected, expected, {"folders": [expected], "a": {"b": expected}, "n": 1})


def test_root_and_short_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text would be unreadable without them, and they tell nothing."""
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    monkeypatch.setattr("platform.node", lambda: "c1")
    (check,) = examine.without_names([Check("a", "ok", "root in c1")])
    assert check.text == "root in c1"
