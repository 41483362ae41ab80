"""The view ``code`` of a live run equals the profiler's tree of Python calls in every frame."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.base.algorithms.trees import parents  # noqa: E402
from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.views import code  # noqa: E402
from perfkit_torch import trace_handler  # noqa: E402
from tests.support.torch_models import train  # noqa: E402


def native(roots: list[Any]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return the number of calls and the time of each path of Python frames in torch's event tree."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    stack = [(root, ()) for root in roots]
    while stack:
        node, path = stack.pop()
        if str(node.tag).endswith(("PyCall", "PyCCall")):
            path = (*path, code.split_names([node.name.partition(" at 0x")[0]])["name"][0].removesuffix(">"))
            found[path][0] += 1
            found[path][1] += node.duration_time_ns
        stack += [(child, path) for child in node.children]
    return {path: (calls, time) for path, (calls, time) in found.items()}


def test_every_frame_of_the_native_tree(tmp_path: Path) -> None:
    trees: list[Any] = []
    handler = trace_handler(
        tmp_path, also=[lambda p: trees.append(native(p.profiler.kineto_results.experimental_event_tree()))]
    )
    train("mlp", handler, with_stack=True)
    table = code.table(load(handler.written[0]), ViewRequest())
    above = parents(table["depth"].to_numpy())
    names, ours = table["name"].to_list(), {}
    for row in range(len(table)):
        path, node = [], row
        while node >= 0:
            path.append(names[node].removesuffix(">"))
            node = above[node]
        ours[tuple(reversed(path))] = (table["calls"][row], table["total_cpu_ns"][row])
    different = {path: (numbers, ours.get(path)) for path, numbers in trees[0].items() if ours.get(path) != numbers}
    print(f"{2 * len(trees[0])} numbers, {len(different)} paths differ")
    assert not different
    assert len(ours) == len(trees[0])
