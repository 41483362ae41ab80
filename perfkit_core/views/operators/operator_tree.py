"""What are operators made of: which details and operators do they contain, and which device work do they launch?

Operators of one name are one row; below it, merged by name, what they contain; at the leaves kernels, copies and fills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.algorithms.trees import Tree, heaviest_first, merge, preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
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
from perfkit_core.model.schema import (
    DEVICE_WORK,
    NESTED_KINDS,
    OPERATOR,
    OPERATOR_DETAIL,
    OPERATOR_KINDS,
    RUNTIME,
    SYNC,
)
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import attribution, grouping
from perfkit_core.views.operators import overloads
from perfkit_core.views.operators.own_time import is_call
from perfkit_core.views.operators.spans import GROUPINGS, chosen, keys
from perfkit_core.views.operators.unowned import unowned
from perfkit_core.views.tables import Groups, group, integers, plain


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The tree; see :data:`COLUMNS`. Device rows have no host times, rows in parentheses are device work that no
    operator owns. Device time is that of all below a row. A ratio is to the row above, of a root to the sum of the
    roots (natively of those with the same groupings). Raises UsageError."""
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


@dataclass(frozen=True, slots=True)
class Entries:
    """``above``: the entry above each (-1: root); ``row``: its event (-1: a root that is no event); ``device_ns``:
    device time of each with everything below; ``top``: row of ``tops`` of each root (-1: no root), shape (entries,).
    ``tops``: name and groupings of the distinct roots. The first ``host`` entries are host events."""

    above: IntArray
    row: IntArray
    device_ns: IntArray
    top: IntArray
    tops: pd.DataFrame
    host: int

    def keys(self, trace: Trace) -> IntArray:
        """Equal for entries that are one row of the tree when they are below the same one, shape (entries,)."""
        names, kinds = overloads.operator_names(trace), trace.codes("kind")
        below = names.codes[self.row].astype(np.int64) * len(kinds.values) + kinds.codes[self.row]
        return np.where(self.top == NO_ROW, len(self.tops) + below, self.top)


def entries(trace: Trace, request: ViewRequest) -> Entries:
    """Operators with all below them, then device work that no operator owns. Raises UsageError."""
    found = members(trace, request)
    owned, alone = _of_operators(trace, request, found), _alone(trace, request)
    offset, tops = len(owned.row), len(owned.tops)
    return Entries(
        np.concatenate([owned.above, np.where(alone.above == NO_ROW, NO_ROW, alone.above + offset)]),
        np.concatenate([owned.row, alone.row]),
        np.concatenate([owned.device_ns, alone.device_ns]),
        np.concatenate([owned.top, np.where(alone.top == NO_ROW, NO_ROW, alone.top + tops)]),
        pd.concat([owned.tops, alone.tops], ignore_index=True) if len(alone.tops) else owned.tops,
        owned.host,
    )


def _of_operators(trace: Trace, request: ViewRequest, found: Members) -> Entries:
    shown = found.root | found.inner
    host = np.flatnonzero(shown)
    position = np.full(len(trace) + 1, NO_ROW, np.int64)
    position[host] = np.arange(len(host))
    roots = group(keys(trace, request, np.flatnonzero(found.root)))
    top = np.full(len(host) + len(found.work), NO_ROW)
    top[np.flatnonzero(found.root[host])] = roots.code
    return Entries(
        np.concatenate([position[nesting.nearest_above(found.parent, shown)[host]], position[found.holder]]),
        np.concatenate([host, found.work]),
        np.concatenate([attribution.total_device_ns(trace)[host], trace.ints("dur_ns")[found.work]]),
        top,
        plain(roots.keys),
        len(host),
    )


def _alone(trace: Trace, request: ViewRequest) -> Entries:
    """One root a reason (and grouping), the device work below it."""
    reasons = unowned(trace, request)
    rows = np.concatenate([_EMPTY, *reasons.values()])
    name = np.repeat(np.array(list(reasons), object), [len(each) for each in reasons.values()])
    roots = group({"name": name} | grouping.keys(trace, request, rows, GROUPINGS))
    count, dur_ns = len(roots), trace.ints("dur_ns")[rows]
    return Entries(
        np.concatenate([np.full(count, NO_ROW), roots.code]),
        np.concatenate([np.full(count, NO_ROW), rows]),
        np.concatenate([roots.sum(dur_ns), dur_ns]),
        np.concatenate([np.arange(count), np.full(len(rows), NO_ROW)]),
        plain(roots.keys),
        0,
    )


_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Members:
    """``root`` and ``inner`` host events (``inner`` without the roots), and ``parent``, which ends at the roots, of
    shape (rows,); ``work``: rows of the device work below them, and ``holder``: the host row that each hangs on."""

    root: BoolArray
    inner: BoolArray
    parent: IntArray
    work: IntArray
    holder: IntArray


def members(trace: Trace, request: ViewRequest) -> Members:
    """The events of the tree. Raises UsageError.

    Ours: the outermost operators are the roots; below each what it contains (nested operators, recorded details), and
    the device work under the innermost of them around its launch. Natively (Paddle's Operator Summary) every operator
    is a root, nested ones too; below are its direct children that are no operators, and what these or it launched
    themselves.
    """
    root, inner = (_native if request.native else _ours)(trace, chosen(trace, request))
    parent = np.where(root, NO_ROW, trace.ints("parent"))
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW))
    shown = root | inner
    holder = owner[work] if request.native else nesting.nearest_on_path(parent, shown)[owner[work]]
    kept = (holder != NO_ROW) & shown[holder]
    return Members(root, inner, parent, work[kept], holder[kept])


def _ours(trace: Trace, counted: BoolArray) -> tuple[BoolArray, BoolArray]:
    operators = trace.host & trace.rows("kind", *OPERATOR_KINDS) & is_call(trace)
    parent, root = trace.ints("parent"), operators & counted
    root &= ~nesting.lies_in(parent, root)
    inside = nesting.lies_in(parent, root)
    return root, inside & (operators | (trace.host & trace.rows("kind", OPERATOR_DETAIL)))


def _native(trace: Trace, counted: BoolArray) -> tuple[BoolArray, BoolArray]:
    operators, parent = trace.host & trace.rows("kind", OPERATOR), trace.ints("parent")
    root = operators & counted
    others = trace.host & trace.rows("kind", *(NESTED_KINDS - {OPERATOR, RUNTIME, SYNC}))
    return root, others & (parent != NO_ROW) & root[parent]


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
    explain_empty=lambda trace: message("no operators were recorded"),
    native=True,
    reduction=MergedRows(weight=("total_cpu_ns", "total_device_ns"), finish=_roots_of_a_group),
)
