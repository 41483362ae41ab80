"""Which layer of one run is which of the other?

Layers of the same name below the same layer are the same. Of the rest, those below matched layers are aligned in their
order, by how alike they are: their names, the families of the operators in them, and how many layers they hold. What
one side puts around the model (``module.``, ``model.``) is looked through where that matches more.

The layers of a run as a tree: what each part of a path is called, what it computes, and in which order.

Which items of one sequence stand for which of another, when their order tells as much as their likeness?

Global alignment by dynamic programming: of all ways to pair items without crossing, the one whose pairs are alike the
most in sum. A pair that is less alike than ``least`` is no pair.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import groupby
from perfkit_core.assembly.layers import CALL_SEPARATOR, LABEL_SEPARATOR
from perfkit_core.compare.align.units import units
from perfkit_core.model.trace import Trace
from perfkit_core.runtime.compile import compiled

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
    first = groupby.first_rows(module.codes[rows].astype(np.int64), len(module.values))
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
    _, first = groupby.distinct([module.codes[rows], found.family.codes[rows]], len(rows))
    pairs: dict[int, set[str]] = {}
    for row in rows[first].tolist():
        pairs.setdefault(int(module.codes[row]), set()).add(found.family.values[found.family.codes[row]])
    return pairs


LEAST_LIKENESS = 0.35
"""Below this, two items are not the same thing: half a name in common is more, as are equal contents."""


def aligned(likeness: npt.NDArray[np.float64], least: float = LEAST_LIKENESS) -> list[tuple[int, int]]:
    """Pairs (row, column) in ascending order. ``likeness`` has a row for each item of one sequence and a column for
    each of the other, 0 (nothing in common) to 1 (the same)."""
    if not likeness.size:
        return []
    gain = np.where(likeness >= least, likeness, -1.0)
    rows, columns = _walk_back(gain, _best(gain))
    return list(zip(rows[::-1].tolist(), columns[::-1].tolist(), strict=True))


@compiled(steps=5)
def _best(gain):  # type: ignore[no-untyped-def]
    """Sum of the best pairs among the first i and j items."""
    n, m = gain.shape
    best = np.zeros((n + 1, m + 1))
    for i in range(n):
        for j in range(m):
            skipped = max(best[i, j + 1], best[i + 1, j])
            best[i + 1, j + 1] = max(skipped, best[i, j] + gain[i, j]) if gain[i, j] >= 0 else skipped
    return best


@compiled
def _walk_back(gain, best):  # type: ignore[no-untyped-def]
    i, j = gain.shape
    rows, columns = np.empty(min(i, j), np.int64), np.empty(min(i, j), np.int64)
    found = 0
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            rows[found], columns[found] = i, j
            found += 1
    return rows[:found], columns[:found]


_WRAPPERS: Final = 3
"""Layers around a model that are looked through; more are not found in practice."""
_TOO_MANY: Final = 250_000
"""Pairs of unmatched siblings beyond which only equal names count: a model with such a layer lists equal ones."""
_NAME, _CONTENTS, _SIZE = 0.5, 0.3, 0.2
"""Weights of likeness: a name tells more than what a layer computes, that more than how many layers it holds."""

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LayerMatch:
    """What the layers of both sides are called together: path → common name. Layers under one common name are the same.
    ``matched``: the common names that both sides have."""

    base: dict[str, str]
    other: dict[str, str]
    matched: frozenset[str]

    @property
    def known(self) -> bool:
        """Whether both sides have layers."""
        return bool(self.base and self.other)


def match_layers(base: Trace, other: Trace) -> LayerMatch:
    """The layers of two runs, matched."""
    trees = layer_tree(base), layer_tree(other)
    pairs = _matched(*trees)
    names = {pair: _common_name(*pair) for pair in pairs}
    found = [{pair[side]: name for pair, name in names.items()} for side in (0, 1)]
    taken = frozenset(names.values())
    for side, (tree, word) in enumerate(zip(trees, ("base", "other"), strict=True)):
        for path in _paths(tree):
            found[side].setdefault(path, f"{path} ({word})" if path in taken else path)
    alone = set(found[0].values()) & set(found[1].values()) - taken
    for side, word in enumerate(("base", "other")):
        found[side] = {path: f"{name} ({word})" if name in alone else name for path, name in found[side].items()}
    return LayerMatch(found[0], found[1], taken)


def _matched(base: Layer, other: Layer) -> Pairs:
    """The same pairs whichever side is the base: the one whose paths come first is walked first."""
    if list(_paths(other)) < list(_paths(base)):
        return [(first, second) for second, first in _matched(other, base)]
    inner = [(base, root) for root in _wrapped(other)] + [(root, other) for root in _wrapped(base)[1:]]
    return max((_below(*roots) for roots in inner), key=len)


def _wrapped(root: Layer) -> list[Layer]:
    """The root, then the only layer in it, in that, and so on."""
    found = [root]
    while len(found) <= _WRAPPERS and len(found[-1].children) == 1:
        found.append(next(iter(found[-1].children.values())))
    return found


def _below(base: Layer, other: Layer) -> Pairs:
    """Pairs of all layers below two that are the same."""
    pairs: Pairs = []
    pending = [(base, other)]
    while pending:
        for first, second in _children(*pending.pop()):
            pairs.append((first.path, second.path))
            pending.append((first, second))
    return pairs


def _children(base: Layer, other: Layer) -> list[tuple[Layer, Layer]]:
    same = [(layer, other.children[name]) for name, layer in base.children.items() if name in other.children]
    left = [layer for layer in base.in_order if layer.name not in other.children]
    right = [layer for layer in other.in_order if layer.name not in base.children]
    if len(left) * len(right) > _TOO_MANY:
        return same
    likeness = np.array([[_likeness(a, b) for b in right] for a in left], np.float64).reshape(len(left), len(right))
    return same + [(left[i], right[j]) for i, j in aligned(likeness)]


def _likeness(a: Layer, b: Layer) -> float:
    """0 (nothing in common) to 1 (the same)."""
    every = a.families | b.families
    contents = len(a.families & b.families) / len(every) if every else 0.5
    size = (1 + min(len(a.children), len(b.children))) / (1 + max(len(a.children), len(b.children)))
    return _NAME * _alike(a.stem, b.stem) + _CONTENTS * contents + _SIZE * size * (contents > 0)


@lru_cache(maxsize=4096)
def _alike(a: str, b: str) -> float:
    return 1.0 if a == b else SequenceMatcher(None, min(a, b), max(a, b), autojunk=False).ratio()


def _common_name(base: str, other: str) -> str:
    same = base.replace("/", ".").lower() == other.replace("/", ".").lower()
    return base if same else f"{base} ~ {other}"


def _paths(root: Layer) -> list[str]:
    """All layers below, sorted."""
    pending, found = [root], []
    while pending:
        layer = pending.pop()
        pending += layer.children.values()
        found.append(layer.path)
    return sorted(found[1:])
