"""Operators of one run that a compiler fused into kernels in the other run.

If only one of two runs has generated kernels of several operators, these kernels are matched with all operators that
they were made of. Kernels that have an operator in common form one group, because the operator's calls cannot be
distinguished: kernels of ``add`` and ``multiply`` and of ``add`` and ``layer_norm`` are a group of three operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import Codes
from perfkit_core.base.operators.names import GRADIENT_SUFFIX
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.compiled import kernels

FUSED: Final = "fused"
"""Column with the canonical operators of a generated kernel, None for other items."""
FUSION: Final = "fusion"
"""Column with the operators of a group, None for items outside groups."""
SEPARATOR: Final = " + "


def fused(trace: Trace) -> Codes:
    """Return the canonical operators of each event that is a call of a generated kernel, shape (rows,)."""
    number, calls = kernels(trace)
    canonical = get_plugins().framework(trace.meta.framework).operator_names()
    names = [{(canonical(name) if canonical else None) or name for name in call.operators} for call in calls]
    texts = [SEPARATOR.join(sorted(of)) or None for of in names]
    values = list(dict.fromkeys(text for text in texts if text))
    table = np.array([*(values.index(text) if text else -1 for text in texts), -1], np.int32)
    return Codes(table[number], values)


def with_fusions(base: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables of items with the column :data:`FUSION`, made of their columns operator and :data:`FUSED`."""
    kernels_of = [[text for text in side[FUSED].dropna().unique() if SEPARATOR in text] for side in (base, other)]
    groups = {} if all(kernels_of) else _groups(kernels_of[0] + kernels_of[1])
    return base.assign(**{FUSION: _of_items(base, groups)}), other.assign(**{FUSION: _of_items(other, groups)})


def _groups(kernels: Iterable[str]) -> dict[str, str]:
    """Return the group of each operator that occurs in kernels with several operators."""
    members: dict[str, set[str]] = {}
    for kernel in kernels:
        group = set(kernel.split(SEPARATOR))
        group = group.union(*(members[name] for name in group if name in members))
        members |= dict.fromkeys(group, group)
    return {name: SEPARATOR.join(sorted(group)) for name, group in members.items()}


def _of_items(side: pd.DataFrame, groups: Mapping[str, str]) -> pd.Series:
    """Return the group of each item, or None. A gradient without a kernel of its own belongs to the group of the
    forward operator, because it computes the same: the gradient of a product is a product."""
    texts = side[FUSED].where(side[FUSED].notna(), side["operator"])
    names = [text.partition(SEPARATOR)[0] if isinstance(text, str) else "" for text in texts]
    item_groups = [groups.get(name) or groups.get(name.removesuffix(GRADIENT_SUFFIX)) for name in names]
    return pd.Series(item_groups, index=side.index, dtype=object)
