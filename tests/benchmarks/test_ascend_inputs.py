"""Repeated recordings of Ascend NPUs equal one long recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.ascend_inputs import write_database, write_text
from perfkit_core.readers.load import load
from tests.support.ascend import rich

OUTPUT = "ASCEND_PROFILER_OUTPUT"
COLUMNS = ["kind", "dur_ns", "device", "stream", "parent", "launched_by", "shapes", "bytes"]


@pytest.mark.parametrize(("kind", "write"), [("text", write_text), ("database", write_database)])
def test_each_copy_has_its_own_links_and_details(
    tmp_path: Path, kind: str, write: Callable[[Path, Path, int], None]
) -> None:
    source, out = getattr(rich(), kind)(tmp_path / "one") / OUTPUT, tmp_path / "two_ascend_pt" / OUTPUT
    out.mkdir(parents=True)
    write(source, out, 5 * sum(file.stat().st_size for file in source.iterdir()) // 2)
    one, two = load(source).to_pandas()[COLUMNS], load(out).to_pandas()[COLUMNS]
    first, second = two[: len(one)], two[len(one) :].reset_index(drop=True)
    for column in ("parent", "launched_by"):
        second[column] = second[column].where(second[column] < 0, second[column] - len(one))
    assert first.astype(object).equals(one.astype(object))
    assert second.astype(object).equals(one.astype(object))
