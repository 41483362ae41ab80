"""View ``operator_tree``: operators merged by name; below them, inner operators, operator details and device work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping
from perfkit_core.views.operators import calls
from perfkit_core.views.operators.operator_work import UNKNOWN, operator_flops
from perfkit_core.views.operators.operators import GROUPINGS, chosen, keys, unowned
from perfkit_core.views.tables import Groups, group, integers, without_categoricals


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the tree, with :data:`COLUMNS`. Raises UsageError.

    Rows of device work have no host times. Rows with names in parentheses are device work that no operator launched.
    The times of a row include all rows below it. A share is the time of the row divided by the time of its parent row.
    The time of a root is divided by the sum of all roots. With ``--native``, each group (``--by``) has its own sum.
    """
    events, names, kinds = entries(trace, request), calls.operator_names(trace), trace.codes("kind")
    below = names.codes[events.row].astype(np.int64) * len(kinds.values) + kinds.codes[events.row]
    key = np.where(events.top == NO_ROW, len(events.tops) + below, events.top)
    tree = trees.merge(events.above, key, np.ones(len(events.row), np.bool_))
    nodes = Groups(pd.DataFrame(index=np.arange(len(tree))), tree.node)
    first = np.unique(tree.node, return_index=True)[1]
    row, top, root = events.row[first], events.top[first], tree.parent == NO_ROW

    cells: dict[str, Any] = {"depth": tree.depth()}
    for column, codes in (("name", names), ("kind", kinds)):
        cells[column] = np.array([*codes.values, None], object)[np.where(row == NO_ROW, -1, codes.codes[row])]
    cells["name"][top != NO_ROW] = events.tops["name"].to_numpy(object)[top[top != NO_ROW]]
    groupings = events.tops.drop(columns="name")
    root_of = nesting.first_on_path(tree.parent, np.where(root, np.arange(len(tree)), NO_ROW))
    cells |= dict(groupings.iloc[top[root_of]].reset_index(drop=True))
    cells["calls"] = integers(nodes.calls(), row != NO_ROW)

    root_group = np.zeros(len(tree), np.int64)  # roots of the same group have a common denominator
    if request.native and len(groupings.columns):
        root_group = np.where(root, group(dict(groupings)).code[np.maximum(top, 0)], 0)
    on_host = np.arange(len(events.row)) < events.host
    device_known = np.full(len(tree), request.native or trace.rows("kind", *schema.DEVICE_WORK).any())
    for side, values, recorded in (
        ("cpu", np.where(on_host, trace.ints("dur_ns")[events.row], 0), nodes.sum(on_host) > 0),
        ("device", events.device_ns, device_known),
    ):
        times = nodes.statistics(values, side)
        total, sums = times[f"total_{side}_ns"], np.zeros(1 + int(root_group.max(initial=0)), np.int64)
        np.add.at(sums, root_group[root], total[root])
        denominator = np.where(root, sums[root_group], total[tree.parent])
        cells |= {name: integers(numbers, recorded) for name, numbers in times.items()}
        cells[f"{side}_ratio"] = np.where(recorded, total / np.where(denominator == 0, 1, denominator), np.nan)
    flops = np.append(operator_flops(trace), UNKNOWN)[events.row]
    cells["flops"] = nodes.known_sum(flops, flops != UNKNOWN)

    result = pd.DataFrame(cells)
    weights = result[["total_cpu_ns", "total_device_ns"]].fillna(-1).to_numpy(np.int64)
    labels = zip(*(result[str(name)] for name in ("name", "kind", *groupings)), strict=True)
    weight = trees.heaviest_first(labels, weights[:, 0], weights[:, 1])
    return without_categoricals(result.iloc[trees.preorder(tree.parent, weight)].reset_index(drop=True))


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the tree before equal entries are merged. Arrays have shape (entries,). Host events come first."""

    above: IntArray  # index of the parent entry, -1 for roots
    row: IntArray  # row of the event; -1 for the added roots of device work that no operator launched
    device_ns: IntArray  # device time, including all entries below
    top: IntArray  # for a root, its row in `tops`; otherwise -1
    tops: pd.DataFrame  # name and groupings of each distinct root
    host: int  # number of host events


def entries(trace: Trace, request: ViewRequest) -> Entries:
    """Return the operators and everything below them, then the device work that no operator launched.

    The roots are the outermost operators. Below a root are the operators and details inside it (a detail is a phase
    such as Paddle's ``compute``). Device work is below the innermost operator or detail that contains its launch.

    In the native tree (Paddle's Operator Summary), every operator is a root. Its direct children are below it, except
    operators and runtime calls. Device work is below the event that launched it.
    """
    counted, parent = chosen(trace, request), trace.ints("parent")
    if request.native:
        root = trace.host & trace.rows("kind", schema.OPERATOR) & counted
        children = schema.NESTED_KINDS - {schema.OPERATOR, schema.RUNTIME, schema.SYNC}
        inner = trace.host & trace.rows("kind", *children) & (parent != NO_ROW) & root[parent]
    else:
        operators = trace.operators & calls.is_call(trace)
        root = operators & counted
        root &= ~nesting.lies_in(parent, root)
        details = trace.host & trace.rows("kind", schema.OPERATOR_DETAIL)
        inner = nesting.lies_in(parent, root) & (operators | details)
    shown, parent = root | inner, np.where(root, NO_ROW, parent)
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (owner != NO_ROW))
    holder = owner[work] if request.native else nesting.nearest_on_path(parent, shown)[owner[work]]
    has_holder = (holder != NO_ROW) & shown[holder]
    work, holder, host = work[has_holder], holder[has_holder], np.flatnonzero(shown)
    position = np.full(len(trace) + 1, NO_ROW, np.int64)  # entry of each event; position[NO_ROW] is NO_ROW
    position[host] = np.arange(len(host))
    roots = group(keys(trace, request, np.flatnonzero(root)))
    top = np.full(len(host), NO_ROW)
    top[np.flatnonzero(root[host])] = roots.code

    # Device work that no operator launched has one root per combination of row name and groupings.
    reasons = unowned(trace, request)
    alone = np.concatenate([np.empty(0, np.int64), *reasons.values()])
    name = np.repeat(np.array(list(reasons), object), [len(rows) for rows in reasons.values()])
    added = group({"name": name} | grouping.keys(trace, request, alone, GROUPINGS))
    no_row, dur_ns, tops = np.full(len(added), NO_ROW), trace.ints("dur_ns"), without_categoricals(roots.keys)
    above = position[nesting.nearest_above(parent, shown)[host]]
    numbers = len(tops) + np.arange(len(added))
    return Entries(
        above=np.concatenate([above, position[holder], no_row, len(host) + len(work) + added.code]),
        row=np.concatenate([host, work, no_row, alone]),
        device_ns=np.concatenate(
            [attribution.total_device_ns(trace)[host], dur_ns[work], added.sum(dur_ns[alone]), dur_ns[alone]]
        ),
        top=np.concatenate([top, np.full(len(work), NO_ROW), numbers, np.full(len(alone), NO_ROW)]),
        tops=pd.concat([tops, without_categoricals(added.keys)], ignore_index=True) if len(added) else tops,
        host=len(host),
    )


def _shares_by_groupings(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Set the shares of the roots in a native table with groupings. The share of a root is its time divided by the sum
    over all roots that have the same values in the grouping columns."""
    groupings = [column.name for column in COLUMNS if column.by and column.name in table]
    if not (request.native and groupings):
        return table
    root = table["depth"] == 0
    keys = [table[name].astype("string").fillna("") for name in groupings]
    for side in ("cpu", "device"):
        time = table[f"total_{side}_ns"].astype("Float64").fillna(0).to_numpy(np.float64)
        sums = pd.Series(np.where(root, time, 0)).groupby(keys).transform("sum").to_numpy()
        share = np.where(sums == 0, 0, time / np.where(sums == 0, 1, sums))
        has_share = table[f"{side}_ratio"].notna()
        table[f"{side}_ratio"] = np.where(root & has_share, share, table[f"{side}_ratio"])
    return table


COLUMNS: Final = (
    columns.DEPTH,
    columns.OPERATOR_NAME,
    columns.KIND,
    *columns.added_by(GROUPINGS),
    columns.CALLS,
    *columns.CPU,
    columns.share("cpu_ratio", "CPU", columns.Share("total_cpu_ns", above=True), place=columns.HOST),
    *columns.ON_DEVICE,
    columns.share("device_ratio", "Device", columns.Share("total_device_ns", above=True), place=columns.DEVICE),
    columns.FLOPS,
)

VIEW = View(
    name="operator_tree",
    title="Operator tree",
    description="tree of operators: below each operator are its inner operators, details and launched device work",
    table=Merged(table, _shares_by_groupings, siblings=("total_cpu_ns", "total_device_ns"), native=True),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("total_device_ns", "total_cpu_ns"),
    explain_empty=lambda trace: message("no operators were recorded"),
)
