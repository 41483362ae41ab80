"""Which layer of the model each event belongs to.

The calls of layers are spans: the labels of ``annotate`` (whole paths, ``layers.0.attention``), or else what a
framework records by itself (``ResNet_0/Sequential_1/Conv2d_3``: the path is that of the calls around it). A host event
belongs to the nearest call around it, a node of a backward pass to the layer whose forward made it (see
``backward_modules``) with everything in it, device work to the layer of its launch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core import nesting
from perfkit_core.arrays import texts
from perfkit_core.assembly.draft import LAYER
from perfkit_core.layers import backward_modules, module_labels
from perfkit_core.schema import ANNOTATION, NO_ROW
from perfkit_core.trace import IntArray, Trace
from perfkit_core.trees import merge

CALL_SEPARATOR: Final = "/"
"""Between the parts of a path that was put together from the calls around it."""
LABEL_SEPARATOR: Final = "."
"""Between the parts of a path that ``annotate`` wrote."""
_NUMBERED: Final = re.compile(r"_\d+$")
"""Ends a part that names one layer, not just its class."""


@dataclass(frozen=True, slots=True)
class Calls:
    """``path`` of each event that spans the call of a layer, and ``mark`` of each that marks its backward pass: numbers
    of ``paths``, -1 for all other events, shape (rows,)."""

    paths: list[str]
    path: IntArray
    mark: IntArray

    @property
    def known(self) -> bool:
        """Whether the recording tells any layer."""
        return bool(self.paths)


def assign(trace: Trace) -> pa.ChunkedArray:
    """The module column (dictionary, shape (rows,)); what the source itself says where it names no layer's call.

    ``trace`` may have a column ``layer``, and its phase column is still that of the source: what an adapter marked.
    """
    calls = labelled(trace)
    if not calls.known and trace.known(LAYER):
        calls = _nested(trace)
    if not calls.known:
        return trace.column("module")
    own = np.where(calls.path >= 0, calls.path, calls.mark)
    own = np.where(own >= 0, own, backward_modules.assign(trace, calls.path, calls.mark))
    module = nesting.last_on_path(trace.ints("parent"), own)
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    module[launched] = module[launched_by[launched]]
    return texts(module.astype(np.int32), calls.paths)


def labelled(trace: Trace) -> Calls:
    """The calls that ``annotate`` labelled. The path of a model itself is the name of its class."""
    names = trace.codes("name")
    found = {code: label for code, name in enumerate(names.values) if (label := module_labels.decode(name))}
    if not found:
        return Calls([], _nothing(trace), _nothing(trace))
    paths = list(dict.fromkeys(label.module for label in found.values()))
    position = {path: number for number, path in enumerate(paths)}
    spans, marks = np.full((2, len(names.values)), -1, np.int64)
    for code, label in found.items():
        (marks if label.backward else spans)[code] = position[label.module]
    host = trace.host & trace.rows("kind", ANNOTATION)
    return Calls(paths, np.where(host, names.lookup(spans, -1), -1), np.where(host, names.lookup(marks, -1), -1))


def _nothing(trace: Trace) -> IntArray:
    return np.broadcast_to(np.int64(-1), len(trace))


def _nested(trace: Trace) -> Calls:
    """The calls that the framework recorded by itself: a path of the parts of the calls around."""
    layer = trace.codes(LAYER)
    tree = merge(trace.ints("parent"), layer.codes.astype(np.int64), trace.host & (layer.codes >= 0))
    texts = _paths(tree.parent.tolist(), [layer.values[key] for key in tree.key.tolist()])
    paths = list(dict.fromkeys(texts))
    position = {path: number for number, path in enumerate(paths)}
    number = np.array([*(position[text] for text in texts), -1], np.int64)
    return Calls(paths, number[tree.node], _nothing(trace))


def _paths(parent: list[int], part: list[str]) -> list[str]:
    """The path of each node. A numbered layer that is called outside of all others, and is known below one of them, is
    that one: so it is when activations are computed again in a backward pass."""
    below: dict[str, list[int]] = {}
    for node, above in enumerate(parent):
        if above != NO_ROW and _NUMBERED.search(part[node]):
            below.setdefault(part[node], []).append(node)
    once = {name: nodes[0] for name, nodes in below.items() if len(nodes) == 1}
    plain = _joined(parent, part, {})
    return _joined(parent, part, {node: plain[once[part[node]]] for node in _roots(parent) if part[node] in once})


def _joined(parent: list[int], part: list[str], known: dict[int, str]) -> list[str]:
    paths: list[str] = []
    for node, above in enumerate(parent):
        whole = part[node] if above == NO_ROW else paths[above] + CALL_SEPARATOR + part[node]
        paths.append(known.get(node, whole))
    return paths


def _roots(parent: list[int]) -> list[int]:
    return [node for node, above in enumerate(parent) if above == NO_ROW]
