"""Matching of the layers of two runs.

The models of both runs are walked from the top. Inside two matched layers, child layers of the same name match. The
remaining child layers keep their order and are aligned so that the sum of similarities is largest. The similarity of
two layers depends on their names, on the operator families inside them, and on their numbers of child layers.

Wrappers around the model of one run (``module.``, ``model.``) are ignored if more layers match without them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import FloatArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.compare.align.operator_owner import owners
from perfkit_core.trace.assembly.layers import CALL_SEPARATOR, LABEL_SEPARATOR
from perfkit_core.trace.model.trace import Trace

LEAST_LIKENESS: Final = 0.35
"""Two layers match only if their similarity, from 0 to 1, is at least this value."""
_WRAPPERS: Final = 3
"""Maximum number of wrappers around a model that are ignored. In practice, models do not have more."""
_TOO_MANY: Final = 250_000
"""Maximum number of pairs of child layers whose similarity is computed. With more pairs, only child layers of the same
name match, because a layer with so many children is probably a list of equal elements."""
_NAME, _CONTENTS, _SIZE = 0.5, 0.3, 0.2
"""Weights in the similarity of two layers: of their names, of their operator families, of their numbers of children."""
_NUMBERED: Final = re.compile(r"^(.*?)_?(\d+)$")

Pairs = list[tuple[str, str]]


@dataclass(slots=True)
class Layer:
    name: str
    path: str
    first: int  # Row of the first event in the layer.
    families: set[str] = field(default_factory=set)  # Operator families inside the layer.
    children: dict[str, Layer] = field(default_factory=dict)

    def children_without(self, names: Mapping[str, Layer]) -> list[Layer]:
        """Return the child layers whose names are not in ``names``, in the order of their first events."""
        children = [layer for layer in self.children.values() if layer.name not in names]
        return sorted(children, key=lambda layer: (layer.first, layer.name))

    @property
    def stem(self) -> str:
        """The name in lower case, without final number and punctuation: ``Conv_Block_12`` → ``convblock``."""
        numbered = _NUMBERED.match(self.name)
        return re.sub(r"[^a-z0-9]+", "", (numbered[1] if numbered else self.name).lower())


def layer_tree(trace: Trace) -> Layer:
    """Return a nameless layer whose children are the outermost layers of the run."""
    root = Layer("", "", -1)
    module = trace.codes("module")
    if not module.values:
        return root
    separator = CALL_SEPARATOR if any(CALL_SEPARATOR in path for path in module.values) else LABEL_SEPARATOR
    operators = owners(trace)
    rows = np.flatnonzero(operators.counted & (module.codes >= 0) & (operators.family.codes >= 0))
    _, first = groupby.distinct([module.codes[rows], operators.family.codes[rows]], len(rows))
    families: dict[int, set[str]] = defaultdict(set)
    for row in rows[first].tolist():
        families[int(module.codes[row])].add(operators.family.values[operators.family.codes[row]])
    rows = np.flatnonzero(module.codes >= 0)
    first = groupby.first_rows(module.codes[rows].astype(np.int64), len(module.values))
    for code, path in enumerate(module.values):
        if first[code] == len(rows):  # No event has this path.
            continue
        layer, row = root, int(rows[first[code]])
        for name in path.split(separator):
            full_path = f"{layer.path}{separator}{name}" if layer.path else name
            layer = layer.children.setdefault(name, Layer(name, full_path, row))
            layer.first = min(layer.first, row)
            layer.families |= families[code]
    return root


def match_layers(base: Trace, other: Trace) -> tuple[dict[str, str], dict[str, str]]:
    """Return one dict per run: path of a layer → its name in the comparison. Matched layers have the same name."""
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
    return sides[0], sides[1]


def _matched(base: Layer, other: Layer) -> Pairs:
    """Return the pairs of paths of matched layers. Swapping the runs does not change the pairs, because the run whose
    paths come first in alphabetical order is always walked first."""
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
    """Return the root and the wrappers below it. A wrapper is the only child of the layer above it."""
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
    left, right = base.children_without(other.children), other.children_without(base.children)
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


@lru_cache(maxsize=4096)  # The names of layers repeat, so results are cached.
def _name_likeness(a: str, b: str) -> float:
    return 1.0 if a == b else SequenceMatcher(None, min(a, b), max(a, b), autojunk=False).ratio()


def aligned(likeness: npt.NDArray[np.float64], least: float = LEAST_LIKENESS) -> list[tuple[int, int]]:
    """Align two sequences without crossings, and return the pairs of indices in ascending order. ``likeness[i, j]`` is
    the similarity of item i of the first sequence to item j of the second, from 0 to 1."""
    if not likeness.size:
        return []
    best = np.zeros((likeness.shape[0] + 1, likeness.shape[1] + 1))
    rows, columns = np.empty((2, min(likeness.shape)), np.int64)
    count = _pairs(np.where(likeness >= least, likeness, -1.0), best, rows, columns)
    return list(zip(rows[:count][::-1].tolist(), columns[:count][::-1].tolist(), strict=True))


@compiled
def _pairs(
    gain: Annotated[FloatArray, 2], best: Out[Annotated[FloatArray, 2]], rows: Out[IntArray], columns: Out[IntArray]
) -> int:
    n, m = gain.shape
    for i in range(n):
        for j in range(m):
            skipped = max(best[i, j + 1], best[i + 1, j])
            best[i + 1, j + 1] = max(skipped, best[i, j] + gain[i, j]) if gain[i, j] >= 0 else skipped
    count = 0
    while n and m:  # Follow the best choices back. So the last pair comes first.
        if best[n, m] == best[n - 1, m]:
            n -= 1
        elif best[n, m] == best[n, m - 1]:
            m -= 1
        else:
            n, m = n - 1, m - 1
            rows[count], columns[count] = n, m
            count += 1
    return count
