"""perfkit sql: formats, units, the statement from standard input, the list of tables, and one-line errors."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import DATA

pytest.importorskip("duckdb", reason="SQL needs duckdb")
pytestmark = pytest.mark.bare
STEPS = "select step, dur_ns, dur_ns * 2, dur_ns * 2 as double_ns from steps order by step"


def test_text_shows_units_of_known_columns_and_plain_numbers_of_expressions(perfkit, run: Path) -> None:
    code, out, err = perfkit("sql", run, STEPS)
    assert (code, err) == (0, "")
    head, _, first, *_ = out[out.index("Step  ") :].splitlines()
    assert re.split(r"\s{2,}", head) == ["Step", "Duration (ms)", "(dur_ns * 2)", "Double (ms)"]
    assert [cell for cell in first.split() if not cell.startswith("█")] == ["0", "9.00", "18000000", "18.0"]
    assert "made by hand" in out, "data-quality warnings"


def test_every_format_has_the_rows(perfkit, run: Path, tmp_path: Path) -> None:
    content = json.loads(perfkit("sql", run, STEPS, "--format", "json").out)
    assert content["views"]["result"][1] == {
        "step": 1, "dur_ns": 9_000_001, "(dur_ns * 2)": 18_000_002, "double_ns": 18_000_002,
    }  # fmt: skip
    assert perfkit("sql", run, STEPS, "--format", "csv").out.splitlines() == [
        "step,dur_ns,(dur_ns * 2),double_ns", "0,9000000,18000000,18000000", "1,9000001,18000002,18000002",
    ]  # fmt: skip
    assert "| 1 | 9.00 | 18000002 | 18.0 |" in perfkit("sql", run, STEPS, "--format", "markdown").out
    assert perfkit("sql", run, STEPS, "-o", tmp_path / "page.html").code == 0
    assert "(dur_ns * 2)" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_people_get_the_first_rows_and_machines_all(perfkit, run: Path) -> None:
    statement = "select x from range(30) as t(x)"
    assert "… 10 more rows (--limit 0 shows all)" in perfkit("sql", run, statement).out
    assert len(perfkit("sql", run, statement, "--format", "csv").out.splitlines()) == 31
    assert len(perfkit("sql", run, statement, "--format", "csv", "--limit", "5").out.splitlines()) == 6


def test_the_statement_may_come_from_standard_input(perfkit, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("select count(*)\nfrom events -- all\n"))
    assert perfkit("sql", run, "-", "--format", "csv").out == "count_star()\n16\n"


def test_without_a_statement_the_tables_are_listed(perfkit, run: Path) -> None:
    rows = perfkit("sql", run, "--format", "csv").out.splitlines()
    assert rows[0] == "table,column,unit,meaning"
    assert {row.split(",")[0] for row in rows[1:]} == {"events", "steps", "operators", "kernels", "memory", "advice"}
    assert "operators,self_cpu_ns,ns,Self CPU" in rows


def test_text_has_the_columns_of_the_statement_in_their_order(perfkit, run: Path) -> None:
    statement = "select 0 as zero_ns, 2 as calls, 0.5 as time_ratio, 5 as time_ns, 0.25 as part_ratio, 1.0 as ratio"
    out = perfkit("sql", run, statement).out
    head = out[out.index("Zero") :].splitlines()[0]
    assert re.split(r"\s{2,}", head) == ["Zero (ns)", "Calls", "Time (%)", "Time (ns)", "Part (%)", "Share (%)"]


def test_infinities_are_null(perfkit, run: Path) -> None:
    statement = "select 'inf'::double as a, 'nan'::double as b, [1.5, 'inf'::double] as c, {'x': 'nan'::float} as d"
    out = perfkit("sql", run, statement, "--format", "json").out
    row = {"a": None, "b": None, "c": [1.5, None], "d": {"x": None}}
    assert json.loads(out, parse_constant=str)["views"]["result"] == [row]


def test_a_result_with_a_column_depth_is_no_tree(perfkit, run: Path) -> None:
    assert perfkit("sql", run, "select null as depth, 1 as depth_1, 2 as name").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["select 1"], "no SOURCE given"),
        (["RUN", "selct 1"], 'Parser Error: syntax error at or near "selct"'),
        (["RUN", "missing"], "missing: no such file or folder"),
        (["missing", "select 1"], "missing: no such file or folder"),
        (["RUN", "select * from nothing"], "tables: events, steps"),
        (["RUN", ""], "the statement is empty"),
        (
            ["RUN", "FILE"],
            "nor a SQL statement; to run a statement from a file: perfkit sql SOURCE - < ",
        ),
    ],
)
def test_errors_are_one_line(perfkit, run: Path, arguments: list[str], message: str) -> None:
    file = run.parent / "q.sql"
    file.write_text("select 1", encoding="utf-8")
    places = {"RUN": run, "FILE": file}
    code, out, err = perfkit("sql", *(places.get(word, word) for word in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_process_ends_without_reports_of_duckdb() -> None:
    """The command freezes all objects at exit. duckdb would then report that its objects leak."""
    command = [
        sys.executable,
        "-m",
        "perfkit",
        "sql",
        str(DATA / "torch-mlp.json.gz"),
        "select 1 as x",
        "--format",
        "csv",
    ]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert (done.stdout, done.stderr) == ("x\n1\n", "")
