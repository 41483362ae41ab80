"""Columns of tables without a declaration are texts that identify rows, or numbers."""

from __future__ import annotations

import pandas as pd

from perfkit_core.trace.model.columns import OP_NAME, column, description, heading, keys


def test_undeclared_columns_are_text_keys_or_numbers() -> None:
    loader, size, share = column((), "loader"), column((), "peak_bytes"), column((), "x", pd.Series([1.5]))
    assert (loader.title, loader.unit, loader.kind, loader.rule) == ("Loader", "", "key", "apart")
    assert (size.title, size.unit, size.kind, size.rule) == ("Peak", "bytes", "measure", "sum")
    assert (share.unit, share.kind) == ("", "measure")
    assert [heading(name) for name in ("total_cpu_ns", "ratio", "flops", "dur_ns")] == [
        "Total CPU", "Share", "FLOPs", "Duration",
    ]  # fmt: skip


def test_nothing_else_follows_from_a_name() -> None:
    for name in ("min_device_ns", "avg_cpu_ns", "calls_bytes", "difference_ns"):
        undeclared = column((), name)
        assert (undeclared.merge, undeclared.over, undeclared.place, undeclared.exact) == ("", "", "", False)
        assert not undeclared.compared


def test_undeclared_texts_identify_rows() -> None:
    table = pd.DataFrame({"name": ["a"], "op_name": ["b"], "way": ["c"], "size": [3], "rank": [0]})
    assert keys((), table) == ["name", "op_name", "way", "rank"]
    assert keys((OP_NAME,), table) == ["name", "way", "rank"]
    assert keys((OP_NAME,), table, ("size",)) == ["name", "way", "size", "rank"]
    step = description("step", "Step", by=("step",))
    numbered = table.assign(step=1)
    assert keys((OP_NAME, step), numbered) == ["name", "way", "rank"]
    assert keys((OP_NAME, step), numbered, ("step",)) == ["name", "way", "rank", "step"]
