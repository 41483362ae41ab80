"""Tables that explain the difference between two runs, with one row per cause, layer, family or kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import mark, say
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN, with_effects
from perfkit_core.compare.attribute.leaves import (
    NO_LAYER,
    OUTSIDE,
    PYTHON_CODE,
    TRANSLATED,
    UNLAUNCHED,
    bare,
    nothing_before,
)
from perfkit_core.compare.slices import EXCLUSIVE

TIMES: Final = ("base_ns", "other_ns", "difference_ns")
SUMMED: Final = (*TIMES, "count_effect_ns", "per_call_effect_ns")
REST: Final = mark("everything else")
_LOADING: Final = mark("waiting for data")
_NOTHING: Final = mark("nothing recorded")
KERNEL: Final = "kernel"
End = tuple[str, int]
_PARTS: Final = ("category", "phase", "layer", "family", "operator")
_PHASES: Final = {
    "forward": mark("forward"),
    "backward": mark("backward"),
    "optimizer": mark("optimizer"),
    "dataloader": mark("data loading"),
}
_PLACES: Final = {
    "device_compute": mark("on the device"),
    "exposed_communication": mark("exposed communication"),
    "exposed_copy": mark("exposed copy"),
    "input_wait": mark("waiting for input"),
    "launch_and_host": mark("on the host"),
    "compute": "",  # Only runs without device work have this category. All time is on the host, so no place is named.
    "framework": "",
    "idle": "",  # Idle causes are named "nothing recorded before matmul", for example, so they need no place.
}


def causes(attribution: pd.DataFrame) -> pd.DataFrame:
    """Return the causes of a difference, the largest first. The rows sum to the difference.

    A cause is an operator of the tree ``attribution``, summed over layers. Columns: operator, category, place, phase,
    family, and the columns of the tree from base_calls to explained_ratio.
    """
    keys = ["operator", "category", "place", "phase", "family"]
    if attribution.empty:
        return pd.DataFrame(columns=[*keys, "base_calls", "other_calls", *SUMMED, "explained_ratio"])
    grouped = with_path(attribution).groupby(keys, sort=False, dropna=False)
    numbers = ["base_calls", "other_calls", *TIMES]
    table = grouped[numbers].sum(min_count=1).reset_index().astype(dict.fromkeys(TIMES, np.int64))
    return explained(largest_first(with_effects(table), keys))


def by_layer(attribution: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per layer. It is empty unless both runs have layers. Columns: layer, and the columns
    of :func:`causes` from base_ns to explained_ratio."""
    rows = attribution if attribution.empty else with_path(attribution)
    if rows.empty or rows["layer"].isin([NO_LAYER, ""]).all():
        return pd.DataFrame(columns=["layer", *SUMMED, "explained_ratio"])
    rows["layer"] = rows["layer"].replace("", NO_LAYER)
    return _sums(rows, ["layer"])


