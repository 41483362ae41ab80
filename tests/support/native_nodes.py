"""Operators from the frameworks' own objects, nested only by their times. perfkit's code is not used."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Node:
    """An operator, or an event that a framework recorded inside an operator."""

    name: str
    thread: Any
    start: int
    end: int
    operator: bool
    children: list[Node] = field(default_factory=list)

    @property
    def dur(self) -> int:
        return self.end - self.start


def roots_of(nodes: list[Node]) -> list[Node]:
    """Return the outermost operators with their children. Nesting is determined only by times."""
    open_: dict[Any, list[Node]] = defaultdict(list)
    roots = []
    for node in sorted(nodes, key=lambda node: (node.start, -node.end)):
        stack = open_[node.thread]
        while stack and (node.start >= stack[-1].end or node.end > stack[-1].end):
            stack.pop()
        if stack:
            stack[-1].children.append(node)
        elif node.operator:
            roots.append(node)
        if stack or node.operator:
            stack.append(node)
    return roots


def torch_nodes(profiler: Any) -> list[Node]:
    events = [e for e in profiler.profiler.kineto_results.events() if e.activity_type() == "cpu_op"]
    return [Node(e.name(), e.start_thread_id(), e.start_ns(), e.end_ns(), True) for e in events]


def paddle_nodes(profiler: Any) -> list[Node]:
    found = []
    for root in profiler.profiler_result.get_data().values():
        stack = list(root.children_node)
        while stack:
            node = stack.pop()
            stack += node.children_node
            kind = node.type.name
            if kind in ("Operator", "OperatorInner", "DygraphKernelLaunch"):
                found.append(Node(node.name, node.thread_id, node.start_ns, node.end_ns, kind == "Operator"))
    return found
