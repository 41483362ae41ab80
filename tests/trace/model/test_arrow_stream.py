"""Other data frame libraries read a trace by Arrow's PyCapsule interface."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import perfkit
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA


@pytest.fixture(params=["torch-mlp.json.gz", "ranks"])
def trace(request: pytest.FixtureRequest) -> Trace:
    """Return a trace. Its text columns have one dictionary per chunk if it has several ranks."""
    place = DATA / request.param
    return perfkit.load(sorted(place.glob("*.gz")) if place.is_dir() else place)


def by_name(rows: Any) -> dict[str, tuple[int, int]]:
    return {name: (int(count), int(total)) for name, count, total in rows}


def expected(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return the number and the total duration of the events of each name."""
    sums: dict[str, tuple[int, int]] = {}
    for name, dur in zip(trace.column("name").to_pylist(), trace.column("dur_ns").to_pylist(), strict=True):
        count, total = sums.get(name, (0, 0))
        sums[name] = count + 1, total + dur
    return sums


def test_polars_reads_a_trace(trace: Trace) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(trace)
    assert frame.columns == trace.events.column_names
    grouped = frame.group_by(polars.col("name").cast(polars.String)).agg(polars.len(), polars.col("dur_ns").sum())
    assert by_name(grouped.rows()) == expected(trace)
    assert frame["step"].null_count() == trace.column("step").null_count


def test_duckdb_reads_a_trace(trace: Trace) -> None:
    duckdb = pytest.importorskip("duckdb")
    statement = "select name, count(*), sum(dur_ns) from trace group by name"
    assert by_name(duckdb.sql(statement).fetchall()) == expected(trace)
    relation = duckdb.from_arrow(trace)
    assert by_name(relation.aggregate("name, count(*), sum(dur_ns)").fetchall()) == expected(trace)


@pytest.mark.parametrize("backend", ["pyarrow", "polars", "pandas"])
def test_narwhals_reads_a_trace(trace: Trace, backend: str) -> None:
    narwhals = pytest.importorskip("narwhals")
    pytest.importorskip(backend)
    frame = narwhals.from_arrow(trace, backend=backend)
    grouped = frame.group_by(narwhals.col("name").cast(narwhals.String)).agg(
        narwhals.len().alias("count"), narwhals.col("dur_ns").sum()
    )
    assert by_name(grouped.select("name", "count", "dur_ns").rows()) == expected(trace)


def test_pyarrow_reads_a_trace_without_changes(trace: Trace) -> None:
    assert pa.table(trace).equals(trace.events)


def test_tables_are_data_frames_that_other_libraries_read() -> None:
    polars = pytest.importorskip("polars")
    table = perfkit.summarize(DATA / "torch-mlp.json.gz", "steps")
    assert polars.DataFrame(table)["dur_ns"].to_list() == table["dur_ns"].tolist()
