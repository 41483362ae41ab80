"""Which nodes of Paddle's backward graph a call of a layer made: those between what it returned and what it was given.

Nodes of calls inside belong to those; each such call is passed over in one go, so a node is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

_ACCUMULATION: Final = "GradNodeAccumulation"
"""Collects the gradient of a parameter; it lives with the parameter, not with a call."""


class Nodes:
    """The nodes claimed so far by the calls inside one outermost call."""

    def __init__(self) -> None:
        self._inputs: dict[int, list[Any]] = {}
        """Node of a call → the nodes that the call continues at, which are those of its inputs."""
        self._kept: list[Any] = []
        """All nodes seen: their addresses are their names, so none may go meanwhile."""

    def of(self, tensors: Iterable[Any]) -> frozenset[int]:
        """Addresses of the nodes that made some tensors."""
        return frozenset(self._address(node) for tensor in tensors if (node := tensor.grad_fn) is not None)

    def claim(self, returned: list[Any], inputs: frozenset[int]) -> tuple[list[str], list[Any]]:
        """Names of the nodes that a call made itself, and those of the returned tensors that are not just passed on."""
        made = [(tensor, node, self._address(node)) for tensor in returned if (node := tensor.grad_fn) is not None]
        made = [one for one in made if one[2] not in inputs and one[1].name() != _ACCUMULATION]
        ends: list[Any] = []
        own = dict(self._walk([node for _, node, _ in made], inputs, ends))
        for address in (*own, *(address for _, _, address in made)):
            self._inputs[address] = ends
        return list(own.values()), [tensor for tensor, _, _ in made]

    def _walk(self, nodes: list[Any], inputs: frozenset[int], ends: list[Any]) -> Iterator[tuple[int, str]]:
        """Address and name of the nodes that no call inside made; the nodes of the inputs go into ``ends``."""
        seen = set()
        while nodes:
            node = nodes.pop()
            address = self._address(node)
            if address in seen:
                continue
            seen.add(address)
            if address in inputs:
                ends.append(node)
            elif address in self._inputs:
                nodes.extend(self._inputs[address])
            elif node.name() != _ACCUMULATION:
                yield address, node.name()
                nodes.extend(below for below in node.next_functions if below is not None)

    def _address(self, node: Any) -> int:
        self._kept.append(node)
        return int(node.node_ptr())
