"""View ``families``: operator families (matmul, conv, copy …), the family of each event, and the time of each family.

- The canonical name of an operator determines its family. Other host events, and operators without a family, have the
  family of the nearest enclosing operator that has one.
- The name of device work determines its family. If the name shows none, the launching operator determines the family.
- Some kernels, such as matrix products, are launched by operators of different families. The launching operator then
  determines the family: a matrix product launched by a convolution belongs to ``conv``.

Host time is the self time of operators. Device time is the time of kernels, memcpy and memset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.base.language.messages import mark, message
from perfkit_core.base.operators.names import FAMILIES, family, kernel_family
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping, select
from perfkit_core.views.operators import calls
from perfkit_core.views.tables import Groups, group, integers, ratio, texts, without_categoricals

OPERATOR: Final = "operator"
GROUPINGS: Final = (OPERATOR, "phase", "module", "step", "device", "rank")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per family, with :data:`COLUMNS`. Device columns are NA if no device work was recorded. Grouped by
    operator, the table is a tree: below each family are its operators and the operators that launched device work of
    the family. Raises UsageError."""
    chosen, device = select.selected(trace, request), trace.rows("kind", *schema.DEVICE_WORK)
    operators = np.flatnonzero(chosen & trace.operators & calls.is_call(trace))
    work = np.flatnonzero(chosen & device)
    ns = np.append(calls.self_cpu_ns(trace)[operators], trace.ints("dur_ns")[work])
    host, device_known = np.arange(len(ns)) < len(operators), bool(device.any())

    by = tuple(name for name in request.by if name != OPERATOR)
    keys = _keys(trace, replace(request, by=by), operators, work)
    families = group(keys)
    roots = without_categoricals(_sums(families, ns, host, device_known))
    if OPERATOR not in request.by:
        return in_order(roots).reset_index(drop=True)
    names = _keys(trace, request, operators, work)[OPERATOR]
    inner = group(keys | {"family": keys["name"], "name": names})
    leaves = without_categoricals(_sums(inner, ns, host, device_known).drop(columns="family"))
    rows = pd.concat([roots.assign(depth=0), leaves.assign(depth=1)], ignore_index=True)
    above = np.full(len(rows), NO_ROW)
    above[len(roots) :] = families.code[np.unique(inner.code, return_index=True)[1]]
    weight = np.argsort(in_order(rows).index.to_numpy()[::-1])
    return rows.iloc[trees.preorder(above, weight)][["depth", *roots.columns]].reset_index(drop=True)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(["device_ns", "self_cpu_ns"], ascending=False, kind="stable", na_position="last")


def _keys(trace: Trace, request: ViewRequest, operators: IntArray, work: IntArray) -> dict[str, Any]:
    by_name = {OPERATOR: (OPERATOR, lambda trace, rows, argument: texts(calls.operator_names(trace), rows))}
    of_operators = grouping.keys(trace, request, operators, GROUPINGS, by_name)
    of_work = grouping.keys(trace, request, work, GROUPINGS)
    families = texts(event_families(trace), np.append(operators, work))
    keys: dict[str, Any] = {"name": _filled(families, mark("(no family)"))}
    for name, column in of_operators.items():
        both = pd.concat([pd.Series(column), pd.Series(of_work[name])], ignore_index=True)
        keys[name] = _filled(pd.Categorical(both), mark("(no operator)")) if name == OPERATOR else both
    return keys


def _filled(values: pd.Categorical, missing: str) -> pd.Categorical:
    return pd.Categorical(pd.Series(values).cat.add_categories(missing).fillna(missing))


def _sums(groups: Groups, ns: IntArray, host: BoolArray, device_known: bool) -> pd.DataFrame:
    cpu, device = groups.sum(np.where(host, ns, 0)), groups.sum(np.where(host, 0, ns))
    recorded = np.full(len(groups), device_known)
    return groups.keys.assign(
        calls=groups.sum(host),
        self_cpu_ns=cpu,
        self_cpu_ratio=ratio(cpu, int(cpu.sum())),
        device_calls=integers(groups.sum(~host), recorded),
        device_ns=integers(device, recorded),
        device_ratio=np.where(recorded, ratio(device, int(device.sum())), np.nan),
    )


