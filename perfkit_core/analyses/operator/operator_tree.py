"""What are operators made of: which details and operators do they contain, and which device work do they launch?

Operators of one name are one row; below it, merged by name, what they contain; at the leaves kernels, copies and fills.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses.operator import overloads
from perfkit_core.analyses.operator.operator_entries import Entries, entries
from perfkit_core.analyses.operator.spans import GROUPINGS
from perfkit_core.analyses.tables import Groups, group, integers, plain
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, NO_ROW
from perfkit_core.table_columns import (
    CALLS,
    CPU,
    DEPTH,
    DEVICE,
    FLOPS,
    HOST,
    KIND,
    NAME,
    ON_DEVICE,
    Share,
    added_by,
    share,
)
from perfkit_core.trace import BoolArray, Codes, IntArray, Trace
from perfkit_core.trees import Tree, heaviest_first, merge, preorder


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns depth, name, kind, [the groupings of its operator,] calls, total/avg/min/max_cpu_ns, cpu_ratio,
    total/avg/min/max_device_ns, device_ratio, flops. Device rows have no host times, rows in parentheses are device
    work that no operator owns. Device time is that of all below a row. A ratio is to the row above, of a root to the
    sum of the roots (natively of those with the same groupings). Raises UsageError."""
    found = entries(trace, request)
    tree = merge(found.above, found.keys(trace), np.ones(len(found.row), np.bool_))
    nodes = Groups(pd.DataFrame(index=np.arange(len(tree))), tree.node)
    first = np.unique(tree.node, return_index=True)[1]
    host = nodes.sum(np.arange(len(found.row)) < found.host) > 0
    columns = {"depth": tree.depth()} | _texts(trace, found, tree, first)
    columns |= {"calls": integers(nodes.calls(), found.row[first] != NO_ROW)}
    whole = _wholes(found, tree, first, request.native)
    columns |= _cpu(trace, found, tree, nodes, host, whole) | _device(trace, found, tree, nodes, whole)
    columns["flops"] = _flops(trace, found, nodes)
    result = pd.DataFrame(columns)
    weights = result[["total_cpu_ns", "total_device_ns"]].fillna(-1).to_numpy(np.int64)
    apart = result[["name", "kind", *(str(name) for name in found.tops.columns if name != "name")]]
    weight = heaviest_first(zip(*(apart[name] for name in apart), strict=True), weights[:, 0], weights[:, 1])
    return plain(result.iloc[preorder(tree.parent, weight)].reset_index(drop=True))


def _texts(trace: Trace, found: Entries, tree: Tree, first: IntArray) -> dict[str, Any]:
    """Name, kind, and the groupings of the root of each node."""
    row, top = found.row[first], found.top[first]
    name, kind = _text(overloads.operator_names(trace), row), _text(trace.codes("kind"), row)
    name[top != NO_ROW] = found.tops["name"].to_numpy(object)[top[top != NO_ROW]]
    root = nesting.first_on_path(tree.parent, np.where(tree.parent == NO_ROW, np.arange(len(tree)), NO_ROW))
    grouped = found.tops.iloc[top[root]].reset_index(drop=True).drop(columns="name")
    return {"name": name, "kind": kind} | {str(column): grouped[column] for column in grouped}


def _text(codes: Codes, row: IntArray) -> npt.NDArray[np.object_]:
    found: npt.NDArray[np.object_] = np.array([*codes.values, None], object)[
        np.where(row == NO_ROW, -1, codes.codes[row])
    ]
    return found


def _cpu(trace: Trace, found: Entries, tree: Tree, nodes: Groups, host: BoolArray, whole: IntArray) -> dict[str, Any]:
    """Host times and their share, NA for device work."""
    dur_ns = np.where(np.arange(len(found.row)) < found.host, trace.ints("dur_ns")[found.row], 0)
    times = nodes.statistics(dur_ns, "cpu")
    share = np.where(host, _share(tree, times["total_cpu_ns"], whole), np.nan)
    return {name: integers(values, host) for name, values in times.items()} | {"cpu_ratio": share}


def _device(trace: Trace, found: Entries, tree: Tree, nodes: Groups, whole: IntArray) -> dict[str, Any]:
    """Device times and their share, NA where no work of a device was recorded."""
    known = np.full(len(tree), trace.rows("kind", *DEVICE_WORK).any())
    times = nodes.statistics(found.device_ns, "device")
    share = np.where(known, _share(tree, times["total_device_ns"], whole), np.nan)
    return {name: integers(values, known) for name, values in times.items()} | {"device_ratio": share}


def _wholes(found: Entries, tree: Tree, first: IntArray, native: bool) -> IntArray:
    """Number of the whole that each node is a share of: -1 - w for roots of whole w, else the node above it."""
    wholes = np.zeros(len(tree), np.int64)
    apart = found.tops.drop(columns="name")
    if native and len(apart.columns):
        wholes = group(dict(apart)).code[np.maximum(found.top[first], 0)]
    return np.where(tree.parent == NO_ROW, -1 - wholes, tree.parent)


def _share(tree: Tree, total: IntArray, whole: IntArray) -> Any:
    """Of the row above; of all roots at the top (natively of those of the same groupings); 0 where that is 0."""
    root = tree.parent == NO_ROW
    sums = np.zeros(1 + int((-1 - whole[root]).max(initial=0)), np.int64)
    np.add.at(sums, -1 - whole[root], total[root])
    of = np.where(root, sums[np.where(root, -1 - whole, 0)], total[tree.parent])
    return total / np.where(of == 0, 1, of)


def _flops(trace: Trace, found: Entries, nodes: Groups) -> pd.arrays.IntegerArray:
    flops = np.where(found.row == NO_ROW, _UNKNOWN, trace.ints("flops", _UNKNOWN)[found.row])
    return nodes.known_sum(flops, flops != _UNKNOWN)


_UNKNOWN: Final = int(np.iinfo(np.int64).min)


def _roots_of_a_group(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Natively the shares of the roots are of those with the same groupings."""
    groupings = [known.name for known in COLUMNS if known.by and known.name in table]
    if not (request.native and groupings):
        return table
    root = table["depth"] == 0
    keys = [table[name].astype("string").fillna("") for name in groupings]
    for side in ("cpu", "device"):
        total = table[f"total_{side}_ns"].astype("Float64").fillna(0).to_numpy(np.float64)
        whole = pd.Series(np.where(root, total, 0)).groupby(keys).transform("sum").to_numpy()
        share = np.where(whole == 0, 0, total / np.where(whole == 0, 1, whole))
        known = table[f"{side}_ratio"].notna()
        table[f"{side}_ratio"] = np.where(root & known, share, table[f"{side}_ratio"])
    return table


COLUMNS: Final = (
    DEPTH,
    NAME,
    KIND,
    *added_by(GROUPINGS),
    CALLS,
    *CPU,
    share("cpu_ratio", "CPU", Share("total_cpu_ns", above=True), place=HOST, description="of the row above"),
    *ON_DEVICE,
    share("device_ratio", "Device", Share("total_device_ns", above=True), place=DEVICE),
    FLOPS,
)

VIEW = View(
    name="operator_tree",
    title="What operators are made of",
    description="operators, below them what they contain, and at the leaves the device work that they launch",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_cpu_ns",
    explain_empty=lambda trace: in_english("no operators were recorded"),
    native=True,
    reduction=MergedRows(weight=("total_cpu_ns", "total_device_ns"), finish=_roots_of_a_group),
)
