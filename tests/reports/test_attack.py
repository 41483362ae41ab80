"""Small inputs that broke an output or a tool: secrets stay secret, tables stay tables, and limits are kept."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data.reports.attack import REMOVED, SCRIPT, STARTS, TOKEN
from tests.reports.commands import run_all
from tests.reports.conftest import assert_clear

pytestmark = pytest.mark.bare

SECRETS = [
    "scrub_min.json",
    "scrub_properties.json",
    "scrub_paddle.json",
    "scrub_everything.json",
    "scrub_everything_paddle.json",
]


@pytest.mark.parametrize("out", ["out.json", "out.json.gz", "out.parquet", "run"])
@pytest.mark.parametrize("name", SECRETS)
def test_scrub_leaves_no_text_out(reported, perfkit, tmp_path: Path, name: str, out: str) -> None:
    """Also after an export of the scrubbed copy, in each format."""
    code, _, err = perfkit("scrub", reported(name).path, "-o", tmp_path / out, "--remove", REMOVED)
    assert code == 0, err
    written = [
        path for path in sorted((tmp_path / out).rglob("*") if out == "run" else [tmp_path / out]) if path.is_file()
    ]
    for again in ("again.json", "again.csv", "again.parquet"):
        assert perfkit("export", tmp_path / out, "-o", tmp_path / again).code == 0
        written.append(tmp_path / again)
    printed = perfkit("summary", tmp_path / out, "--view", "all", "--format", "json").out
    for label, content in [("summary", printed), *((path.name, _text(path)) for path in written)]:
        assert REMOVED not in content, label
        assert TOKEN not in content, label


def _text(path: Path) -> str:
    """Return all text of a file: of a Parquet file, its metadata and the values of its columns."""
    if path.suffix != ".parquet":
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
    table = pq.read_table(path)
    return f"{table.schema.metadata} {table.to_pydict()}" + path.read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        pytest.param("csv_cr.json", 2, id="carriage return"),
        pytest.param("csv_starts.json", 2 * len(STARTS), id="starts of formulas"),
        pytest.param("csv_paddle.json", 3, id="paddle"),
    ],
)
@pytest.mark.parametrize("command", ["summary", "export"])
def test_csv_has_no_rows_and_no_formulas_of_names(
    reported, perfkit, tmp_path: Path, command: str, name: str, names: int
) -> None:
    path = tmp_path / "out.csv"
    options = ["--view", "operators", "--format", "csv"] if command == "summary" else ["--to", "csv"]
    assert perfkit(command, reported(name).path, *options, "-o", path).code == 0
    text = path.read_bytes().decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert len(rows) == names
    assert {len(row) for row in rows} == {len(header)}
    for cell in (cell for row in rows for cell in row):
        # A spreadsheet also splits a cell whose line break is not quoted, and skips white space before a formula.
        assert not cell.lstrip("\t\r\n ").startswith(("=", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")), cell
        assert not cell.startswith(("+", "\t", "\r")), cell
    unquoted = "".join(text.split('"')[::2])
    assert "\r" not in unquoted.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("op_in_label.json", {"aten::mm": (1, 40_000)}, id="one"),
        pytest.param("operators_vanish.json", {"aten::mm": (2, 80_000), "aten::relu": (2, 80_000)}, id="all"),
        pytest.param("op_in_two_labels.json", {"aten::mm": (2, 80_000), "aten::relu": (2, 80_000)}, id="two labels"),
        pytest.param(
            "op_in_label_paddle.pb", {"matmul dygraph": (2, 80_000), "relu dygraph": (2, 80_000)}, id="paddle"
        ),
    ],
)
def test_operators_in_labels_of_their_names_stay(
    reported, perfkit, name: str, expected: dict[str, tuple[int, int]]
) -> None:
    found = reported(name)
    assert {row["name"]: (row["calls"], row["total_cpu_ns"]) for row in found.rows("operators")} == expected
    overview = found.row("overview", kind="operator")
    assert sum(calls for calls, _ in expected.values()) == overview["calls"]
    assert sum(row["calls"] for row in found.rows("families")) == overview["calls"]
    assert "No operators were recorded" not in perfkit("summary", found.path, "--view", "operators,families").out


NOTHING = [
    "select flops from events",
    "select null",
    "select null as a, cast(null as bigint) as b",
    "select flops, name from events",
]


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json"])
@pytest.mark.parametrize("statement", NOTHING)
@pytest.mark.parametrize("name", ["sql_t.json", "clean_paddle.pb"])
def test_sql_columns_of_nulls_are_empty_cells(reported, perfkit, name: str, statement: str, form: str) -> None:
    code, out, err = perfkit("sql", reported(name).path, statement, "--format", form)
    assert (code, err) == (0, "")
    if form == "csv":
        header, *rows = csv.reader(io.StringIO(out, newline=""))
        column = header.index("flops") if "flops" in header else 0
        assert rows
        assert {row[column] for row in rows} == {""}
    if form == "json":
        assert json.loads(out)


@pytest.mark.parametrize("form", ["text", "csv", "json"])
@pytest.mark.parametrize(
    ("statement", "texts"),
    [
        pytest.param("select 'infinity'::date as x", ["infinity"], id="date"),
        pytest.param("select '-infinity'::date as x", ["-infinity"], id="first date"),
        pytest.param("select 'infinity'::timestamp as x", ["infinity"], id="timestamp"),
        pytest.param("select union_value(a:=1) as x", ["1"], id="union"),
        pytest.param("select interval 1 year as x", ["1 year", "12 months"], id="interval"),
        pytest.param("select [union_value(a:=1)] as x", ["1"], id="list of unions"),
    ],
)
def test_sql_values_are_their_text_or_one_clear_line(
    reported, perfkit, statement: str, texts: list[str], form: str
) -> None:
    code, out, err = perfkit("sql", reported("sql_t.json").path, statement, "--format", form)
    if code:
        assert code == 2
        assert_clear(err)
        assert SCRIPT not in err
    else:
        assert any(text in out for text in texts), out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "other"),
    [
        pytest.param("ub_long.json", "ub_many.json", id="20,000 letters, 100,000 names"),
        pytest.param("ub_some.json", "ub_long.json", id="the other way round, 5,000 names"),
        pytest.param("ub_longer.json", "ub_some.json", id="2,000,000 letters, 5,000 names"),
    ],
)
def test_one_long_name_needs_little_memory(reported, base: str, other: str) -> None:
    """A process of its own: the limit counts what frameworks hold that other tests imported."""
    paths = str(reported(base).path), str(reported(other).path)
    (result,) = run_all([["compare", *paths, "--max-memory", "1GB", "--format", "json"]])
    assert (result["code"], result["err"]) == (0, ""), result["err"]
    assert json.loads(result["out"])
