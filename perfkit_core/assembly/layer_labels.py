"""Names of the events by which ``annotate`` marks the calls of a model's layers, the same in every framework.

``perfkit.module:layers.0:Linear`` spans a call. ``perfkit.module:layers.0:Linear:backward`` marks, inside the first
node of the call's backward pass, that it begins; a list of all nodes that the call made itself may follow
(``:backward:MatmulGradNode,AddGradNode*2``), where the framework does not tell otherwise. Whatever could damage a trace
file is written as in URLs, so that a name survives every export.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

PREFIX: Final = "perfkit.module:"
_BACKWARD: Final = "backward"
_NODE: Final = re.compile(r"(.+?)(?:\*(\d{1,6}))?")


class ModuleLabel(NamedTuple):
    """``path`` as the framework names the layer; that of a model itself is "", or its name and a dot if it has one.
    ``nodes`` follow a backward mark."""

    path: str
    class_name: str
    backward: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """What stands in the column ``module``: the path; for a model without a name its class."""
        return self.path.rstrip(".") or self.class_name


def encode(path: str, class_name: str) -> str:
    """The name of the span of a layer's call."""
    return f"{PREFIX}{quote(path, safe='')}:{quote(class_name, safe='')}"


def encode_backward(path: str, class_name: str, nodes: Iterable[str] = ()) -> str:
    """The name of the mark of its backward pass."""
    counted = Counter(quote(node, safe="") for node in nodes)
    listed = ",".join(f"{node}*{count}" if count > 1 else node for node, count in counted.items())
    return f"{encode(path, class_name)}:{_BACKWARD}" + (f":{listed}" if listed else "")


def decode(name: str) -> ModuleLabel | None:
    """What a name says, None where it is no label of ours."""
    if not name.startswith(PREFIX):
        return None
    path, _, rest = name[len(PREFIX) :].partition(":")
    class_name, _, more = rest.partition(":")
    word, _, nodes = more.partition(":")
    return ModuleLabel(unquote(path), unquote(class_name), word == _BACKWARD, tuple(_nodes(nodes)))


def _nodes(text: str) -> Iterable[str]:
    for item in filter(None, text.split(",")):
        match = _NODE.fullmatch(item)
        if match:
            yield from [unquote(match[1])] * int(match[2] or 1)
