"""Operators, kernels, memory manipulation and user labels as Paddle prints them: every number of every summary, in each
unit and sort order, threads apart and merged, at its two decimals. The summaries were printed by Paddle 3.3.1 from the
same recordings."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from printed import Row, cells, cut, rows

from perfkit_core.analyses.operator import memory_manipulation, operator_tree, user_annotations
from perfkit_core.loading import load
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.report.summary import summarize
from perfkit_core.trace import Trace

MERGED = "All threads merged"
SORTED = {
    "CPUTotal": ("total_cpu_ns", False), "CPUAvg": ("avg_cpu_ns", False), "CPUMax": ("max_cpu_ns", False),
    "CPUMin": ("min_cpu_ns", True), "GPUTotal": ("total_device_ns", False), "GPUAvg": ("avg_device_ns", False),
    "GPUMax": ("max_device_ns", False), "GPUMin": ("min_device_ns", True),
}  # fmt: skip


@pytest.fixture(scope="module")
def printed(traces: Path) -> list[tuple[str, Trace, list[Path]]]:
    """Each recorded cycle: its name, its trace from the protobuf, and what Paddle printed of it."""
    found = []
    for folder in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.summary")):
        (source,) = folder.parent.glob(f"{folder.stem}.pb*")
        found.append((f"{folder.parent.name}/{folder.stem}", load(source), sorted(folder.iterdir())))
    folder = traces / "paddle" / "gpu-synthetic"
    summary = folder / "gpu1_by_3.3.1.summary"
    found.append(("gpu1", load(folder / "gpu1.pb"), sorted(summary.iterdir())))
    assert len(found) >= 12
    return found


def native(trace: Trace, view: Any, thread: str) -> pd.DataFrame:
    """The native table of a view: of one thread, or of all merged."""
    if thread == MERGED:
        return view.table(trace, ViewRequest(native=True))
    table = view.table(trace, ViewRequest(by=("thread",), native=True))
    return table[table["tid"] == int(thread)]


def by_parent(rows: list[tuple[int, str, Any]]) -> dict[str, Counter[Any]]:
    """Rows of a printed tree below the root above them, in no order: Paddle prints children as it found them."""
    found: dict[str, Counter[Any]] = defaultdict(Counter)
    path: list[str] = []
    for depth, name, content in rows:
        del path[depth:]
        found["/".join(path)][(depth, name, content)] += 1
        path.append(name)
    return found


def test_operators(printed: list[tuple[str, Trace, list[Path]]]) -> None:
    """Operators with what is below them: children that are no operators, and device work."""
    count = 0
    for name, trace, files in printed:
        for path in files:
            unit, found = rows(path)
            found = [row for row in found if row.table == "Operator"]
            for thread in dict.fromkeys(row.thread for row in found):
                theirs = [row for row in found if row.thread == thread]
                detail = any(row.depth for row in theirs)
                table = native(trace, operator_tree, thread)
                mine = [
                    (row["depth"], cut(row["name"], 52 - 2 * row["depth"]) if row["depth"] else row["name"],
                     (str(row["calls"]), cells(row, "cpu", unit, row["cpu_ratio"]),
                      cells(row, "device", unit, row["device_ratio"])))
                    for _, row in table.iterrows() if detail or row["depth"] == 0
                ]  # fmt: skip
                native_rows = [(row.depth, row.name, (row.calls, row.first, row.second)) for row in theirs]
                assert by_parent(mine) == by_parent(native_rows), (name, path.name, thread)
                count += 11 * len(theirs)
    print(f"operators: {count} printed numbers equal")
    assert count > 40_000


def test_operators_in_each_order(printed: list[tuple[str, Trace, list[Path]]]) -> None:
    """Sorted by the column that a sort key means; ties may stand in any order."""
    count = 0
    for name, trace, files in printed:
        for path in files:
            key = path.stem.removeprefix("op_sorted_")
            if key not in SORTED:
                continue
            column, ascending = SORTED[key]
            table = summarize(trace, "operator_tree", native=True, depth=0, sort=column, ascending=ascending)
            values = dict(zip(table["name"], table[column].fillna(0), strict=True))
            theirs = [values[row.name] for row in rows(path)[1] if row.table == "Operator" and row.depth == 0]
            assert theirs == table[column].fillna(0).tolist(), (name, path.name)
            count += len(theirs)
    print(f"operators in order: {count} rows")
    assert count > 1_500


def test_children_of_children(traces: Path) -> None:
    """Paddle collects what lies deeper, but does not print it. Ours nests operators, so those without are compared."""
    count = 0
    for stats in sorted(traces.glob("paddle/cpu-3.3.1/*/cycle*.stats.json.gz")):
        (source,) = stats.parent.glob(f"{stats.name.removesuffix('.stats.json.gz')}.pb*")
        table = operator_tree.table(load(source), ViewRequest())
        mine = _nested(table)
        for name, numbers in json.loads(gzip.decompress(stats.read_bytes()))["operators"].items():
            tree = mine.get(name)
            if tree is not None and tree["calls"] == numbers["call"] and not tree["nests"]:
                count += _same(tree, numbers, (stats.parent.name, name))
    print(f"deeper children: {count} numbers equal")
    assert count > 1_000


def _nested(table: pd.DataFrame) -> dict[str, Any]:
    roots: dict[str, Any] = {}
    path: list[dict[str, Any]] = []
    for row in table.to_dict("records"):
        node = row | {"inners": {}, "nests": False}
        del path[row["depth"] :]
        (path[-1]["inners"] if path else roots)[row["name"]] = node
        if path and row["kind"] == "operator":
            path[0]["nests"] = True
        path.append(node)
    return roots


def _same(mine: dict[str, Any], theirs: dict[str, Any], where: tuple[str, str]) -> int:
    pairs = {"calls": "call", "total_cpu_ns": "cpu_time", "max_cpu_ns": "max_cpu_time", "min_cpu_ns": "min_cpu_time"}
    assert {a: mine[a] for a in pairs} == {a: theirs[b] for a, b in pairs.items()}, where
    inners = theirs.get("inners", {})
    assert set(mine["inners"]) == set(inners), where
    return len(pairs) + sum(_same(mine["inners"][name], inners[name], where) for name in inners)


def test_user_defined(printed: list[tuple[str, Trace, list[Path]]]) -> None:
    count = 0
    for name, trace, files in printed:
        for path in files:
            unit, found = rows(path)
            theirs = [row for row in found if row.table == "UserDefined"]
            for thread in dict.fromkeys(row.thread for row in theirs):
                table = native(trace, user_annotations, thread)
                mine = _lines(table[table["kind"] == "annotation"], unit, "total_cpu_ratio", "total_device_ratio")
                assert mine == {row.name: row[4:] for row in theirs if row.thread == thread}, (name, path.name)
                count += 11 * len(mine)
    print(f"user labels: {count} printed numbers equal")
    assert count > 500


def test_memory_manipulation(printed: list[tuple[str, Trace, list[Path]]]) -> None:
    """On a CPU nothing is printed, and nothing found."""
    count = 0
    for name, trace, files in printed:
        mine = memory_manipulation.table(trace, ViewRequest(native=True))
        for path in files:
            unit, found = rows(path)
            theirs = {row.name: row[4:] for row in found if row.table == "Memory Manipulation"}
            if theirs or path.stem == "all":
                assert _lines(mine, unit, "cpu_ratio", "device_ratio") == theirs, (name, path.name)
                count += 11 * len(theirs)
    print(f"memory manipulation: {count} printed numbers equal")
    assert count >= 22


def _lines(table: pd.DataFrame, unit: str, cpu: str, device: str) -> dict[str, tuple[str, str, str]]:
    return {
        row["name"]: (
            str(row["calls"]), cells(row, "cpu", unit, row[cpu]), cells(row, "device", unit, row[device])
        ) for _, row in table.iterrows()
    }  # fmt: skip


def test_kernels(printed: list[tuple[str, Trace, list[Path]]]) -> None:
    """In each order, names without parameters and cut at 90 columns."""
    count = 0
    for name, trace, files in printed:
        for path in files:
            unit, found = rows(path)
            theirs = [row for row in found if row.table == "Kernel"]
            key = path.stem.removeprefix("op_sorted_")
            column, ascending = SORTED[key if key.startswith("GPU") else "GPUTotal"]
            table = summarize(trace, "kernels", native=True, sort=column, ascending=ascending)
            mine = [_kernel(row, unit) for _, row in table.iterrows()] if theirs else []
            assert theirs or table.empty or path.stem not in ("all", "view_KernelView"), (name, path.name)
            assert Counter(mine) == Counter(theirs), (name, path.name)
            assert [row.first for row in mine] == [row.first for row in theirs], (name, path.name)
            count += 6 * len(theirs)
    print(f"kernels: {count} printed numbers equal")
    assert count > 300


def _kernel(row: pd.Series, unit: str) -> Row:
    return Row("Kernel", "", 0, cut(row["name"], 90), str(row["calls"]), cells(row, "device", unit, row["ratio"]), "")
