"""SQL: numbers from the raw file, units, many ranks, tables that are computed only if named, and no way out."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perfkit
from perfkit_core.base.system import processes
from perfkit_core.errors import UsageError
from perfkit_core.integrations.sql import bounded, engine, statement
from perfkit_core.integrations.sql.statement import MAIN, declarations, query, run
from perfkit_core.output.renderers import cells
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import collective
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA
from tests.support.small_trace import small_trace

pytest.importorskip("duckdb", reason="SQL needs duckdb")
TORCH = DATA / "torch-mlp.json.gz"


def raw(path: Path) -> list[dict[str, Any]]:
    """Return the complete events of a Chrome trace, with exact times in µs."""
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def ns(microseconds: Decimal | int) -> int:
    return int(microseconds * 1000)


def test_sums_of_events_are_those_of_the_raw_file() -> None:
    table = query(
        TORCH, "select name, count(*) n, sum(dur_ns) s, max(dur_ns) m from events where category = 'cpu_op' group by 1"
    )
    durations: dict[str, list[int]] = defaultdict(list)
    for event in raw(TORCH):
        if event["cat"] == "cpu_op":
            durations[event["name"]].append(ns(event["dur"]))
    assert len(durations) > 40
    assert {row.name: (row.n, row.s, row.m) for row in table.itertuples(index=False)} == {
        name: (len(each), sum(each), max(each)) for name, each in durations.items()
    }


def test_row_references_join_kernels_with_their_launches(traces: Path) -> None:
    """In the raw file, a kernel and its launch have the same correlation."""
    path = traces / "torch" / "h100-bert-small.json.gz"
    table = query(
        path,
        "select k.name as kernel, l.name as launch, k.dur_ns, k.start_ns - l.start_ns as delay_ns "
        "from events k join events l on k.launched_by = l.row where k.kind = 'kernel'",
    )
    launches = {e["args"]["correlation"]: e for e in raw(path) if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    expected = []
    for kernel in (e for e in raw(path) if e.get("cat") == "kernel"):
        launch = launches[kernel["args"]["correlation"]]
        expected.append((kernel["name"], launch["name"], ns(kernel["dur"]), ns(kernel["ts"] - launch["ts"])))
    assert len(expected) == 60
    assert sorted(table.itertuples(index=False, name=None)) == sorted(expected)
    by_name = query(path, "select name, calls, total_device_ns from kernels")
    sums: dict[str, list[int]] = defaultdict(list)
    for name, _, dur, _ in expected:
        sums[name].append(dur)
    assert {row[0]: row[1:] for row in by_name.itertuples(index=False, name=None)} == {
        name: (len(each), sum(each)) for name, each in sums.items()
    }


@pytest.mark.parametrize("view", ["steps", "operators", "memory", "modules", "findings"])
def test_a_view_has_the_numbers_and_columns_of_its_summary(view: str) -> None:
    trace = perfkit.load(TORCH)
    table = query(trace, f"select * from {view}")
    by = ["rank"] if "rank" in get_plugins().views()[view].groupings else []
    whole = perfkit.summarize(trace, view, by=by)
    assert set(table.columns) == set(whole.columns)
    columns = list(whole.columns)

    def rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
        return sorted(zip(*(map(cells.plain, frame[name]) for name in columns), strict=True), key=repr)

    assert rows(table) == rows(whole)


@pytest.mark.parametrize("source", ["torch-mlp.json.gz", "paddle-mlp.pb", "ranks"])
def test_the_documented_columns_are_the_columns_of_the_tables(source: str) -> None:
    trace = perfkit.load([*(DATA / source).glob("*.gz")] if source == "ranks" else DATA / source)
    for table in MAIN:
        columns = [column.name for column in declarations(table)]
        assert sorted(run(trace, f"from {table}").table.column_names) == sorted(columns)


def test_advice_is_the_advice_of_the_command() -> None:
    trace = perfkit.load(TORCH)
    table, advices = query(trace, "from advice"), perfkit.advise(trace).advice
    assert table["id"].tolist() == [advice.id for advice in advices]
    assert table["saving_ns"].tolist() == [advice.prediction.saving_ns for advice in advices]
    assert table["title"].tolist() == [str(advice.title) for advice in advices]


def test_many_ranks_have_a_row_for_each() -> None:
    files = sorted((DATA / "ranks").glob("*.gz"))
    steps = query(files, "select rank, count(*) n, sum(dur_ns) s from steps group by rank order by rank")
    assert steps["rank"].tolist() == list(range(8))
    for rank, count, total in steps.itertuples(index=False, name=None):
        durations = [ns(event["dur"]) for event in raw(files[rank]) if event["name"].startswith("ProfilerStep#")]
        assert (count, total) == (len(durations), sum(durations)) == (3, total)
    events = query(
        files, "select rank, sum(dur_ns) s from events where category = 'cpu_op' group by rank order by rank"
    )
    for rank, total in zip(events["rank"], events["s"], strict=True):
        assert total == sum(ns(event["dur"]) for event in raw(files[rank]) if event.get("cat") == "cpu_op")


def test_only_named_tables_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    compute = statement.computed

    def recorded(profile: Any, names: Any, partial: bool) -> Any:
        asked.append(set(names))
        return compute(profile, names, partial)

    monkeypatch.setattr(statement, "computed", recorded)
    trace = small_trace()
    query(trace, "select o.name, steps.dur_ns from Operators o, steps where o.name != 'memory' and o.name != 'advice'")
    query(trace, "with events as (select 1 as x) select x from events")
    query(trace, "select a.name from events a join (select 0 as row) b using (row)")
    query(trace, "describe kernels")
    with suppress(UsageError):  # before duckdb 1.1, PIVOT is several statements
        query(trace, "pivot (select kind, step, dur_ns from events) on step using sum(dur_ns)")
        assert asked[4:] == [{"events"}]
    assert asked[:4] == [{"operators", "steps"}, set(), {"events"}, {"kernels"}]


@pytest.mark.parametrize("ranks", [1, 8])
def test_events_are_not_copied(ranks: int) -> None:
    """duckdb scans the Arrow table: all buffers of the registered table are those of the trace."""
    trace = small_trace() if ranks == 1 else perfkit.load(sorted((DATA / "ranks").glob("*.gz")))
    table = statement.computed(trace, ["events"], False)[0]["events"]
    for name in trace.events.column_names:
        for ours, theirs in zip(trace.events.column(name).chunks, table.column(name).chunks, strict=True):
            addresses = [[buffer and buffer.address for buffer in each.buffers()] for each in (ours, theirs)]
            assert addresses[0] == addresses[1]


def test_columns_have_the_unit_of_their_name() -> None:
    def units(text: str) -> list[tuple[str, str]]:
        return [(column.name, column.unit) for column in run(small_trace(), text).columns]

    steps = units("select * from steps")
    assert dict(steps) == {name: "ns" if name.endswith("_ns") else "" for name, _ in steps}
    expressions = "select sum(dur_ns), sum(dur_ns) as total_ns, bytes * 2 as x, 1 as used_bytes from events group by 3"
    assert units(expressions) == [
        ("sum(dur_ns)", ""), ("total_ns", "ns"), ("x", ""), ("used_bytes", "bytes"),
    ]  # fmt: skip
    assert units("select a.name, b.name, a.dur_ns, b.dur_ns from events a join events b on a.parent = b.row") == [
        ("name", ""), ("name_1", ""), ("dur_ns", "ns"), ("dur_ns_1", "ns"),
    ]  # fmt: skip


def test_sums_beyond_the_precision_of_floats_are_exact() -> None:
    table = query(small_trace(), "select sum(9007199254740993) as a, sum(18446744073709551616) as b, null as c")
    assert table["a"].tolist() == [9007199254740993]
    assert str(table["b"].iloc[0]) == "18446744073709551616"
    table = query(small_trace(), "select count(stream) as n, any_value(stream) as s from events where device = 'cpu'")
    assert (table["n"].tolist(), table["s"].isna().tolist()) == ([0], [True])


def test_limit_returns_the_first_rows() -> None:
    table = query(small_trace(), "select row from events order by row desc", limit=2)
    assert table["row"].tolist() == [len(small_trace()) - 1, len(small_trace()) - 2]


ESCAPES = {
    "select * from pandas_scan(null)": ".",
    "select * from read_csv('{file}')": "disabled",
    "select * from '{file}'": "disabled|does not exist",
    "select * from read_parquet('{file}')": "disabled",
    "select * from parquet_scan('{file}')": "disabled",
    "select * from read_json('{file}')": "disabled",
    "select * from read_text('{file}')": "disabled",
    "select * from read_blob('{file}')": "disabled",
    "select * from sniff_csv('{file}')": "disabled",
    "select * from glob('{folder}/*')": "disabled",
    "select * from read_csv('https://example.com/x.csv')": "disabled|does not exist",
    "select * from frame": "does not exist",
    "select * from the_trace": "does not exist",
    "select getenv('HOME')": "does not exist",
    "select * from arrow_scan(1, 2, 3)": "No function matches",
    "copy events to '{folder}/out.csv'": "not one statement",
    "copy (select 1) to '{folder}/out.csv'": "not one statement",
    "copy (pivot events on kind using count(*)) to '{folder}/out.csv'": "not one statement|disabled",
    "export database '{folder}/out'": "not one statement|disabled",
    "attach '{folder}/out.db'": "not one statement",
    "install httpfs": "not one statement",
    "load httpfs": "not one statement",
    "set enable_external_access = true": "not one statement",
    "reset enable_external_access": "not one statement",
    "pragma enable_profiling": "not one statement|locked",
    "create table x as select 1": "not one statement",
    "insert into events select * from events": "not one statement",
    "select 1; copy (select 1) to '{folder}/out.csv'": "not one statement",
    "select 1; set threads = 1": "not one statement",
    "": "not one statement",
}
the_trace = pd.DataFrame({"secret": [1]})


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_statement_reads_nothing_but_the_tables(escape: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"secret": [1]})
    file = tmp_path / "secret.csv"
    frame.to_csv(file)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=ESCAPES[escape]):
        query(small_trace(), escape.format(file=file, folder=tmp_path))
    assert sorted(tmp_path.iterdir()) == before


def test_the_settings_are_locked_in_the_connection() -> None:
    """The check of the kind of statement is not the only guard."""
    duckdb = pytest.importorskip("duckdb")
    with engine._connected(duckdb) as connection:
        for escape in (
            "set enable_external_access = true", "set memory_limit = '100GB'", "attach 'x.db'", "install httpfs",
            "load httpfs", "copy (select 1) to 'x.csv'",
        ):  # fmt: skip
            with pytest.raises(duckdb.Error, match=r"disabled|locked|Permission"):
                connection.execute(escape)
        limit = "select value from duckdb_settings() where name = 'memory_limit'"
        assert connection.execute(limit).fetchone()[0] == "3.7 GiB"


def test_too_large_a_result_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine._SETTINGS, "memory_limit", "50MB")
    with pytest.raises(UsageError, match="Out of Memory") as error:
        query(small_trace(), "select list(a.x) from range(1000000000) a(x)")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("mistake", "message", "hint"),
    [
        ("select dur_nss from steps", 'Binder Error: Referenced column "dur_nss" not found', "dur_ns"),
        ("select * from operatrs", "Table with name operatrs does not exist", "did you mean operators?"),
        ("selct 1", 'Parser Error: syntax error at or near "selct"', ""),
        ("show tables", "SHOW finds no table", "perfkit sql SOURCE"),
        ('from events where name = "a b"', 'Referenced column "a b" not found', "single quotes: 'a b'"),
        ("from nothing", "Table with name nothing does not exist", "tables: events, steps, operators, kernels"),
        ("from read_text('x')", "has been disabled", "reads only the tables of the profile"),
    ],
)
def test_errors_have_a_hint(mistake: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        query(small_trace(), mistake)
    assert message in error.value.message
    assert hint in error.value.hint
    assert "LINE" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TORCH, 123), "123 is no SQL statement"),
        ((TORCH, "from steps", -1), "limit=-1 is no number of rows"),
        ((TORCH, "from steps", 1.5), "limit=1.5 is no number of rows"),
        ((TORCH, "from steps", True), "limit=True is no number of rows"),
        ((pd.DataFrame(), "from steps"), "Empty DataFra.* is no profile; give a Trace"),
        (([], "from steps"), r"\[\] is no profile"),
    ],
)
def test_wrong_arguments_are_one_error(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        perfkit.sql(*arguments)


LARGE = "select list_sum(range(400000000))"
"""duckdb would use 6 GB, and cannot be interrupted, because it computes one value."""
needs_limits = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux limits memory")


@needs_limits
@pytest.mark.parametrize("text", [LARGE, "from range(list_sum(range(400000000))::bigint)"])
def test_a_limited_process_is_not_too_large(text: str) -> None:
    """Also if duckdb computes the value when it looks for the tables of the statement."""
    with pytest.raises(UsageError, match="the statement needs more than 4 GB of memory"):
        run(small_trace(), text, engine=engine.LimitedEngine)
    assert run(small_trace(), "select 1 as x", engine=engine.LimitedEngine).table.to_pydict() == {"x": [1]}


def opened(seconds: float) -> Any:
    return lambda tables: bounded.opened(tables, seconds)


def test_another_process_returns_the_same_rows() -> None:
    trace = perfkit.load(TORCH)
    for text in ("from events", "select name, sum(dur_ns) as s from events group by 1 order by 1", "from steps"):
        own, other = run(trace, text, 5), run(trace, text, 5, engine=opened(600))
        assert other.table.equals(own.table)
        assert other.columns == own.columns
    with pytest.raises(UsageError, match="SHOW finds no table"):
        run(trace, "show tables", engine=opened(600))


@pytest.mark.parametrize("text", ["select list_sum(range(4, 80000000)) from range(1000000)", LARGE])
def test_another_process_ends_at_its_limits(text: str) -> None:
    with pytest.raises(UsageError, match=r"took longer than 1 s|needs more than 4 GB of memory"):
        run(small_trace(), text, engine=opened(1))


def test_another_process_returns_no_large_result() -> None:
    with pytest.raises(UsageError, match="more than 100 MB"):
        run(small_trace(), "select repeat('x', 1000000) as x from range(200)", engine=opened(600))


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_CODE", "import os; os.abort()")
    with pytest.raises(UsageError, match="the process of the statement has ended"):
        run(small_trace(), "from steps", engine=opened(600))


def test_a_process_that_dies_at_its_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    group = processes.group

    @contextmanager
    def ended(*arguments: Any, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        with group(*arguments, **options) as process:
            process.wait()
            yield process

    monkeypatch.setattr(bounded, "_CODE", "import os; os.abort()")
    monkeypatch.setattr(processes, "group", ended)
    with pytest.raises(UsageError, match="the process of the statement has ended"):
        run(small_trace(), "from steps", engine=opened(600))


def test_without_duckdb_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['duckdb'] = None; from perfkit_core.cli.main import main; sys.exit(main())"
    arguments = ["sql", str(TORCH), "select 1"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (
        2,
        'perfkit: error: SQL requires duckdb; run pip install "perfkit[sql]"\n',
    )


def test_the_facade_has_the_function() -> None:
    trace: Trace = small_trace()
    assert perfkit.sql is query
    assert perfkit.sql(trace, "select count(*) as n from events")["n"].tolist() == [len(trace)]


VALUES = {
    "null": None,
    "flops from events limit 1": None,
    "null::struct(a integer)": None,
    "'inf'::double as ratio": None,
    "date 'infinity'": "infinity",
    "timestamptz '-infinity'": "-infinity",
    "date '5000-01-01 (BC)'": "5000-01-01 (BC)",
    "timestamp '2024-01-01 10:00:00'": "2024-01-01T10:00:00",
    "union_value(a := 1)": "1",
    "[union_value(a := 1)]": "[1]",
    "{'a': date 'infinity'}": "{'a': infinity}",
    "map {1: interval 1 month}": "{1=1 month}",
    "interval '1 day 3 seconds'": "1 day 00:00:03",
    "time_ns '12:00:00.123456789'": "12:00:00.123456789",
    "'12:00:00+02'::timetz": "12:00:00+02",
    "340282366920938463463374607431768211455::uhugeint": str(2**128 - 1),
    "170141183460469231731687303715884105727::hugeint": str(2**127 - 1),
    f"'{10**60}'::bignum": str(10**60),
    "1.5::decimal(30, 5)": 1.5,
    "'\\xAA'::blob": "\\xAA",
    "'101'::bit": "101",
    "'a'::enum('a', 'b')": "a",
    "{'a': 1}::variant": "{'a': 1}",
    "'7f000001-0000-0000-0000-000000000000'::uuid": "7f000001-0000-0000-0000-000000000000",
    "['a', null]": ["a", None],
}
"""Expression → its value as JSON. Arrow or pandas cannot represent some of these values."""


@pytest.mark.parametrize("expression", VALUES)
def test_values_of_all_types_are_shown(expression: str) -> None:
    trace = small_trace()
    assert cells.plain(query(trace, f"select {expression}").iloc[0, 0]) == VALUES[expression]
    report = statement.report(trace, f"select {expression}")
    texts = [get_plugins().renderers()[name].render(report) for name in ("text", "markdown", "json", "csv", "html")]
    assert all(texts)
    assert (texts[3].splitlines()[1] == '""') == (VALUES[expression] is None)


def test_side_tables_join_their_events() -> None:
    """The tables of facts that are no columns of events."""
    trace = small_trace().with_tables(
        collectives=collective.TABLE.of_structs([Collective("all_reduce", elements=5)], row=[1])
    )
    found = query(trace, "select c.name, e.row from recorded_collectives c join events e using (row)")
    assert found.to_numpy().tolist() == [["all_reduce", 1]]
    assert len(query(trace, "select * from recorded_account")) == len(trace.account)
