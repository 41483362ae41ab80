"""Which layer of one run is which of the other?

Layers of the same name below the same layer are the same. Of the rest, those below matched layers are aligned in their
order, by how alike they are: their names, the families of the operators in them, and how many layers they hold. What
one side puts around the model (``module.``, ``model.``) is looked through where that matches more.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import numpy as np

from perfkit_core.comparison.alignment.layer_tree import Layer, layer_tree
from perfkit_core.comparison.alignment.sequence import aligned
from perfkit_core.trace import Trace

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
