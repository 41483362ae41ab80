"""On which level does each item of one run meet items of the other? The first one on which it does."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.compare.align.items import KEYS, MEASURES, PRODUCT

UNMATCHED: Final = "unmatched"
LEVELS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "layer": (("layer", "operator", "phase"), ("layer", "family", "phase"), ("layer", "phase")),
    "operator_shape": (("operator", "shape", "dtype", "phase"), ("operator", "shape", "phase")),
    "operator": (("operator", "phase"), (PRODUCT, "phase")),
    "family_phase": (("family", "phase"),),
    "family": (("family",),),
}
"""Level → what items must have in common, one after the other; each leaves what it cannot match to the next."""
_WHOLE: Final = (("layer", "phase"), (PRODUCT, "phase"))
"""Where an item also meets what has met others before: the time of a layer corresponds as a whole, and a bias that one
side adds to the product of the other. Elsewhere it would hide that one side has more: one layer more, say."""

SIDES: Final = ("base", "other")
PAIRS: Final = [f"{side}_{measure}" for measure in MEASURES for side in SIDES]


def meet(base: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Rows of what was matched (level, the keys that they share, {side}_calls, {side}_cpu_ns, {side}_device_ns) and, at
    level ``unmatched``, of what was not; and for each side the level of each of its items."""
    sides = (base, other)
    found = tuple(np.full(len(side), UNMATCHED, object) for side in sides)
    tables = []
    for level, ways in LEVELS.items():
        for keys in ways:
            left = [_open(side, of, keys) for side, of in zip(sides, found, strict=True)]
            common = _common([side[_known(side, keys)] for side in sides] if keys in _WHOLE else left, keys)
            tables.append(_row_each(left, common, keys, level))
            for of, side in zip(found, left, strict=True):
                of[side.index[_member(side, common, keys)]] = level
    left = [side[of == UNMATCHED] for side, of in zip(sides, found, strict=True)]
    keys = ("layer", "operator", "phase", "family")
    tables += [_one_side(side, keys, name) for side, name in zip(left, SIDES, strict=True)]
    rows = pd.concat([table for table in tables if len(table)] or tables[-1:], ignore_index=True)
    return rows[["level", *KEYS, *PAIRS]], (found[0], found[1])


def _open(side: pd.DataFrame, level: np.ndarray, keys: tuple[str, ...]) -> pd.DataFrame:
    """What is not matched yet, and has all keys; by its product only what serves one."""
    wanted = _known(side, keys) & (level == UNMATCHED)
    if PRODUCT in keys:
        wanted &= side["operator"] != side[PRODUCT]
    found: pd.DataFrame = side[wanted]
    return found


def _known(side: pd.DataFrame, keys: tuple[str, ...]) -> pd.Series[bool]:
    known: pd.Series[bool] = side[list(keys)].notna().all(axis=1)
    return known


def _common(sides: list[pd.DataFrame], keys: tuple[str, ...]) -> pd.Index:
    base, other = (pd.MultiIndex.from_frame(side[list(keys)]).unique() for side in sides)
    return base[base.isin(other)]


def _member(side: pd.DataFrame, common: pd.Index, keys: tuple[str, ...]) -> np.ndarray:
    found: np.ndarray = pd.MultiIndex.from_frame(side[list(keys)]).isin(common)
    return found


def _row_each(sides: list[pd.DataFrame], common: pd.Index, keys: tuple[str, ...], level: str) -> pd.DataFrame:
    tables = []
    for side, name in zip(sides, SIDES, strict=True):
        sums = side[_member(side, common, keys)].groupby(list(keys), sort=False)[list(MEASURES)].sum()
        tables.append(sums.rename(columns={measure: f"{name}_{measure}" for measure in MEASURES}))
    joined = tables[0].join(tables[1], how="outer", sort=False).fillna(0).reset_index()
    return _shaped(joined.rename(columns={PRODUCT: "operator"}), level)


def _one_side(side: pd.DataFrame, keys: tuple[str, ...], name: str) -> pd.DataFrame:
    sums = side.groupby(list(keys), sort=False, dropna=False)[list(MEASURES)].sum().reset_index()
    return _shaped(sums.rename(columns={measure: f"{name}_{measure}" for measure in MEASURES}), UNMATCHED)


def _shaped(table: pd.DataFrame, level: str) -> pd.DataFrame:
    """All columns: keys as text, missing where they do not matter; a side that has nothing has 0 calls and 0 ns."""
    nothing = np.zeros(len(table), np.int64)
    numbers = {name: table[name].to_numpy(np.int64) if name in table else nothing for name in PAIRS}
    texts = {key: _text(table[key]) if key in table else pd.Series([pd.NA] * len(table), dtype=object) for key in KEYS}
    return pd.DataFrame({"level": level, **texts, **numbers})


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), pd.NA)
