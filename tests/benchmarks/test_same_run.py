"""Links, parents, self times and steps equal the results of an independent computation in SQL."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyarrow import parquet

from perfkit_core import load

pytest.importorskip("duckdb", reason="duckdb is not installed")


@pytest.mark.parametrize("name", ["v100-ns-resolution", "a100-nccl-process-groups"])
def test_sql_finds_the_same_run(traces: Path, tmp_path: Path, name: str) -> None:
    from benchmarks.readers.same_run import written

    file = tmp_path / f"{name}.json"
    file.write_bytes(gzip.decompress((traces / "torch" / f"{name}.json.gz").read_bytes()))
    ours, theirs = load(file).events, parquet.read_table(written(file, tmp_path))
    assert len(theirs) == len(ours) > 10_000
    for column in ("dur_ns", "self_ns", "launched_by", "parent", "step"):
        assert theirs[column].to_pylist() == ours[column].to_pylist(), column
    base = ours["start_ns"][0].as_py() - theirs["start_ns"][0].as_py()
    assert [time + base for time in theirs["start_ns"].to_pylist()] == ours["start_ns"].to_pylist()
    assert theirs["name"].to_pylist() == ours["name"].to_pylist()
