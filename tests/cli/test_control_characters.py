"""No text of a file, and no argument, can control the terminal or become a formula of a spreadsheet. Files and pipes
get the texts unchanged."""

from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from perfkit_core.base.system import failures, outside_text
from perfkit_core.cli.main import main
from perfkit_core.plugins.manager import get_plugins
from tests.support.terminal import in_terminal, plain

EVIL = "\x1b]0;owned\x07\x1b[8m\x9b31m\x7f\x08\u202eevil\u2028\ud800\x85"
"""Sequences that set the title, hide text and colour it; delete, backspace, a reversal of direction, line separators of
Unicode, a lone surrogate."""
FILE_EVIL = EVIL.replace("\ud800", "")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace with :data:`EVIL` in each text, also in the names of its file and folder."""
    folder = tmp_path_factory.mktemp("control") / f"run{FILE_EVIL}"
    folder.mkdir()
    facts = [{"ph": "M", "name": f"{key}_name", "pid": 1, "tid": 1, "args": {"name": f"{key} {EVIL}"}}
             for key in ("process", "thread")]  # fmt: skip
    events: list[dict[str, Any]] = [*facts, {"ph": EVIL, "name": EVIL, "ts": 0, "pid": 1, "tid": 1}]
    for step in range(5):
        at, place = 1000 * step, {"device": 0, "stream": 7, "correlation": step + 1}
        args = {"Input Dims": [[2, 2]], "Input type": [EVIL], "Call stack": f"{EVIL}.py(7): {EVIL}", EVIL: EVIL}
        events += [
            {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 900},
            {"cat": "user_annotation", "name": f"range {EVIL}", "ts": at + 10, "dur": 800},
            {"cat": EVIL, "name": f"unknown {EVIL}", "ts": at + 12, "dur": 1},
            {"cat": "cpu_op", "name": f"operator {EVIL}", "ts": at + 20, "dur": 500, "args": args},
            {"cat": "cpu_op", "name": "=HYPERLINK(1)", "ts": at + 600, "dur": 100},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 300, "dur": 20, "args": place},
            {"cat": "kernel", "name": f"kernel {EVIL}", "ts": at + 400, "dur": 300, "pid": 0, "tid": 7, "args": place},
        ]
    events = [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]
    device = {"id": 0, "name": f"device {EVIL}", "totalGlobalMem": 2**34}
    content = {"schemaVersion": 1, EVIL: EVIL, "deviceProperties": [device], "traceEvents": events}
    path = folder / f"trace{FILE_EVIL}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    (folder / "other.json").write_text(json.dumps({EVIL: 1}), encoding="utf-8")
    return path


def assert_harmless(shown: str) -> None:
    """Check that only styling and the cursor codes of the spinner are left."""
    assert "owned" in shown or "evil" in shown
    assert "\x1b[8m" not in shown
    assert {c for c in plain(shown).replace("\r", "") if not c.isprintable()} <= {"\n", "\t"}


def runs(file: Path) -> list[tuple[int, tuple[object, ...]]]:
    """Return exit codes and arguments of commands that print texts of the trace, or of their arguments."""
    out = file.with_name(f"out{FILE_EVIL}")
    return [
        (0, ("summary", file)), (0, ("advise", file)), (0, ("compare", file, file)), (0, ("runs", file.parent)),
        *((0, ("summary", file, "--view", view, "--format", name)) for view in ("operators", "code")
          for name in ("text", "csv", "json", "markdown")),
        (0, ("summary", file, "--view", "operators", "--filter", "operator", "--by", "shape")),
        (0, ("advise", file, "--format", "json")), (0, ("compare", file, file, "--format", "json")),
        (0, ("export", file, "-o", f"{out}.json")), (0, ("scrub", file, "-o", f"{out}.parquet")),
        (0, ("summary", file, "-o", f"{out}.md")), (0, ("view", file, "-o", f"{out}.html")),
        (0, ("summary", file, *(part for view in get_plugins().views() for part in ("--view", view)), "--limit", "3")),
        (2, ("summary", file.with_name("other.json"))), (2, ("summary", f"{file}{FILE_EVIL}")),
        (2, ("summary", file, "--filter", f"({FILE_EVIL}")), (2, ("summary", file, "--view", FILE_EVIL)),
        (2, ("summary", file, "--by", FILE_EVIL)), (2, ("summary", file, "--step", FILE_EVIL)),
        (2, ("export", file, "--to", FILE_EVIL, "-o", out)), (2, (FILE_EVIL,)), (2, ("summary", f"--{FILE_EVIL}")),
        (2, ("advise", file, "--explain", FILE_EVIL)), (2, ("sql", file, f"select {FILE_EVIL}")),
        (2, ("capture", file.parent)),
    ]  # fmt: skip


def test_no_command_lets_a_text_control_the_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "")
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    for code, arguments in runs(file):
        assert_harmless(in_terminal(monkeypatch, arguments, columns=200, code=code, errors=True))


def test_other_programs_get_the_texts_unchanged(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"operator {EVIL}".encode("utf-8", "backslashreplace").decode()
    for suffix in ("csv", "json"):
        assert main(["summary", str(file), "--view", "operators", "--format", suffix]) == 0
        text = capsys.readouterr().out
        rows = json.loads(text)["views"]["operators"] if suffix == "json" else csv.DictReader(io.StringIO(text))
        shown = {row["name"].encode("utf-8", "backslashreplace").decode() for row in rows}
        assert any("\x1b]0;owned\x07\x1b[8m" in one and one.startswith("operator") for one in shown), (shown, name)


def test_a_log_line_is_one_harmless_line(caplog: pytest.LogCaptureFixture) -> None:
    failures.log(f"the folder {EVIL}\nis full", OSError(28, f"no space {EVIL}", EVIL))
    assert [line for line in caplog.messages if not line.isprintable()] == []
    assert caplog.records[0].levelno == logging.ERROR


@pytest.mark.parametrize("begin", list("=+-@\t\r\n＝＋－＠"))
def test_a_text_is_no_formula(begin: str) -> None:
    text = f"{begin}1+1"
    assert outside_text.cell(text) == f"'{text}"
    assert outside_text.texts(pa.array([text, "a=b", None])).to_pylist() == [f"'{text}", "a=b", None]
    saved = csv.reader(io.StringIO(outside_text.csv_of(pd.DataFrame({text: [text, "a=b"], "n": [-5, 1]})), newline=""))
    assert list(saved) == [[f"'{text}", "n"], [f"'{text}", "-5"], ["a=b", "1"]]
    assert [outside_text.cell(value) for value in (-5, -1.5, None, "", "a-b")] == [-5, -1.5, None, "", "a-b"]


@pytest.mark.parametrize("name", ["x\r=cmd", "x\n=cmd", "x\r\n=cmd", "\r", "a,b", 'a"b', "a\u2028=b"])
def test_every_reader_finds_the_rows_of_a_csv(name: str, tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 5} for at in (0, 10)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    for command, options in {
        "summary": ("--view", "operators"),
        "export": (),
        "sql": ("select name, 1 from events",),
    }.items():
        out = tmp_path / f"{command}.csv"
        assert main([command, str(file), *options, "-o", str(out)]) == 0
        shown = outside_text.cell(name)
        with out.open(encoding="utf-8", newline="") as opened:
            header, *rows = csv.reader(opened)
        assert {(len(row), row[0]) for row in rows} == {(len(header), shown)}
        assert set(pd.read_csv(out, keep_default_na=False)["name"]) == {shown}
        assert set(pl.read_csv(out)["name"]) == {shown}


def test_no_csv_has_a_formula(file: Path, tmp_path: Path) -> None:
    """A name begins with ``=``, and a difference is a negative number, which stays a number."""
    commands: dict[str, tuple[str, ...]] = {
        "summary": ("--view", "operators"), "export": (), "sql": ("select name as \"=name\", -5 as n from events",),
    }  # fmt: skip
    for command, options in commands.items():
        out = tmp_path / f"{command}.csv"
        assert main([command, str(file), *options, "-o", str(out)]) == 0
        rows = list(csv.reader(io.StringIO(out.read_text(encoding="utf-8", errors="replace"))))
        cells = [cell for row in rows for cell in row]
        assert "'=HYPERLINK(1)" in cells
        assert [cell for cell in cells if cell[:1] in tuple("=+@\t\r")] == []
        assert {cell for cell in cells if cell[:1] == "-"} <= {"-5", "-1"}
    assert cells[:2] == ["'=name", "n"]
