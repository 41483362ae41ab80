"""Tables that explain the difference between two runs, with one row per cause, layer, family or kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import mark, say
from perfkit_core.causes.host_work import LAUNCHING, OPERATORS, UNRECORDED
from perfkit_core.causes.segments import COMMUNICATION, COMPUTE, COPY, HOST
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN, with_effects
from perfkit_core.compare.attribute.leaves import NO_LAYER, OUTSIDE, TRANSLATED, UNLAUNCHED, bare
from perfkit_core.compare.pieces import BUSY, HELD, PHRASES

TIMES: Final = ("base_ns", "other_ns", "difference_ns")
SUMMED: Final = (*TIMES, "count_effect_ns", "per_call_effect_ns")
REST: Final = mark("everything else")
KERNEL: Final = "kernel"
End = tuple[str, int]
_PARTS: Final = ("category", "phase", "layer", "family", "operator")
_PHASES: Final = {
    "forward": mark("forward"),
    "backward": mark("backward"),
    "optimizer": mark("optimizer"),
    "dataloader": mark("data loading"),
}
_NOTHING: Final = mark("nothing recorded")
_PLACES: Final = {
    COMPUTE: mark("on the device"),
    COMMUNICATION: mark("exposed communication"),
    COPY: mark("exposed copy"),
    HOST: mark("on the host"),
}
_UNLIKE: Final = 0.1
"""Shares of device time that operators launched are unlike if they differ by more than this."""
_MAINLY: Final = 0.5
"""Least share of the difference of a kind of host work that an operator or event has whose name is said."""


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


def of_operators(causes: pd.DataFrame) -> tuple[float, float] | None:
    """Return the share of the devices' time in base and other that operators launched, None if a device worked in one
    run only. ``causes`` are the rows of :func:`causes`."""
    busy = causes[causes["category"].isin(BUSY)]
    inside = busy[~busy["operator"].isin([OUTSIDE, UNLAUNCHED])]
    total, launched = (rows[["base_ns", "other_ns"]].sum().tolist() for rows in (busy, inside))
    return (launched[0] / total[0], launched[1] / total[1]) if all(total) else None


def unlike(shares: tuple[float, float] | None) -> bool:
    """Return whether operators cannot be compared, because those of one run launched much more than those of the
    other."""
    return shares is not None and abs(shares[0] - shares[1]) > _UNLIKE


def by_layer(attribution: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per layer. It is empty unless both runs have layers. Columns: layer, and the columns
    of :func:`causes` from base_ns to explained_ratio."""
    rows = attribution if attribution.empty else with_path(attribution)
    if rows.empty or rows["layer"].isin([NO_LAYER, ""]).all():
        return pd.DataFrame(columns=["layer", *SUMMED, "explained_ratio"])
    rows["layer"] = rows["layer"].replace("", NO_LAYER)
    return _sums(rows, ["layer"])


def by_family(causes: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per family and place (device or host) of the rows of :func:`causes`. Columns: family
    (the category if there is no family), place, and those of the causes from base_ns to explained_ratio."""
    family = causes["family"].where(causes["family"] != "", causes["category"])
    return _sums(causes.assign(family=family), ["family", "place"])


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
    """Return the ``causes`` of ``trees`` as a person would name them, those with the largest differences first. A kind
    of host work is one cause for each phase, and data loading is one cause. The part that is no cause, the difference
    between median and mean, is left out, and so is what does not differ.

    Columns: name; operator; category; place; difference_ns, and those of base_ns, other_ns, base_calls, other_calls
    that ``causes`` has.
    """
    names = list(labels(causes, trees))
    # Where the launches of a family were recorded in one run only, its kernels are not another cause.
    launched = causes[(causes["operator"] != UNLAUNCHED) & causes["category"].isin(BUSY)]
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
    main = _main_parts(trees)
    for row in causes.to_dict("records"):
        category, family, operator = row["category"], bare(row["family"]).replace("_", " "), row["operator"]
        place = _PLACES.get(category, "")
        if row["family"] == UNRECORDED:
            subject = say(_NOTHING)
        elif category in HELD:
            subject, part = say(row["family"]), main.get((row["family"], row["phase"]))
            if part is not None and row["family"] != LAUNCHING:
                subject = say("{subject} (mainly {function})", subject=subject, function=part)
        elif category not in BUSY:
            subject = bare(say(PHRASES.get(category, category)))
        elif operator == UNLAUNCHED:
            subject = say("{family} without a recorded launch", family=family)
        elif operator == OUTSIDE and row["family"] not in TRANSLATED:
            subject = say("{family} outside operators", family=family)
        else:  # Names of operators are not translated.
            subject = bare(say(operator)) if operator in TRANSLATED else operator
        if category == COMPUTE and row["place"] != "device":
            place = ""
        phase = _PHASES.get(row["phase"], "") if category in (*BUSY, *HELD) else ""
        if row["family"] == UNRECORDED:
            phase = place = ""
        yield say(", ").join(part for part in (subject, phase and say(phase), place and say(place)) if part)


def _main_parts(trees: Sequence[pd.DataFrame]) -> dict[tuple[str, str], str]:
    """Return the operator or event that has most of the difference of each kind of host work and phase. The parts of
    time in operators are operators, and all others are events."""
    parts: dict[tuple[str, str], str] = {}
    if len(trees) != 1 or "parent" not in trees[0]:
        return parts
    for level in ("operator", "event"):
        rows = with_path(trees[0], level)
        named = rows["category"].isin(HELD) & (rows["name"] != rows["family"])
        rows = rows[named & ((rows["family"] == OPERATORS) == (level == "operator"))]
        sums = rows.groupby(["family", "phase", "name"], sort=False)["difference_ns"].sum()
        whole = sums.groupby(["family", "phase"]).transform("sum")
        main = sums[(sums * np.sign(whole) >= _MAINLY * whole.abs()) & (whole != 0)]
        for (family, phase, name), _ in main.sort_values(kind="stable", key=lambda ns: -ns.abs()).items():
            parts.setdefault((family, phase), name)
    return parts
