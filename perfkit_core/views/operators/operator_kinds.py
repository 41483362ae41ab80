"""Which kinds of operators take the time, and which operators are of each kind?

The kind of an operator is its canonical name, which all frameworks share; operators without one are of kind ``other``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
    CALLS,
    CPU,
    DEPTH,
    DEVICE,
    HOST,
    NAME,
    ON_DEVICE,
    SELF_CPU,
    SELF_DEVICE,
    Share,
    added_by,
    share,
)
from perfkit_core.model.schema import OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution, grouping
from perfkit_core.views.operators import own_time, spans
from perfkit_core.views.operators.unowned import unowned
from perfkit_core.views.select import threads
from perfkit_core.views.tables import Groups, group, integers, plain, ratio

GROUPINGS: Final = ("thread", "label", "scope", "module", "phase", "step", "device", "rank")
OTHER: Final = "other"
_SUMS: Final = ("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Depth 0: the kind; 1: an operator; see :data:`COLUMNS`. The ratios are to the self time of all operators. Calls
    and totals of a kind leave out operators inside another of the same kind. Raises UsageError."""
    counted = trace.host & trace.rows("kind", *OPERATOR_KINDS) & own_time.is_call(trace)
    counted &= spans.chosen(trace, request)
    rows = np.flatnonzero(counted)
    keys = spans.keys(trace, request, rows)
    name, kind = keys.pop("name"), _kinds(trace, rows)
    kinds, operators = group({"name": kind} | keys), group({"kind": kind, "name": name} | keys)
    values = _values(trace, rows)
    top = _outermost(trace, counted)[rows]
    parts = [_sums(kinds, values, top, 0), _sums(operators, values, np.ones(len(rows), np.bool_), 1)]
    parts += [_alone(trace, request, name, alone) for name, alone in unowned(trace, request).items()]
    above = np.full(sum(map(len, parts)), NO_ROW)
    above[len(kinds) : len(kinds) + len(operators)] = kinds.code[np.unique(operators.code, return_index=True)[1]]
    result = _shares(pd.concat(parts, ignore_index=True).drop(columns="kind"))
    weight = result["self_cpu_ns"].fillna(-1).to_numpy(np.int64)
    return plain(result.iloc[preorder(above, weight)].reset_index(drop=True))


def _kinds(trace: Trace, rows: IntArray) -> pd.Categorical:
    codes = trace.codes("op_name")
    known = codes.codes[rows]
    values = list(dict.fromkeys([*codes.values, OTHER]))
    return pd.Categorical.from_codes(np.where(known < 0, values.index(OTHER), known), pd.Index(values, dtype=object))


def _values(trace: Trace, rows: IntArray) -> dict[str, IntArray]:
    found = {"self_cpu_ns": own_time.self_cpu_ns(trace), "total_cpu_ns": trace.ints("dur_ns")}
    found["self_device_ns"] = own_time.self_device_ns(trace, np.zeros(len(trace), np.bool_))
    found["total_device_ns"] = attribution.total_device_ns(trace)
    return {name: each[rows] for name, each in found.items()}


def _outermost(trace: Trace, counted: BoolArray) -> BoolArray:
    """True for operators that lie in no other one of the same kind, shape (rows,)."""
    around = nesting.nearest_above(trace.ints("parent"), counted)
    rows, kinds, found = np.flatnonzero(counted), trace.codes("op_name"), threads(trace)
    rows = rows[groupby.stable_order(found.code[rows], len(found))]
    outermost: BoolArray = _is_outermost(around, kinds.codes, rows, len(trace), len(kinds.values))
    return outermost


@compiled
def _is_outermost(around, kind, rows, count, kinds):  # type: ignore[no-untyped-def]
    """One walk through the calls of each thread, with the number of calls of each kind on the path to the root."""
    found = np.zeros(count, np.bool_)
    path, depth = np.empty(len(rows) + 1, np.int64), 0
    on_path = np.zeros(kinds + 1, np.int64)
    for row in rows:
        while depth and path[depth - 1] != around[row]:
            depth -= 1
            on_path[kind[path[depth]] + 1] -= 1
        if not depth:  # not below what came before: its path anew
            above = around[row]
            while above >= 0:
                path[depth] = above
                depth += 1
                on_path[kind[above] + 1] += 1
                above = around[above]
            path[:depth] = path[:depth][::-1].copy()
        found[row] = on_path[kind[row] + 1] == 0
        path[depth] = row
        depth += 1
        on_path[kind[row] + 1] += 1
    return found


def _sums(groups: Groups, values: dict[str, IntArray], top: BoolArray, depth: int) -> pd.DataFrame:
    found: dict[str, Any] = {"depth": np.full(len(groups), depth), "calls": groups.sum(top)}
    for name, each in values.items():
        found[name] = groups.sum(np.where(top, each, 0) if name.startswith("total_") else each)
    return _complete(groups, {name: integers(each, np.ones(len(groups), np.bool_)) for name, each in found.items()})


def _alone(trace: Trace, request: ViewRequest, name: str, rows: IntArray) -> pd.DataFrame:
    groups = group({"name": np.full(len(rows), name, object)} | grouping.keys(trace, request, rows, GROUPINGS))
    whole = integers(groups.sum(trace.ints("dur_ns")[rows]), np.ones(len(groups), np.bool_))
    depth = integers(np.zeros(len(groups)), np.ones(len(groups), np.bool_))
    return _complete(groups, {"depth": depth, "self_device_ns": whole, "total_device_ns": whole})


def _complete(groups: Groups, columns: dict[str, Any]) -> pd.DataFrame:
    """All columns, NA where a row has none."""
    missing = integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    keys = plain(groups.keys if "kind" in groups.keys else groups.keys.assign(kind=""))
    return pd.DataFrame({"depth": columns["depth"]} | dict(keys) | {name: columns.get(name, missing) for name in _SUMS})


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    roots = table["depth"] == 0
    result = table.astype({"depth": np.int64})
    for name in ("self_cpu", "self_device"):
        values = table[f"{name}_ns"].to_numpy(np.float64, na_value=np.nan)
        share = np.where(np.isnan(values), np.nan, ratio(values, int(table.loc[roots, f"{name}_ns"].sum())))
        result.insert(list(result.columns).index(f"{name}_ns") + 1, f"{name}_ratio", share)
    return result


COLUMNS: Final = (
    DEPTH,
    NAME,
    *added_by(GROUPINGS),
    CALLS,
    SELF_CPU,
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns"), place=HOST),
    CPU[0],
    SELF_DEVICE,
    share("self_device_ratio", "Self device", Share("self_device_ns"), place=DEVICE),
    ON_DEVICE[0],
)

VIEW = View(
    name="operator_kinds",
    title="Kinds of operators",
    description="operators by what they compute, under the names that all frameworks share",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="self_cpu_ns",
    explain_empty=lambda trace: message("no operators were recorded"),
    reduction=MergedRows(weight=("self_cpu_ns",)),
)
