"""The layers of a run as a tree: what each part of a path is called, what it computes, and in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from perfkit_core import grouped
from perfkit_core.comparison.alignment.units import units
from perfkit_core.layers.modules import CALL_SEPARATOR, LABEL_SEPARATOR
from perfkit_core.trace import Trace

_NUMBERED: Final = re.compile(r"^(.*?)_?(\d+)$")


@dataclass(slots=True)
class Layer:
    """One part of a path. ``path``: all of it; ``first``: row at which it appears; ``families``: of the operators in it
    and below it."""

    name: str
    path: str
    first: int
    families: set[str] = field(default_factory=set)
    children: dict[str, Layer] = field(default_factory=dict)

    @property
    def in_order(self) -> list[Layer]:
        """The layers below, as they appear."""
        return sorted(self.children.values(), key=lambda layer: (layer.first, layer.name))

    @property
    def stem(self) -> str:
        """The name without its number, in small letters and digits only."""
        found = _NUMBERED.match(self.name)
        return re.sub(r"[^a-z0-9]+", "", (found[1] if found else self.name).lower())


def layer_tree(trace: Trace) -> Layer:
    """A nameless root above the layers of a run; without any where none was recorded."""
    root = Layer("", "", -1)
    module = trace.codes("module")
    if not module.values:
        return root
    separator = CALL_SEPARATOR if any(CALL_SEPARATOR in path for path in module.values) else LABEL_SEPARATOR
    rows = np.flatnonzero(module.codes >= 0)
    first = grouped.first_rows(module.codes[rows].astype(np.int64), len(module.values))
    families = _families(trace)
    for code, path in enumerate(module.values):
        if first[code] < len(rows):
            _add(root, path, separator, int(rows[first[code]]), families.get(code, set()))
    return root


def _add(root: Layer, path: str, separator: str, first: int, families: set[str]) -> None:
    layer, whole = root, ""
    for name in path.split(separator):
        whole = f"{whole}{separator}{name}" if whole else name
        layer = layer.children.setdefault(name, Layer(name, whole, first))
        layer.first = min(layer.first, first)
        layer.families |= families


def _families(trace: Trace) -> dict[int, set[str]]:
    """The families of the operators of each layer (by the number of its path)."""
    found, module = units(trace), trace.codes("module")
    rows = np.flatnonzero(found.own & (module.codes >= 0) & (found.family.codes >= 0))
    _, first = grouped.distinct([module.codes[rows], found.family.codes[rows]], len(rows))
    pairs: dict[int, set[str]] = {}
    for row in rows[first].tolist():
        pairs.setdefault(int(module.codes[row]), set()).add(found.family.values[found.family.codes[row]])
    return pairs
