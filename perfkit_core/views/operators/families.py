"""View ``families``: operator families (matmul, conv, copy …), the family of each event, and the time of each family.

The canonical name of a host operator gives its family. If it gives none, and for other host events, the nearest
enclosing operator that has a family gives it. The name of device work gives its family, or else the operator that
launched it. Kernels of generic families take the family of that operator (a matrix product in a convolution).

Host time is operator self time; device time is the time of kernels, memcpy and memset. Both add up to their totals.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting, trees
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model import columns, schema
from perfkit_core.model.trace import Trace, once
from perfkit_core.operators.names import FAMILIES, family, kernel_family
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import attribution, grouping, select
from perfkit_core.views.devices.kernels import OF_LAUNCH
from perfkit_core.views.operators import calls
from perfkit_core.views.tables import Groups, group, integers, plain, ratio, texts

OPERATOR: Final = "operator"
GROUPINGS: Final = (OPERATOR, "phase", "module", "step", "device", "rank")
NO_FAMILY: Final = "(no family)"
NO_OPERATOR: Final = "(no operator)"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per family, with :data:`COLUMNS`. Ratios are of the sums of all rows; NA if no device work was
    recorded. Grouped by operator, a tree: below each family its operators with the device work of that family that they
    launched. Raises UsageError."""
    chosen, device = select.selected(trace, request), trace.rows("kind", *schema.DEVICE_WORK)
    operators = np.flatnonzero(chosen & trace.host & trace.rows("kind", *schema.OPERATOR_KINDS) & calls.is_call(trace))
    work = np.flatnonzero(chosen & device)
    ns = np.append(calls.self_cpu_ns(trace)[operators], trace.ints("dur_ns")[work])
    host, device_known = np.arange(len(ns)) < len(operators), bool(device.any())

    by = tuple(name for name in request.by if name != OPERATOR)
    keys = _keys(trace, replace(request, by=by), operators, work)
    families = group(keys)
    roots = plain(_sums(families, ns, host, device_known))
    if OPERATOR not in request.by:
        return in_order(roots).reset_index(drop=True)
    names = _keys(trace, request, operators, work)[OPERATOR]
    inner = group(keys | {"of": keys["name"]} | {"name": names})
    leaves = plain(_sums(inner, ns, host, device_known).drop(columns="of"))
    rows = pd.concat([roots.assign(depth=0), leaves.assign(depth=1)], ignore_index=True)
    above = np.full(len(rows), NO_ROW)
    above[len(roots) :] = families.code[np.unique(inner.code, return_index=True)[1]]
    place = np.empty(len(rows), np.int64)
    place[in_order(rows).index.to_numpy()[::-1]] = np.arange(len(rows))
    return rows.iloc[trees.preorder(above, place)][["depth", *roots.columns]].reset_index(drop=True)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(["device_ns", "self_cpu_ns"], ascending=False, kind="stable", na_position="last")


def _keys(trace: Trace, request: ViewRequest, operators: IntArray, work: IntArray) -> dict[str, Any]:
    rows = np.append(operators, work)
    names = {OPERATOR: (OPERATOR, lambda trace, rows, argument: texts(calls.operator_names(trace), rows))}
    of_host = grouping.keys(trace, request, operators, GROUPINGS, names)
    of_work = grouping.keys(trace, request, work, GROUPINGS, OF_LAUNCH)
    keys: dict[str, Any] = {"name": _filled(texts(event_families(trace), rows), NO_FAMILY)}
    for name, column in of_host.items():
        both = pd.concat([pd.Series(column), pd.Series(of_work[name])], ignore_index=True)
        keys[name] = _filled(pd.Categorical(both), NO_OPERATOR) if name == OPERATOR else both
    return keys


def _filled(values: pd.Categorical, missing: str) -> pd.Categorical:
    return pd.Categorical(pd.Series(values).cat.add_categories(missing).fillna(missing))


def _sums(groups: Groups, ns: IntArray, host: BoolArray, device_known: bool) -> pd.DataFrame:
    cpu, device = groups.sum(np.where(host, ns, 0)), groups.sum(np.where(host, 0, ns))
    known = np.full(len(groups), device_known)
    return groups.keys.assign(
        calls=groups.sum(host),
        self_cpu_ns=cpu,
        self_cpu_ratio=ratio(cpu, int(cpu.sum())),
        device_calls=integers(groups.sum(~host), known),
        device_ns=integers(device, known),
        device_ratio=np.where(known, ratio(device, int(device.sum())), np.nan),
    )


_NUMBER: Final = {name: number for number, name in enumerate(FAMILIES)}
_OF_KIND: Final = {schema.MEMCPY: "copy", schema.MEMSET: "creation"}
_SERVES: Final = {
    "matmul": ("conv", "attention", "rnn", "mixture_of_experts", "linear_algebra"),
    "elementwise": ("activation", "dropout", "loss"),
}
"""Family of a kernel → families of operators that such kernels compute: there that of the operator says more."""


@once
def event_families(trace: Trace) -> Codes:
    """Return the family of each event, shape (rows,): codes into all families, -1 for none."""
    parent, op_names = trace.ints("parent"), trace.codes("op_name")
    own = op_names.lookup(np.array([_number(family(name)) for name in op_names.values], np.int64), -1)
    nearest = nesting.nearest_on_path(parent, own >= 0)
    families = np.where(nearest == NO_ROW, -1, own[nearest])

    kinds, names, kernels = trace.codes("kind"), trace.codes("name"), ~trace.host & trace.rows("kind", schema.KERNEL)
    by_kind = kinds.lookup(np.array([_number(_OF_KIND.get(kind)) for kind in kinds.values], np.int64), -1)
    by_name = np.full(len(names.values), -1, np.int64)
    for code in np.unique(names.codes[kernels]):  # classify each distinct name once
        by_name[code] = _number(kernel_family(names.values[code]))
    told = np.where(by_kind >= 0, by_kind, np.where(kernels, names.lookup(by_name, -1), -1))
    serving = np.zeros(
        (len(FAMILIES) + 1, len(FAMILIES) + 1), np.bool_
    )  # index: family of the kernel, family of the operator
    for of_kernel, of_operators in _SERVES.items():
        serving[_NUMBER[of_kernel], [_NUMBER[name] for name in of_operators]] = True
    device = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK))
    told, owner = told[device], attribution.owners(trace)
    inherited = np.where(owner[device] == NO_ROW, -1, families[owner[device]])
    families[device] = np.where((told >= 0) & ~serving[told, inherited], told, inherited)

    # A kernel is a cast if a copying operator called directly by a casting one launched it. Copies by copy
    # engines stay copies, as they move data between memories.
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
    columns.NAME,
    *(column for column in columns.added_by(GROUPINGS) if column.name != OPERATOR),
    replace(columns.CALLS, description="of operators"),
    columns.SELF_CPU,
    columns.share("self_cpu_ratio", "Self CPU", columns.Share("self_cpu_ns"), place=columns.HOST),
    columns.count("device_calls", "Device calls", exact=True, per_step=True, place=columns.DEVICE),
    columns.duration("device_ns", "Device", per_step=True, place=columns.DEVICE),
    columns.share("device_ratio", "Device", columns.Share("device_ns"), place=columns.DEVICE),
)

VIEW = View(
    name="families",
    title="Families of operators",
    description="matrix products, convolutions, copies, …: host and device time by what is computed",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message("no operators and no device work were recorded"),
    reduction=MergedRows(
        weight=("device_ns", "self_cpu_ns"),
        finish=lambda table, request: table if "depth" in table else in_order(table),
    ),
)
