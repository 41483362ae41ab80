"""The launch of each node of a replayed graph, for graphs that are not equal to the captured one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.trace.assembly.graph_matching import CapturedGraph, Graphs, common_subsequence
from tests.support.events import host, trace

LABELS = st.lists(st.sampled_from("abc"), max_size=30).map(tuple)


def graph(names: list[str], batch: int | None = None) -> CapturedGraph:
    kinds = ("kernel",) * len(names)
    return CapturedGraph(trace([host("call", "runtime", 0, 1)]), 0, np.arange(len(names)), kinds, tuple(names), batch)


def longest(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """The textbook recurrence."""
    best = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best[i + 1, j + 1] = best[i, j] + 1 if x == y else max(best[i, j + 1], best[i + 1, j])
    return int(best[-1, -1])


@given(LABELS, LABELS)
def test_the_common_subsequence_is_the_longest(calls: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    match = common_subsequence(calls, nodes)
    matched = np.flatnonzero(match >= 0)
    assert all(calls[match[node]] == nodes[node] for node in matched)
    assert (np.diff(match[matched]) > 0).all()
    assert len(matched) == longest(calls, nodes)


def test_missing_nodes_of_equal_layers_shift_no_other_node() -> None:
    """120 layers of 25 kernels with 12 names, and a replay that lacks every 40th kernel."""
    calls = [f"k{number % 12}" for number in range(3000)]
    kept = [number for number in range(3000) if number % 40]
    best = Graphs([graph(calls)]).best(["kernel"] * (len(kept) + 1), [*(calls[at] for at in kept), "x"], None)
    assert best is not None
    assert best[1].tolist() == [*kept, -1]


def test_the_step_fits_in_the_batch_size_of_the_graph() -> None:
    """Equally good graphs differ in their batch size. A better match counts more than the batch size."""
    names = ["a", "b", "c"]
    graphs = [graph(names, 16), graph(names, 2), graph(names, 8), graph(names)]

    def chosen(graphs: list[CapturedGraph], batch: int | None) -> CapturedGraph | None:
        best = Graphs(graphs).best(["kernel"] * 3, names, batch)
        return best and best[0]

    assert chosen(graphs, 5) is graphs[2]
    assert chosen(graphs, 9) is graphs[0]
    assert chosen(graphs, 99) is graphs[0]
    assert chosen(graphs, None) is graphs[0]
    partly = graph(["a", "b"], 8)
    assert chosen([partly, graphs[0]], 5) is graphs[0]
    assert chosen([partly], 5) is partly
    assert chosen([graph(["a"], 8)], 5) is None
