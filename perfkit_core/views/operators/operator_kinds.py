"""View ``operator_kinds``: canonical operators. Below each are the operators that have this canonical name.

Operators without a canonical name are below ``other``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, trees
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution
from perfkit_core.views.operators import calls, operators
from perfkit_core.views.tables import Groups, categorical, group, integers, ratio, without_categoricals

GROUPINGS: Final = ("thread", "label", "scope", "module", "phase", "step", "device", "rank")
_SUMS: Final = ("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return a tree of canonical operators (depth 0) and operators (depth 1), with :data:`COLUMNS`.

    The denominator of a share is the self time of all operators. An operator inside another operator of the same
    canonical name does not count in the calls and total times of the canonical operator. Raises UsageError.
    """
    counted = trace.operators & calls.is_call(trace) & operators.chosen(trace, request)
    rows = np.flatnonzero(counted)
    keys = operators.keys(trace, request, rows)
    name, codes = keys.pop("name"), trace.codes("op_name")
    code = np.where(codes.codes[rows] < 0, len(codes.values), codes.codes[rows])
    kind = categorical(code, [*codes.values, "other"])
    kinds, inner = group({"name": kind} | keys), group({"kind": kind, "name": name} | keys)
    values = {
        "calls": np.ones(len(rows), np.int64),
        "self_cpu_ns": calls.self_cpu_ns(trace)[rows],
        "total_cpu_ns": trace.ints("dur_ns")[rows],
        "self_device_ns": calls.self_device_ns(trace, np.zeros(len(trace), np.bool_))[rows],
        "total_device_ns": attribution.total_device_ns(trace)[rows],
    }
    outermost = calls.outermost_alike(trace, rows, codes.codes[rows])
    totals = {name: np.where(outermost, values[name], 0) for name in ("calls", "total_cpu_ns", "total_device_ns")}
    parts = [_sums(kinds, 0, values | totals), _sums(inner, 1, values)]
    for reason, work in operators.unowned(trace, request).items():
        device_ns = dict.fromkeys(("self_device_ns", "total_device_ns"), trace.ints("dur_ns")[work])
        parts.append(_sums(operators.named_groups(trace, request, reason, work), 0, device_ns))
    above = np.full(sum(map(len, parts)), arrays.NO_ROW)
    above[len(kinds) : len(kinds) + len(inner)] = kinds.code[np.unique(inner.code, return_index=True)[1]]
    result = pd.concat(parts, ignore_index=True)
    for side in ("self_cpu", "self_device"):
        part = result[f"{side}_ns"].to_numpy(np.float64, na_value=np.nan)
        total = int(result.loc[result["depth"] == 0, f"{side}_ns"].sum())
        shares = np.where(np.isnan(part), np.nan, ratio(part, total))
        result.insert(list(result.columns).index(f"{side}_ns") + 1, f"{side}_ratio", shares)
    weight = result["self_cpu_ns"].fillna(-1).to_numpy(np.int64)
    return without_categoricals(result.iloc[trees.preorder(above, weight)].reset_index(drop=True))


def _sums(groups: Groups, depth: int, values: dict[str, arrays.IntArray]) -> pd.DataFrame:
    """Return the sums of the values of each group. Columns without values are NA."""
    present, missing = np.ones(len(groups), np.bool_), integers(np.zeros(len(groups)), np.zeros(len(groups), np.bool_))
    cells: dict[str, Any] = {"depth": np.full(len(groups), depth)}
    cells |= dict(without_categoricals(groups.keys.drop(columns="kind", errors="ignore")))
    cells |= {name: integers(groups.sum(values[name]), present) if name in values else missing for name in _SUMS}
    return pd.DataFrame(cells)


COLUMNS: Final = (
    columns.DEPTH,
    columns.OPERATOR_NAME,
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
    title="Canonical operators",
    description="operators grouped by what they compute, under names shared by all frameworks",
    table=Merged(table, siblings=("self_cpu_ns",)),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("self_device_ns", "self_cpu_ns"),
    explain_empty=lambda trace: message("no operators were recorded"),
)
