"""Checks in a new process: what they yield is kept, whatever happens to the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.integrations.doctor import child_process
from tests.integrations.doctor.conftest import Packages

pytestmark = pytest.mark.bare

CHECKS = """
import os, signal, time
from perfkit_core.errors import CaptureError
from perfkit_core.plugins.contracts import Check
FIRST = Check("first", "ok", "the first \\udcff", data={"n": 1})

def works(): print("noise", flush=True); yield FIRST
def raises(): yield FIRST; raise RuntimeError("two\\nlines")
def says_what_to_do(): raise CaptureError("no device", "buy one")
def exits(): yield FIRST; raise SystemExit(3)
def dies():
    yield FIRST
    os.kill(os.getpid(), signal.SIGSEGV)
def leaves(): print("last words", flush=True); os._exit(7)
def hangs():
    yield FIRST
    while True: time.sleep(1)
"""


@pytest.mark.parametrize(
    ("function", "count", "status", "text"),
    [
        ("works", 1, "ok", "the first \udcff"),
        ("raises", 2, "problem", "it: this check failed (RuntimeError: two lines)"),
        ("says_what_to_do", 1, "problem", "it: no device"),
        ("exits", 2, "problem", "it: this check failed (SystemExit: 3)"),
        ("dies", 2, "problem", "it: the process crashed with SIGSEGV in {site}/made_up.py:13, {after}"),
        ("leaves", 1, "problem", "it: the process ended with exit code 7 (last words)"),
        ("missing", 1, "problem", "it: this check failed (AttributeError: module 'made_up' has no {missing})"),
    ],
)  # fmt: skip
def test_the_last_check_says_how_it_ended(
    packages: Packages, function: str, count: int, status: str, text: str
) -> None:
    site = packages({}, made_up=CHECKS)
    checks = child_process.checks_of("mine", f"made_up:{function}", about="it", fix="reinstall it")
    assert len(checks) == count
    assert checks[-1].status == status
    assert checks[-1].text == text.format(site=site, after="after: the first \udcff", missing="attribute 'missing'")
    assert checks[-1].name == ("first" if function == "works" else "mine")
    assert checks[-1].fix == {"works": "", "says_what_to_do": "buy one"}.get(function, "reinstall it")


def test_a_hang_ends_at_the_time_limit(packages: Packages) -> None:
    packages({}, made_up=CHECKS)
    *_, last = child_process.checks_of("mine", "made_up:hangs", seconds=5)
    assert last.text.startswith("the process gave no result within 5 s")


def test_a_file_in_the_working_folder_hides_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "decimal.py").write_text("raise RuntimeError('the wrong file')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (check,) = child_process.checks_of("import", "perfkit_core.integrations.doctor.child_process:imported", ["decimal"])
    assert check.status == "ok"
