"""Which columns of a view tell its rows apart, and what does a grouping call its columns?"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import pandas as pd

from perfkit_core.plugins.contracts import split_grouping

COLUMNS: Final = {
    "shape": ("shapes",),
    "thread": ("tid",),
    "launch": ("grid", "block", "registers", "shared_bytes", "occupancy_ratio"),
}
"""Grouping → its columns, where they are not called like it."""

_NUMBERS: Final = ("depth", "rank", "step", "tid", "stream", "node", "line", "before", "after")
"""Numbers that name something; all others measure."""

_MEASURE: Final = re.compile(r"_(ns|bytes|ratio|per_s)$|^(calls|steps|bytes|flops)$")
"""Measures by their name: a column without values may have no type."""

_DESCRIPTIONS: Final = ("op_name", "class", "product", "file", "line", "function", "phase", "module", "step",
                        "tid")  # fmt: skip
"""What is told of a named row, but does not tell it from others unless rows are split by it."""


def called(name: str, columns: Collection[str]) -> tuple[str, ...]:
    """Those of ``columns`` that ``name`` means: the one of this name, or those of the grouping of this name."""
    if name in columns:
        return (name,)
    return tuple(column for column in COLUMNS.get(name, ()) if column in columns)


def keys(table: pd.DataFrame, by: Sequence[str] = ()) -> list[str]:
    """What comes before the first measure and tells rows apart: the name, and the columns of the groupings ``by``."""
    asked = [column for item in by for column in called(split_grouping(item)[0], table.columns)]
    leading: list[str] = []
    for name in map(str, table.columns):
        if _measures(table, name) and name not in (*_NUMBERS, *asked):
            break
        leading.append(name)
    described = _DESCRIPTIONS if "name" in leading else ()
    return [name for name in leading if name in asked or name not in described]


def _measures(table: pd.DataFrame, name: str) -> bool:
    return pd.api.types.is_numeric_dtype(table[name]) or _MEASURE.search(name) is not None
