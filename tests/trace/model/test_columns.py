"""Columns of tables without a declaration are interpreted by name."""

from __future__ import annotations

import pandas as pd

from perfkit_core.trace.model.columns import Average, keys, named


def test_undeclared_columns_are_interpreted_by_name() -> None:
    time, size, share = named("total_cpu_ns"), named("peak_bytes"), named("ratio")
    assert (time.title, time.unit, time.place, time.rule) == ("Total CPU", "ns", "host", "sum")
    assert (size.unit, size.exact, size.of_capture) == ("bytes", True, True)
    assert (share.title, share.unit) == ("Share", "ratio")
    assert (named("min_x_ns").rule, named("avg_x_ns").rule) == ("min", Average("total_x_ns"))
    assert (named("phase").kind, named("loader").kind) == ("description", "key")


def test_without_declarations_columns_before_the_first_measure_identify_rows() -> None:
    table = pd.DataFrame({"name": ["a"], "op_name": ["b"], "way": ["c"], "size": [3], "note": ["d"]})
    assert keys((), table) == ["name", "way"]
    assert keys((), table, ("op_name",)) == ["name", "op_name", "way"]
    assert keys((), table.drop(columns="name")) == ["op_name", "way"]
