"""The things of a recording that belong together: operators, kernels, layers, lines of code and advice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.replay import critical_path
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.report_data import Links, Marks
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import code, grouping
from perfkit_core.views.user_code import Owner, owner_of

MOST: Final = 12
"""A pair is kept if it is among this many pairs with most time of either of its two things."""


class Entities(NamedTuple):
    """The things of one kind. ``code`` is the index in ``names`` of the thing of each row; -1 if there is none."""

    names: list[str]
    code: IntArray


@once
def entities(trace: Trace) -> dict[str, Entities]:
    """Return the operator, kernel, layer and frame of each event, by the kind of thing.

    Device work belongs to the operator, layer and frame of its launch. ``user_code`` has the innermost frame outside
    the framework and other packages, ``code`` the innermost frame of any file."""
    launch = trace.ints("launched_by")
    host = np.where(launch == NO_ROW, np.arange(len(trace)), launch)
    operator = np.append(nesting.nearest_on_path(trace.ints("parent"), trace.operators), NO_ROW)[host]
    name, module = trace.codes("name"), trace.codes("module")
    layer = np.append(module.codes, -1)
    layer = np.where(layer[host] >= 0, layer[host], layer[operator])  # a launch may have no layer of its own
    by_kind = {
        "operator": Entities(name.values, np.append(name.codes, -1)[operator].astype(np.int64)),
        "kernel": Entities(name.values, np.where(trace.rows("kind", KERNEL), name.codes, -1).astype(np.int64)),
        "module": Entities(module.values, layer.astype(np.int64)),
    }
    everything = np.ones(len(trace), np.bool_)
    if grouping.is_frame(trace).any():
        frames = code.tree_of_frames(trace, everything)
    elif trace.has_values("stack"):
        frames = code.tree_of_stacks(trace, everything)
    else:
        return by_kind
    tree, parts = frames.tree, code.split_names(frames.names)
    files = parts["file"].fillna("<").unique().tolist()
    user_files = {file for file in files if file != "<" and owner_of(file, trace.meta.framework) is Owner.USER}
    number, names = pd.factorize(parts["name"].to_numpy(object))
    for kind, mask in (("user_code", parts["file"].isin(user_files)), ("code", parts["file"].notna())):
        nearest = np.append(nesting.nearest_on_path(tree.parent, mask.to_numpy(np.bool_)[tree.key]), NO_ROW)
        key = np.append(tree.key, NO_ROW)[nearest[tree.node[host]]]
        by_kind[kind] = Entities(names.tolist(), np.append(number, -1)[key].astype(np.int64))
    return by_kind


def marks(trace: Trace, advice: Mapping[str, IntArray]) -> Marks:
    """Return the events of each layer, frame and item of advice, and those on the critical paths. ``advice`` maps ids
    to the rows of the pattern."""
    by_kind: dict[str, Mapping[str, IntArray]] = {"advice": advice, "path": critical_path.marks(trace)}
    for kind in ("module", "code"):
        if kind in entities(trace) and entities(trace)[kind].names:
            names, number = entities(trace)[kind]
            rows = np.flatnonzero(number >= 0)
            rows = rows[np.argsort(number[rows], kind="stable")]
            ends = np.cumsum(np.bincount(number[rows], minlength=len(names)))
            by_kind[kind] = dict(zip(names, np.split(rows, ends[:-1]), strict=True))
    return by_kind


def links(trace: Trace, advice: Mapping[str, IntArray]) -> Links:
    """Return the pairs of things that events have in common, for each two kinds."""
    time = np.where(trace.host, np.maximum(trace.ints("self_ns"), 0), trace.ints("dur_ns"))
    kinds, pairs_of = entities(trace), {}
    for first, second in combinations(kinds, 2):
        if {first, second} != {"code", "user_code"}:
            pairs_of[first, second] = _pairs(kinds[first], kinds[second], time)
    rows = np.concatenate([np.zeros(0, np.int64), *advice.values()])
    about = Entities(list(advice), np.repeat(np.arange(len(advice)), [len(of_one) for of_one in advice.values()]))
    for kind, (names, number) in kinds.items():
        pairs_of["advice", kind] = _pairs(about, Entities(names, number[rows]), time[rows])
    merged: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for (first, second), pairs in pairs_of.items():
        unique = merged.setdefault((first.removeprefix("user_"), second.removeprefix("user_")), {})
        unique.update(dict.fromkeys(pairs))
    return {key: tuple(pairs) for key, pairs in merged.items() if pairs}


def _pairs(first: Entities, second: Entities, time: IntArray) -> list[tuple[str, str]]:
    both = (first.code >= 0) & (second.code >= 0)
    events = pd.DataFrame({"first": first.code[both], "second": second.code[both], "time": time[both]})
    sums = events.groupby(["first", "second"], sort=False)["time"].sum().sort_values(ascending=False, kind="stable")
    pairs = sums.index.to_frame(index=False)
    near = [pairs.groupby(side, sort=False).cumcount() < MOST for side in ("first", "second")]
    closest = pairs[near[0] | near[1]]
    return [(first.names[left], second.names[right]) for left, right in closest.itertuples(index=False)]