def by_family(attribution: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per family and place (device or host). Columns: family (the category if there is no
    family), place, and the columns of :func:`causes` from base_ns to explained_ratio."""
    if attribution.empty:
        return pd.DataFrame(columns=["family", "place", *SUMMED, "explained_ratio"])
    rows = causes(attribution)
    rows["family"] = rows["family"].where(rows["family"] != "", rows["category"])
    return _sums(rows, ["family", "place"])


def by_kernel(attribution: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per kernel, memcpy or memset. Without device work, the table is empty. Columns:
    kernel, family, base_calls and other_calls (per step), base_ns, other_ns, difference_ns."""
    columns = ["kernel", "family", "base_calls", "other_calls", *TIMES]
    if attribution.empty or not (attribution["level"] == KERNEL).any():
        return pd.DataFrame(columns=columns)
    rows = with_path(attribution, KERNEL)
    table = rows.groupby(["name", "family"], sort=False)[columns[2:]].sum().reset_index()
    return largest_first(table.rename(columns={"name": "kernel"}), ["kernel", "family"])


def with_path(attribution: pd.DataFrame, tree_level: str = "operator") -> pd.DataFrame:
    """Return the rows of the tree on the level ``tree_level``. If it is "operator", categories without children are
    also returned. Five columns are added: category, phase, layer, family, operator.

    For example, the column layer contains the name of the layer to which the row belongs. If the row belongs to no
    layer, the column contains "". If the row belongs to no operator, the column operator contains its category."""
    parent, level = attribution["parent"].to_numpy(np.int64), attribution["level"].to_numpy(object)
    names, rows = attribution["name"].to_numpy(object), np.arange(len(level))
    inner = np.zeros(len(parent), np.bool_)
    inner[parent[parent >= 0]] = True
    chosen = (level == tree_level) | ((level == "category") & ~inner & (tree_level == "operator"))
    # In preorder, descendants follow their ancestor. So the ancestor of a row on a level is the last earlier row of
    # this level. If this earlier row is in another category, it is not an ancestor, and the column holds "".
    top = np.maximum.accumulate(np.where(level == "category", rows, 0))
    columns = {}
    for part in _PARTS:
        nearest = np.maximum.accumulate(np.where(level == part, rows, -1))
        columns[part] = np.where(nearest >= top, names[nearest], "")
    table: pd.DataFrame = attribution.assign(**columns)[chosen].reset_index(drop=True)
    table["operator"] = table["operator"].where(table["operator"] != "", table["category"])
    return table


def _sums(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    table = rows.groupby(keys, sort=False, dropna=False)[list(SUMMED)].sum().reset_index()
    return explained(largest_first(table.astype(dict.fromkeys(SUMMED, np.int64)), keys))


def largest_first(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Sort the rows by the absolute value of difference_ns, the largest first. Ties are sorted by their keys."""
    order = table.assign(size=-table["difference_ns"].abs()).sort_values(["size", *keys], kind="stable")
    ordered: pd.DataFrame = order.drop(columns="size").reset_index(drop=True)
    return ordered


def explained(table: pd.DataFrame) -> pd.DataFrame:
    """Add the column explained_ratio: the cumulative sum of difference_ns, divided by the total (missing if 0)."""
    total = int(table["difference_ns"].sum())
    share = table["difference_ns"].cumsum().to_numpy(np.float64) / (total or 1)
    return table.assign(explained_ratio=pd.arrays.FloatingArray(share, np.full(len(table), total == 0)))


def waterfall(changes: pd.DataFrame, first: End, last: End, shown: int) -> pd.DataFrame:
    """Return the rows of a waterfall chart: the total ``first``, the ``shown`` largest ``changes``
    (:func:`grouped`), one row for everything else, and the total ``last``. A total is a name and a time in ns. There
    are no rows without changes.

    Columns: name; difference_ns, missing for totals; time_so_far_ns, ``first`` plus the differences up to this row.
    """
    if changes.empty:
        return pd.DataFrame(columns=["name", "difference_ns", "time_so_far_ns"])
    largest = changes.head(shown)
    names, differences = largest["name"].tolist(), largest["difference_ns"].tolist()
    rest = last[1] - first[1] - sum(differences)
    if rest or len(changes) > shown:
        names.append(say(REST))
        differences.append(rest)
    reached = [first[1], *(first[1] + np.cumsum(differences)).tolist(), last[1]]
    steps = pd.array([pd.NA, *differences, pd.NA], "Int64")
    return pd.DataFrame({"name": [first[0], *names, last[0]], "difference_ns": steps, "time_so_far_ns": reached})


def grouped(causes: pd.DataFrame, trees: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the ``causes`` of ``trees`` as a person would name them, those with the largest differences first. Data
    loading is one cause, and so is time in which nothing was recorded. The part that is no cause, the difference
    between median and mean, is left out, and so is what does not differ.

    Columns: name; operator; category; place; difference_ns, and those of base_ns, other_ns, base_calls, other_calls
    that ``causes`` has.
    """
    names = [
        say(_LOADING) if category == "input_wait" else say(_NOTHING) if category == "idle" else label
        for label, category in zip(labels(causes, trees), causes["category"], strict=True)
    ]
    # Where the launches of a family were recorded in one run only, its kernels are not another cause.
    launched = causes[(causes["operator"] != UNLAUNCHED) & causes["category"].isin(EXCLUSIVE)]
    of_family = dict(
        zip(launched["family"][::-1], pd.Series(names, causes.index, object)[launched.index][::-1], strict=True)
    )
    names = [
        of_family.get(family, name) if operator == UNLAUNCHED else name
        for name, operator, family in zip(names, causes["operator"], causes["family"], strict=True)
    ]
    numbers = [name for name in ("base_ns", "other_ns", "difference_ns", "base_calls", "other_calls") if name in causes]
    rows = causes.assign(name=pd.Series(names, causes.index, object))[causes["category"] != BESIDE_MEDIAN]
    sums = rows.groupby("name", sort=False).agg(
        {"operator": "first", "category": "first", "place": "first", **dict.fromkeys(numbers, "sum")}
    )
    table = largest_first(sums.reset_index(), ["name"])
    return table[table["difference_ns"] != 0].reset_index(drop=True)


def labels(causes: pd.DataFrame, trees: Sequence[pd.DataFrame]) -> Iterator[str]:
    """Yield the labels of the ``causes`` of ``trees``, such as ``matmul, forward, on the device``."""
    # Idle time is named after the next operator or event, which is a row of the same tree.
    following = {nothing_before(name): bare(name) for tree in trees for name in tree["name"].unique()}
    functions = _functions(trees)
    for row in causes.to_dict("records"):
        name, category = row["operator"], row["category"]
        family = bare(row["family"]).replace("_", " ")
        if name == UNLAUNCHED and family:
            subject = say("{family} without a recorded launch", family=family)
        elif name == OUTSIDE and row["family"] not in ("", OUTSIDE):
            subject = say("{family} outside operators", family=family)
        elif name == OUTSIDE:
            subject = say("outside operators")
        elif name in TRANSLATED or name == BESIDE_MEDIAN:
            subject = bare(say(name))
            function = functions.get((category, row["phase"])) if name == PYTHON_CODE else None
            subject = say("{subject} (mainly {function})", subject=subject, function=function) if function else subject
        else:  # Names of operators are not translated.
            subject = say("nothing recorded before {name}", name=following[name]) if name in following else name
        phase = "" if row["phase"] == "dataloader" and category == "input_wait" else _PHASES.get(row["phase"], "")
        suffix = _PLACES.get(category)
        suffix = bare(say(category)).replace("_", " ") if suffix is None else suffix and say(suffix)
        yield say(", ").join(part for part in dict.fromkeys((subject, phase and say(phase), suffix)) if part)


def _functions(trees: Sequence[pd.DataFrame]) -> dict[tuple[str, str], str]:
    """Return the Python function with the largest difference of each category and phase."""
    found: dict[tuple[str, str], str] = {}
    if len(trees) != 1 or PYTHON_CODE not in set(trees[0]["name"]) or "parent" not in trees[0]:
        return found
    events = with_path(trees[0], "event")
    events = largest_first(events[(events["operator"] == PYTHON_CODE) & (events["difference_ns"] != 0)], ["name"])
    for category, phase, name in zip(events["category"], events["phase"], events["name"], strict=True):
        found.setdefault((category, phase), name)
    return found
