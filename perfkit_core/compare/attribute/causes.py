"""The causes of a difference in the order of their size, and the difference by layer, family and kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.compare.attribute.attribute import with_effects
from perfkit_core.compare.attribute.leaves import BEFORE, NO_LAYER, OUTSIDE, UNLAUNCHED, bare
from perfkit_core.language.messages import mark, say


def label(row: Mapping[Any, Any]) -> str:
    """A cause as people read it: ``matmul, forward, on the device``. ``row`` of
    :func:`~perfkit_core.compare.attribute.causes.causes`."""
    parts = (_subject(row), _phase(row["phase"], row["category"]), _where(row["category"]))
    return say(", ").join(part for part in dict.fromkeys(parts) if part)


def _subject(row: Mapping[Any, Any]) -> str:
    name, family = row["operator"], row["family"]
    if name == UNLAUNCHED and family:
        return say("{family} without a recorded launch", family=_spaced(bare(family)))
    if name == OUTSIDE and family not in ("", OUTSIDE):
        return say("{family} outside operators", family=_spaced(bare(family)))
    return _said(name)


def _said(name: str) -> str:
    """A name in parentheses as words; what an operator or event is called stays as it is."""
    if name.startswith(BEFORE):
        return say("nothing recorded before {name}", name=bare(name).removeprefix(BEFORE[1:]))
    if name == OUTSIDE:
        return say("outside operators")
    return bare(say(name)) if name.startswith("(") else name


def _phase(name: str, category: str) -> str:
    words = {
        "forward": say("forward"),
        "backward": say("backward"),
        "optimizer": say("optimizer"),
        "dataloader": "" if category == "input_wait" else say("data loading"),
    }
    return words.get(name, "")


def _where(category: str) -> str:
    where = {
        "device_compute": say("on the device"),
        "exposed_communication": say("exposed communication"),
        "exposed_copy": say("exposed copy"),
        "input_wait": say("waiting for input"),
        "launch_and_host": say("on the host"),
        "compute": "",  # without devices all is on the host
        "framework": "",
        "idle": "",  # the name says that nothing was recorded
    }
    return where.get(category, _spaced(bare(say(category))))


def _spaced(name: str) -> str:
    return name.replace("_", " ")


TIMES: Final = ("base_ns", "other_ns", "difference_ns")
SUMMED: Final = (*TIMES, "count_effect_ns", "per_call_effect_ns")
REST: Final = mark("everything else")
End = tuple[str, int]
_PARTS: Final = ("category", "phase", "layer", "family", "operator")


def causes(attribution: pd.DataFrame) -> pd.DataFrame:
    """Of the tree of :func:`~perfkit_core.compare.attribute.attribute`, the operators over all layers, largest
    differences first: operator, category, place, phase, family, base_calls, other_calls (a step; missing outside of
    operators), base_ns, other_ns, difference_ns, count_effect_ns, per_call_effect_ns (by the calls and times of the
    row), explained_ratio (of the difference, this row and those before it). They sum to the difference."""
    keys = ["operator", "category", "place", "phase", "family"]
    if attribution.empty:
        return pd.DataFrame(columns=[*keys, "base_calls", "other_calls", *SUMMED, "explained_ratio"])
    rows = with_path(attribution)
    numbers = ["base_calls", "other_calls", *TIMES]
    grouped = rows.groupby(keys, sort=False, dropna=False)
    table = grouped[numbers].sum(min_count=1).reset_index().astype(dict.fromkeys(TIMES, np.int64))
    return explained(largest_first(with_effects(table), keys))


def waterfall(found: pd.DataFrame, first: End, last: End, shown: int) -> pd.DataFrame:
    """The largest ``shown`` causes between two ends, each a name and its ns: name, difference_ns (missing for the
    ends), time_so_far_ns (with this cause and those before it). No rows where nothing differs."""
    differing = found[found["difference_ns"] != 0]
    if differing.empty:
        return pd.DataFrame(columns=["name", "difference_ns", "time_so_far_ns"])
    largest = differing.head(shown)
    names, differences = [label(row) for row in largest.to_dict("records")], largest["difference_ns"].tolist()
    if len(differing) > shown:
        names.append(say(REST))
        differences.append(int(differing["difference_ns"].iloc[shown:].sum()))
    reached = [first[1], *(first[1] + np.cumsum(differences)).tolist(), last[1]]
    steps = pd.array([pd.NA, *differences, pd.NA], "Int64")
    return pd.DataFrame({"name": [first[0], *names, last[0]], "difference_ns": steps, "time_so_far_ns": reached})


def with_path(attribution: pd.DataFrame, wanted: str = "operator") -> pd.DataFrame:
    """The rows of a level, with the names above them in a column each ("": none); of operators also categories without
    any."""
    parent, level = attribution["parent"].to_numpy(np.int64), attribution["level"].to_numpy(object)
    inner = np.zeros(len(parent), np.bool_)
    inner[parent[parent >= 0]] = True
    chosen = (level == wanted) | ((level == "category") & ~inner & (wanted == "operator"))
    columns, names = {}, attribution["name"].to_numpy(object)
    for part in _PARTS:
        nearest = np.maximum.accumulate(np.where(level == part, np.arange(len(level)), -1)) if len(level) else parent
        top = np.maximum.accumulate(np.where(level == "category", np.arange(len(level)), 0)) if len(level) else parent
        columns[part] = np.where(nearest >= top, names[nearest], "") if len(level) else names
    table: pd.DataFrame = attribution.assign(**columns)[chosen].reset_index(drop=True)
    table["operator"] = table["operator"].where(table["operator"] != "", table["category"])
    return table


def largest_first(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The rows by the size of difference_ns; equal ones by their keys."""
    order = table.assign(size=table["difference_ns"].abs()).sort_values(
        ["size", *keys], ascending=[False, *[True] * len(keys)], kind="stable"
    )
    ordered: pd.DataFrame = order.drop(columns="size").reset_index(drop=True)
    return ordered


