"""Matching of the layers of two runs.

Layers of the same name below the same layer match. The others below matched layers are aligned in order by their
likeness: names, operator families inside, and number of layers inside. Wrappers of one side around the model
(``module.``, ``model.``) are ignored if that matches more layers. The alignment is global, by dynamic programming: of
all pairings without crossings the one with the largest sum of likeness, without pairs below ``least``.
"""

from __future__ import annotations

import re
from collections import defaultdict
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

LEAST_LIKENESS: Final = 0.35
"""Least likeness of a pair: less than half a name in common, or than equal contents."""
_WRAPPERS: Final = 3
"""Layers around a model that are ignored; more do not occur in practice."""
_TOO_MANY: Final = 250_000
"""Pairs of unmatched siblings beyond which only equal names count: such a layer is a list of equal ones."""
_NAME, _CONTENTS, _SIZE = 0.5, 0.3, 0.2
"""Weights of likeness: a name says more than the operators, and those more than the number of layers."""
_NUMBERED: Final = re.compile(r"^(.*?)_?(\d+)$")

Pairs = list[tuple[str, str]]


@dataclass(slots=True)
class Layer:
    """One component of the path ``path``. ``first``: row of its first event; ``families``: of the operators inside."""

    name: str
    path: str
    first: int
    families: set[str] = field(default_factory=set)
    children: dict[str, Layer] = field(default_factory=dict)

    @property
    def in_order(self) -> list[Layer]:
        """The child layers in order of appearance."""
        return sorted(self.children.values(), key=lambda layer: (layer.first, layer.name))

    @property
    def stem(self) -> str:
        """The name without its number, in small letters and digits only."""
        numbered = _NUMBERED.match(self.name)
        return re.sub(r"[^a-z0-9]+", "", (numbered[1] if numbered else self.name).lower())


def layer_tree(trace: Trace) -> Layer:
    """Return a nameless root above the layers of a run; without children if none were recorded."""
    root = Layer("", "", -1)
    module = trace.codes("module")
    if not module.values:
        return root
    separator = CALL_SEPARATOR if any(CALL_SEPARATOR in path for path in module.values) else LABEL_SEPARATOR
    operators = units(trace)
    rows = np.flatnonzero(operators.own & (module.codes >= 0) & (operators.family.codes >= 0))
    _, first = groupby.distinct([module.codes[rows], operators.family.codes[rows]], len(rows))
    families: dict[int, set[str]] = defaultdict(set)
    for row in rows[first].tolist():
        families[int(module.codes[row])].add(operators.family.values[operators.family.codes[row]])
    rows = np.flatnonzero(module.codes >= 0)
    first = groupby.first_rows(module.codes[rows].astype(np.int64), len(module.values))
    for code, path in enumerate(module.values):
        if first[code] == len(rows):  # no event is in it
            continue
        layer, row = root, int(rows[first[code]])
        for name in path.split(separator):
            whole = f"{layer.path}{separator}{name}" if layer.path else name
            layer = layer.children.setdefault(name, Layer(name, whole, row))
            layer.first = min(layer.first, row)
            layer.families |= families[code]
    return root


@dataclass(frozen=True, slots=True)
class LayerMatch:
    """The common names of the layers of both sides: path → common name; equal names match. ``matched``: the common
    names that both sides have."""

    base: dict[str, str]
    other: dict[str, str]
    matched: frozenset[str]

    @property
    def known(self) -> bool:
        return bool(self.base and self.other)


def match_layers(base: Trace, other: Trace) -> LayerMatch:
    trees = layer_tree(base), layer_tree(other)
    names = {}
    for pair in _matched(*trees):
        same = pair[0].replace("/", ".").lower() == pair[1].replace("/", ".").lower()
        names[pair] = pair[0] if same else f"{pair[0]} ~ {pair[1]}"
    sides = [{pair[side]: name for pair, name in names.items()} for side in (0, 1)]
    matched = frozenset(names.values())
    for side, tree, word in zip(sides, trees, ("base", "other"), strict=True):
        for path in _paths(tree):
            side.setdefault(path, f"{path} ({word})" if path in matched else path)
    alone = set(sides[0].values()) & set(sides[1].values()) - matched
    for side, word in zip(sides, ("base", "other"), strict=True):
        side.update({path: f"{name} ({word})" for path, name in side.items() if name in alone})
    return LayerMatch(sides[0], sides[1], matched)


def _matched(base: Layer, other: Layer) -> Pairs:
    """Return the same pairs whichever side is the base: the side with the smaller paths is walked first."""
    if list(_paths(other)) < list(_paths(base)):
        return [(first, second) for second, first in _matched(other, base)]
    roots = [(base, root) for root in _wrapped(other)] + [(root, other) for root in _wrapped(base)[1:]]
    candidates = []
    for pair in roots:
        pairs: Pairs = []
        pending = [pair]
        while pending:
            for first, second in _children(*pending.pop()):
                pairs.append((first.path, second.path))
                pending.append((first, second))
        candidates.append(pairs)
    return max(candidates, key=len)


def _wrapped(root: Layer) -> list[Layer]:
    """Return the root, then its only child, the only child of that, and so on."""
    layers = [root]
    while len(layers) <= _WRAPPERS and len(layers[-1].children) == 1:
        layers.append(next(iter(layers[-1].children.values())))
    return layers


def _paths(root: Layer) -> list[str]:
    pending, paths = [root], []
    while pending:
        layer = pending.pop()
        pending += layer.children.values()
        paths.append(layer.path)
    return sorted(paths[1:])


def _children(base: Layer, other: Layer) -> list[tuple[Layer, Layer]]:
    same = [(layer, other.children[name]) for name, layer in base.children.items() if name in other.children]
    left = [layer for layer in base.in_order if layer.name not in other.children]
    right = [layer for layer in other.in_order if layer.name not in base.children]
    if len(left) * len(right) > _TOO_MANY:
        return same
    likeness = np.zeros((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            every = a.families | b.families
            contents = len(a.families & b.families) / len(every) if every else 0.5
            size = (1 + min(len(a.children), len(b.children))) / (1 + max(len(a.children), len(b.children)))
            name = _name_likeness(a.stem, b.stem)
            likeness[i, j] = _NAME * name + _CONTENTS * contents + _SIZE * size * (contents > 0)
    return same + [(left[i], right[j]) for i, j in aligned(likeness)]


@lru_cache(maxsize=4096)  # models repeat the names of their layers
def _name_likeness(a: str, b: str) -> float:
    return 1.0 if a == b else SequenceMatcher(None, min(a, b), max(a, b), autojunk=False).ratio()


def aligned(likeness: npt.NDArray[np.float64], least: float = LEAST_LIKENESS) -> list[tuple[int, int]]:
    """Return pairs (row, column) in ascending order. ``likeness`` has a row for each item of one sequence and a column
    for each of the other, from 0 (nothing in common) to 1 (the same)."""
    if not likeness.size:
        return []
    gain = np.where(likeness >= least, likeness, -1.0)
    rows, columns = _walk_back(gain, _best(gain))
    return list(zip(rows[::-1].tolist(), columns[::-1].tolist(), strict=True))


@compiled(steps=5)
def _best(gain):  # type: ignore[no-untyped-def]
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
