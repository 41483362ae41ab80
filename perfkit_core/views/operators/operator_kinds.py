"""View ``operator_kinds``: canonical operators and the operators of each; kind ``other`` has no canonical name."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import arrays, groupby, nesting, trees
from perfkit_core.language.messages import message
from perfkit_core.model import columns, schema
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution, grouping
from perfkit_core.views.operators import calls, operators
from perfkit_core.views.select import threads
from perfkit_core.views.tables import Groups, group, integers, plain, ratio

GROUPINGS: Final = ("thread", "label", "scope", "module", "phase", "step", "device", "rank")
OTHER: Final = "other"
_SUMS: Final = ("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return a tree with kinds at depth 0 and operators at depth 1, with :data:`COLUMNS`. The denominator of ratios is
    the self time of all operators. Calls and totals of a kind exclude operators inside another of the same kind. Raises
    UsageError."""
    counted = trace.host & trace.rows("kind", *schema.OPERATOR_KINDS) & calls.is_call(trace)
    counted &= operators.chosen(trace, request)
    rows = np.flatnonzero(counted)
    keys = operators.keys(trace, request, rows)
    name, codes = keys.pop("name"), trace.codes("op_name")
    values = list(dict.fromkeys([*codes.values, OTHER]))
    code = np.where(codes.codes[rows] < 0, values.index(OTHER), codes.codes[rows])
    kind = pd.Categorical.from_codes(code, pd.Index(values, dtype=object))
    kinds, inner = group({"name": kind} | keys), group({"kind": kind, "name": name} | keys)
    times = {
        "self_cpu_ns": calls.self_cpu_ns(trace)[rows],
        "total_cpu_ns": trace.ints("dur_ns")[rows],
        "self_device_ns": calls.self_device_ns(trace, np.zeros(len(trace), np.bool_))[rows],
        "total_device_ns": attribution.total_device_ns(trace)[rows],
    }
    # Thread by thread: operators that lie in no other one of the same kind.
    around, place = nesting.nearest_above(trace.ints("parent"), counted), threads(trace)
    by_thread = rows[groupby.stable_order(place.code[rows], len(place))]
    top = _is_outermost(around, codes.codes, by_thread, len(trace), len(codes.values))[rows]
    parts = [
        _sums(kinds, 0, times, top),
        _sums(inner, 1, times, np.ones(len(rows), np.bool_)),
    ]
    for reason, work in operators.unowned(trace, request).items():
        groups = group({"name": np.full(len(work), reason, object)} | grouping.keys(trace, request, work, GROUPINGS))
        device_ns = groups.sum(trace.ints("dur_ns")[work])
        parts.append(_complete(groups, 0, {"self_device_ns": device_ns, "total_device_ns": device_ns}))
    above = np.full(sum(map(len, parts)), arrays.NO_ROW)
    above[len(kinds) : len(kinds) + len(inner)] = kinds.code[np.unique(inner.code, return_index=True)[1]]
    result = pd.concat(parts, ignore_index=True).drop(columns="kind").astype({"depth": np.int64})
    for side in ("self_cpu", "self_device"):
        part = result[f"{side}_ns"].to_numpy(np.float64, na_value=np.nan)
        whole = int(result.loc[result["depth"] == 0, f"{side}_ns"].sum())
        shares = np.where(np.isnan(part), np.nan, ratio(part, whole))
        result.insert(list(result.columns).index(f"{side}_ns") + 1, f"{side}_ratio", shares)
    weight = result["self_cpu_ns"].fillna(-1).to_numpy(np.int64)
    return plain(result.iloc[trees.preorder(above, weight)].reset_index(drop=True))


def _sums(groups: Groups, depth: int, times: dict[str, arrays.IntArray], top: arrays.BoolArray) -> pd.DataFrame:
    """Return the sums of the groups; calls and totals count only rows that are ``top``."""
    sums = {"calls": groups.sum(top)}
    for name, values in times.items():
        sums[name] = groups.sum(np.where(top, values, 0) if name.startswith("total_") else values)
    return _complete(groups, depth, sums)


def _complete(groups: Groups, depth: int, sums: dict[str, arrays.IntArray]) -> pd.DataFrame:
    known, missing = np.ones(len(groups), np.bool_), integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    values: dict[str, Any] = {"depth": integers(np.full(len(groups), depth), known)}
    values |= dict(plain(groups.keys if "kind" in groups.keys else groups.keys.assign(kind="")))
    values |= {name: integers(sums[name], known) if name in sums else missing for name in _SUMS}
    return pd.DataFrame(values)


@compiled
def _is_outermost(around, kind, rows, count, kinds):  # type: ignore[no-untyped-def]
    """Walk through the calls of each thread, counting the calls of each kind on the path to the root."""
    found = np.zeros(count, np.bool_)
    path, depth = np.empty(len(rows) + 1, np.int64), 0
    on_path = np.zeros(kinds + 1, np.int64)
    for row in rows:
        while depth and path[depth - 1] != around[row]:
            depth -= 1
            on_path[kind[path[depth]] + 1] -= 1
        if not depth:  # not below the previous event: rebuild the path
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


COLUMNS: Final = (
    columns.DEPTH,
    columns.NAME,
    *columns.added_by(GROUPINGS),
    columns.CALLS,
    columns.SELF_CPU,
    columns.share("self_cpu_ratio", "Self CPU", columns.Share("self_cpu_ns"), place=columns.HOST),
    columns.CPU[0],
    columns.SELF_DEVICE,
    columns.share("self_device_ratio", "Self device", columns.Share("self_device_ns"), place=columns.DEVICE),
    columns.ON_DEVICE[0],
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