def explained(table: pd.DataFrame) -> pd.DataFrame:
    """With explained_ratio: what the rows add up to so far, by the whole difference_ns (missing where that is 0)."""
    whole = int(table["difference_ns"].sum())
    passed = table["difference_ns"].cumsum().to_numpy(np.float64) / (whole or 1)
    return table.assign(explained_ratio=pd.arrays.FloatingArray(passed, np.full(len(table), whole == 0)))


KERNEL = "kernel"


def by_layer(attribution: pd.DataFrame) -> pd.DataFrame:
    """The sums of each layer: layer, then times, effects and explained_ratio as of
    :func:`~perfkit_core.compare.attribute.causes.causes`. No rows where not both runs have layers."""
    rows = with_path(attribution)
    if "layer" not in rows or rows["layer"].isin([NO_LAYER, ""]).all():
        return pd.DataFrame(columns=["layer", *SUMMED, "explained_ratio"])
    rows["layer"] = rows["layer"].replace("", NO_LAYER)
    return _sums(rows, ["layer"])


def by_family(attribution: pd.DataFrame) -> pd.DataFrame:
    """The sums of the causes of each family and place, as of
    :func:`~perfkit_core.compare.attribute.causes.causes`; what has no family is called by its category."""
    if attribution.empty:
        return pd.DataFrame(columns=["family", "place", *SUMMED, "explained_ratio"])
    rows = causes(attribution)
    rows["family"] = rows["family"].where(rows["family"] != "", rows["category"])
    return _sums(rows, ["family", "place"])


def by_kernel(attribution: pd.DataFrame) -> pd.DataFrame:
    """Kernels and copies over all phases, layers and operators: kernel, family, base_calls, other_calls (a step),
    base_ns, other_ns (that nothing before them hides), difference_ns. No rows where no device work was recorded."""
    columns = ["kernel", "family", "base_calls", "other_calls", "base_ns", "other_ns", "difference_ns"]
    if attribution.empty or not (attribution["level"] == KERNEL).any():
        return pd.DataFrame(columns=columns)
    rows = with_path(attribution, KERNEL)
    table = rows.groupby(["name", "family"], sort=False)[columns[2:]].sum().reset_index()
    return largest_first(table.rename(columns={"name": "kernel"}), ["kernel", "family"])


def _sums(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    table = rows.groupby(keys, sort=False, dropna=False)[list(SUMMED)].sum().reset_index()
    return explained(largest_first(table.astype(dict.fromkeys(SUMMED, np.int64)), keys))
