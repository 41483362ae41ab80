"""Tests that merged and printed trees are equal to a literal implementation of their definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import trees
from perfkit_core.output.report import display


@st.composite
def forests(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw the parent (< row), the key, the membership and a value of each event."""
    count = draw(st.integers(0, 25))
    parent = [draw(st.integers(-1, row - 1)) for row in range(count)]
    key = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    member = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    value = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return np.array(parent, np.int64), np.array(key, np.int64), np.array(member, np.bool_), np.array(value, np.int64)


def path(row: int, parent: np.ndarray, key: np.ndarray, member: np.ndarray) -> tuple[int, ...]:
    """Return the keys of the members from the root to the event itself."""
    above = path(int(parent[row]), parent, key, member) if parent[row] >= 0 else ()
    return (*above, int(key[row])) if member[row] else above


@given(forests())
def test_events_with_one_path_are_one_node(forest: tuple[np.ndarray, ...]) -> None:
    parent, key, member, value = forest
    tree = trees.merge(parent, key, member)
    paths = {row: path(row, parent, key, member) for row in np.flatnonzero(member).tolist()}
    assert len(tree) == len(set(paths.values()))
    assert (tree.node >= 0).tolist() == member.tolist()
    assert (tree.parent < np.arange(len(tree))).all()
    own, inclusive, depth = tree.exclusive(value), tree.inclusive(value), tree.depth()
    for row, mine in paths.items():
        node = tree.node[row]
        assert depth[node] == len(mine) - 1
        assert tree.key[node] == mine[-1]
        assert own[node] == sum(value[r] for r, other in paths.items() if other == mine)
        assert inclusive[node] == sum(value[r] for r, other in paths.items() if other[: len(mine)] == mine)
        assert (tree.parent[node] < 0) == (len(mine) == 1)


def printed(parent: np.ndarray, weight: np.ndarray, above: int = -1) -> list[int]:
    """Return the nodes below ``above`` in the order of a printer: the heaviest sibling first."""
    children = sorted(np.flatnonzero(parent == above).tolist(), key=lambda node: (-weight[node], node))
    return [node for child in children for node in (child, *printed(parent, weight, child))]


@given(forests())
def test_preorder_and_depths_determine_the_tree(forest: tuple[np.ndarray, ...]) -> None:
    parent, _, _, weight = forest
    order = trees.preorder(parent, weight)
    assert order.tolist() == printed(parent, weight)
    depth = np.array([len(path(node, parent, parent, parent > -2)) - 1 for node in order.tolist()], np.int64)
    found = trees.parents(depth)
    assert [-1 if row < 0 else order[row] for row in found.tolist()] == parent[order].tolist()


TREE = pd.DataFrame(
    {
        "depth": [0, 1, 2, 1, 0],
        "name": ["model", "layer", "linear", "head", "loss"],
        "self_cpu_ns": [1, 2, 30, 40, 5],
        "total_cpu_ns": [73, 32, 30, 40, 5],
    }
)


def test_children_of_removed_rows_move_one_level_up() -> None:
    keep = np.array([True, False, True, True, True])
    left = display.filtered_tree(TREE, trees.parents(TREE["depth"].to_numpy()), keep)
    rows = list(zip(left["depth"], left["name"], strict=True))
    assert rows == [(0, "model"), (1, "linear"), (1, "head"), (0, "loss")]


def test_totals_are_computed_again_from_the_remaining_rows() -> None:
    keep = np.array([True, False, True, False, True])
    left = display.without(TREE, trees.parents(TREE["depth"].to_numpy()), ~keep, {"total_cpu_ns": "self_cpu_ns"})
    assert left.loc[keep, "total_cpu_ns"].tolist() == [31, 30, 5]


def test_siblings_are_sorted_together_with_their_descendants() -> None:
    by_time = display.sorted_siblings(TREE, "total_cpu_ns", ascending=False)
    assert by_time["name"].tolist() == ["model", "head", "layer", "linear", "loss"]
    by_name = display.sorted_siblings(TREE, "name", ascending=True)
    assert by_name["name"].tolist() == ["loss", "model", "head", "layer", "linear"]
    unknown = TREE.assign(flops=pd.array([pd.NA, 1, 2, 3, 7], "Int64"))
    assert display.sorted_siblings(unknown, "flops", ascending=True)["name"].tolist()[0] == "loss"
    assert display.sorted_siblings(TREE.head(0), "name", ascending=True).empty


def test_many_nodes_are_distinguished() -> None:
    """Each of 5,000 roots has two children. The key of a root's second child is also the key of the next root's first
    child."""
    count = 5_000
    parent = np.concatenate([np.full(count, -1), np.arange(count), np.arange(count)])
    key = np.concatenate([np.arange(count), 2 * np.arange(count), 2 * np.arange(count) + 2])
    tree = trees.merge(parent, key, np.ones(3 * count, np.bool_))
    assert len(tree) == 3 * count
    assert tree.key[tree.node].tolist() == key.tolist()
    assert np.array_equal(tree.parent[tree.node[count:]], tree.node[parent[count:]])
    assert (tree.parent[tree.node[:count]] == -1).all()
