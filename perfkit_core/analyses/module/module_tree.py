"""The layers that a recording knows, as a tree: from the module column, and from what a handler kept of the models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.layers.architecture import Architecture, from_meta, path_parents
from perfkit_core.layers.module_labels import ModuleLabel, decode
from perfkit_core.layers.modules import CALL_SEPARATOR
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

_INSTANCE: Final = re.compile(r"_\d+$")
"""What numbers the layers of a class, where a framework does that."""


@dataclass(frozen=True, slots=True)
class ModuleTree:
    """Parallel lists, an item a layer, parents first: ``module`` as in the column, ``name`` (its own part),
    ``class_name``, ``parent`` (-1: none). ``architectures`` are the models that the handler kept; ``path`` is that of a
    layer in them."""

    module: list[str]
    name: list[str]
    class_name: list[str]
    parent: IntArray
    path: list[str]
    architectures: tuple[Architecture, ...] = ()

    def __len__(self) -> int:
        return len(self.module)

    def nodes(self, trace: Trace) -> IntArray:
        """The layer of each event, -1 where it is in none, shape (rows,)."""
        position = {module: number for number, module in enumerate(self.module)}
        column = trace.codes("module")
        return column.lookup(np.array([position.get(value, NO_ROW) for value in column.values], np.int64), NO_ROW)


def module_tree(trace: Trace) -> ModuleTree:
    """The tree of a trace; without layers where none was recorded."""
    labels = [label for name in trace.codes("name").values if (label := decode(name))]
    if labels:
        return _of_labels(labels, from_meta(trace.meta))
    column = trace.codes("module")
    return _of_calls([column.values[code] for code in np.unique(column.codes[column.codes >= 0])])


def _of_labels(labels: list[ModuleLabel], kept: tuple[Architecture, ...]) -> ModuleTree:
    classes = {label.path: label.class_name for label in labels}
    classes |= {layer.path: layer.class_name for model in kept for layer in model.layers}
    paths = sorted(classes)
    parent = path_parents(paths)
    above = [paths[at] if at != NO_ROW else "" for at in parent]
    module = [ModuleLabel(path, classes[path]).module for path in paths]
    own = [path.removeprefix(whole).strip(".") for path, whole in zip(paths, above, strict=True)]
    names = [part or whole for part, whole in zip(own, module, strict=True)]
    return ModuleTree(module, names, [classes[path] for path in paths], parent, paths, kept)


def _of_calls(used: list[str]) -> ModuleTree:
    """Paths that were put together from the calls around; a call that only others were seen in is a layer, too."""
    whole = {CALL_SEPARATOR.join(parts[: n + 1]) for parts in _parts(used) for n in range(len(parts))}
    paths = sorted(whole, key=lambda path: path.split(CALL_SEPARATOR))
    position = {path: number for number, path in enumerate(paths)}
    parent = [position.get(path.rpartition(CALL_SEPARATOR)[0], NO_ROW) for path in paths]
    names = [path.rpartition(CALL_SEPARATOR)[2] for path in paths]
    return ModuleTree(paths, names, [_INSTANCE.sub("", name) for name in names], np.array(parent, np.int64), paths)


def _parts(paths: list[str]) -> list[list[str]]:
    return [path.split(CALL_SEPARATOR) for path in paths]
