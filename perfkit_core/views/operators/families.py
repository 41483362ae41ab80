"""Which families of operators take the time: matrix products, convolutions, copies, …?

Host time is that of operators without what other operators do in them; device time that of kernels, copies and fills,
by what they compute themselves (a copy inside a convolution is a copy). Both sum to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
    CALLS,
    DEPTH,
    DEVICE,
    HOST,
    NAME,
    SELF_CPU,
    Share,
    added_by,
    count,
    duration,
    share,
)
from perfkit_core.model.schema import DEVICE_WORK, OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import grouping
from perfkit_core.views.devices import launched_for
from perfkit_core.views.operators import event_families, overloads, own_time
from perfkit_core.views.select import selected
from perfkit_core.views.tables import Groups, group, integers, plain, ratio, texts

OPERATOR: Final = "operator"
GROUPINGS: Final = (OPERATOR, "phase", "module", "step", "device", "rank")
NO_FAMILY: Final = "(no family)"
NO_OPERATOR: Final = "(no operator)"


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows of operators, then of device work; the time of each."""

    operators: IntArray
    work: IntArray
    ns: IntArray
    device_known: bool

    @property
    def on_host(self) -> BoolArray:
        return np.arange(len(self.ns)) < len(self.operators)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a family; see :data:`COLUMNS`. The ratios are to the sums of all rows; NA where no device work was
    recorded.

    By operator a tree: below each family its operators, with the device work of that family that they launched. Raises
    UsageError."""
    counted = _counted(trace, request)
    families = _keys(trace, replace(request, by=tuple(name for name in request.by if name != OPERATOR)), counted)
    result = _sums(group(families), counted)
    if OPERATOR not in request.by:
        return plain(in_order(result).reset_index(drop=True))
    names = _keys(trace, request, counted)
    inner = group(families | {"of": families["name"]} | {"name": names[OPERATOR]})
    above = np.full(len(result) + len(inner), NO_ROW)
    above[len(result) :] = group(families).code[np.unique(inner.code, return_index=True)[1]]
    return _tree(result, _sums(inner, counted).drop(columns="of"), above)


def _tree(roots: pd.DataFrame, leaves: pd.DataFrame, above: IntArray) -> pd.DataFrame:
    rows = pd.concat([plain(roots).assign(depth=0), plain(leaves).assign(depth=1)], ignore_index=True)
    place = np.empty(len(rows), np.int64)
    place[in_order(rows).index.to_numpy()[::-1]] = np.arange(len(rows))
    return rows.iloc[preorder(above, place)][["depth", *roots.columns]].reset_index(drop=True)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """The largest first: by the time on devices, where there is none by that on the host."""
    return rows.sort_values(["device_ns", "self_cpu_ns"], ascending=False, kind="stable", na_position="last")


def _counted(trace: Trace, request: ViewRequest) -> _Counted:
    chosen, device = selected(trace, request), trace.rows("kind", *DEVICE_WORK)
    operators = np.flatnonzero(chosen & trace.host & trace.rows("kind", *OPERATOR_KINDS) & own_time.is_call(trace))
    work = np.flatnonzero(chosen & device)
    ns = np.append(own_time.self_cpu_ns(trace)[operators], trace.ints("dur_ns")[work])
    return _Counted(operators, work, ns, bool(device.any()))


def _keys(trace: Trace, request: ViewRequest, counted: _Counted) -> dict[str, Any]:
    """The family and the groupings of the operators, then of the device work."""
    rows = np.append(counted.operators, counted.work)
    found = {"name": _filled(texts(event_families.event_families(trace), rows), NO_FAMILY)}
    of_host = grouping.keys(trace, request, counted.operators, GROUPINGS, {OPERATOR: (OPERATOR, _names)})
    own = {OPERATOR: (OPERATOR, launched_for.operators), "module": ("module", launched_for.modules)}
    of_work = grouping.keys(trace, request, counted.work, GROUPINGS, own)
    joined = {name: _joined(column, of_work[name]) for name, column in of_host.items()}
    if OPERATOR in joined:
        joined[OPERATOR] = _filled(pd.Categorical(joined[OPERATOR]), NO_OPERATOR)
    return found | joined


def _joined(of_host: Any, of_work: Any) -> Any:
    return pd.concat([pd.Series(of_host), pd.Series(of_work)], ignore_index=True)


def _filled(values: pd.Categorical, missing: str) -> pd.Categorical:
    return pd.Categorical(pd.Series(values).cat.add_categories(missing).fillna(missing))


def _names(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    return texts(overloads.operator_names(trace), rows)


def _sums(groups: Groups, counted: _Counted) -> pd.DataFrame:
    host = counted.on_host
    cpu, device = groups.sum(np.where(host, counted.ns, 0)), groups.sum(np.where(host, 0, counted.ns))
    known = np.full(len(groups), counted.device_known)
    columns = {
        "calls": groups.sum(host),
        "self_cpu_ns": cpu,
        "self_cpu_ratio": ratio(cpu, int(cpu.sum())),
        "device_calls": integers(groups.sum(~host), known),
        "device_ns": integers(device, known),
        "device_ratio": np.where(known, ratio(device, int(device.sum())), np.nan),
    }
    return pd.concat([groups.keys, pd.DataFrame(columns, index=groups.keys.index)], axis=1)


COLUMNS: Final = (
    DEPTH,
    NAME,
    *(known for known in added_by(GROUPINGS) if known.name != OPERATOR),
    replace(CALLS, description="of operators"),
    SELF_CPU,
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns"), place=HOST),
    count("device_calls", "Device calls", exact=True, per_step=True, place=DEVICE),
    duration("device_ns", "Device", per_step=True, place=DEVICE),
    share("device_ratio", "Device", Share("device_ns"), place=DEVICE),
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