_NUMBER: Final = {name: number for number, name in enumerate(FAMILIES)}
_OF_KIND: Final = {schema.MEMCPY: "copy", schema.MEMSET: "creation"}
_GENERIC: Final = {
    "matmul": ("conv", "attention", "rnn", "mixture_of_experts", "linear_algebra"),
    "elementwise": ("activation", "dropout", "loss"),
}
"""Family of a kernel → families of operators that also launch such kernels. A kernel launched by one of these operators
gets the family of the operator. For example, a matmul kernel launched by a convolution gets the family conv."""


@once
def event_families(trace: Trace) -> Codes:
    """Return the family of each event, shape (rows,). Codes are indexes of ``FAMILIES``, -1 if an event has none."""
    parent, op_names = trace.ints("parent"), trace.codes("op_name")
    by_op_name = op_names.lookup(np.array([_number(family(name)) for name in op_names.values], np.int64), -1)
    nearest = nesting.nearest_on_path(parent, by_op_name >= 0)
    families = np.where(nearest == NO_ROW, -1, by_op_name[nearest])

    kinds, names, kernels = trace.codes("kind"), trace.codes("name"), ~trace.host & trace.rows("kind", schema.KERNEL)
    by_kind = kinds.lookup(np.array([_number(_OF_KIND.get(kind)) for kind in kinds.values], np.int64), -1)
    by_name = np.full(len(names.values), -1, np.int64)
    for code in np.unique(names.codes[kernels]):
        by_name[code] = _number(kernel_family(names.values[code]))
    by_work = np.where(by_kind >= 0, by_kind, np.where(kernels, names.lookup(by_name, -1), -1))
    inherits = np.zeros((len(FAMILIES) + 1, len(FAMILIES) + 1), np.bool_)  # [family of kernel, family of operator]
    for of_kernel, of_operators in _GENERIC.items():
        inherits[_NUMBER[of_kernel], [_NUMBER[name] for name in of_operators]] = True
    device = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK))
    by_work, owner = by_work[device], attribution.owners(trace)
    by_operator = np.where(owner[device] == NO_ROW, -1, families[owner[device]])
    families[device] = np.where((by_work >= 0) & ~inherits[by_work, by_operator], by_work, by_operator)

    # A casting operator calls a copying operator, which launches a copy kernel. The family of this kernel is cast. A
    # memcpy keeps the family copy, as it moves data between memories.
    named = op_names.codes >= 0
    launcher = np.append(nesting.nearest_on_path(parent, named), NO_ROW)[owner]
    outer = np.append(nesting.nearest_above(parent, named), NO_ROW)[launcher]
    casting = np.append(families, -1)[outer] == _NUMBER["cast"]
    families[trace.rows("kind", schema.KERNEL) & (families == _NUMBER["copy"]) & casting] = _NUMBER["cast"]
    return Codes(families.astype(np.int32), list(FAMILIES))


def _number(name: str | None) -> int:
    return -1 if name is None else _NUMBER[name]


COLUMNS: Final = (
    columns.DEPTH,
    columns.OPERATOR_NAME,
    *(column for column in columns.added_by(GROUPINGS) if column.name != OPERATOR),
    replace(columns.CALLS, description="calls of operators"),
    columns.SELF_CPU,
    columns.share("self_cpu_ratio", "Self CPU", columns.Share("self_cpu_ns"), place=columns.HOST),
    columns.count("device_calls", "Device calls", exact=True, over="steps", place=columns.DEVICE),
    columns.duration("device_ns", "Device", over="steps", place=columns.DEVICE),
    columns.share("device_ratio", "Device", columns.Share("device_ns"), place=columns.DEVICE),
)

VIEW = View(
    name="families",
    title="Operator families",
    description="host and device time of each operator family: matrix products, convolutions, copies, …",
    table=Merged(
        table,
        lambda rows, request: rows if "depth" in rows else in_order(rows),
        siblings=("device_ns", "self_cpu_ns"),
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message("no operators and no device work were recorded"),
)
