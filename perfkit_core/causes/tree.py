"""The tree of causes: parts of segments with equal words, causes and parts are one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.causes.labels import Labels
from perfkit_core.causes.places import places, sampled_lines
from perfkit_core.causes.segments import WORDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.calls import outermost
from perfkit_core.views.tables import group

_LEVELS: Final = ("word", "cause", "part")
CELLS: Final = (
    "rank", "device", "step", *_LEVELS, "event", "call", "row", "wait", "start_ns", "time_ns", "launched_ns",
)  # fmt: skip
"""Arrays of the parts of segments that lie in steps, shape (leaves,), -1 for none. ``word`` is an index of WORDS;
``cause``, ``part`` and ``wait`` are codes of texts. ``event`` is that of :class:`.Segments`, ``call`` the row of the
event that counts as a call, and ``row`` that of the host event in which the cause lies. ``launched_ns`` is the time in
windows of the device."""
_MOST: Final = 0.5
"""Minimum share of a row's time that follows the wait that is named."""


class CauseTree:
    """The rows in preorder, the largest siblings first. Arrays have shape (rows,)."""

    def __init__(self, leaves: Mapping[str, IntArray], by: Sequence[str], labels: Labels) -> None:
        """``leaves`` has the arrays :data:`CELLS`; ``by`` names those of which each combination has a tree."""
        count = len(leaves["word"])
        above = np.concatenate([np.full(count, NO_ROW), np.arange(2 * count)])
        apart = group({name: leaves[name] for name in by}) if by else None
        root = leaves["word"] + (0 if apart is None else apart.code * len(WORDS))
        key = np.concatenate([root, leaves["cause"], leaves["part"]])
        tree = trees.merge(above, np.maximum(key, 0), key != NO_ROW)
        depth, time_ns = tree.depth(), tree.exclusive(np.tile(leaves["time_ns"], len(_LEVELS)))
        launched_ns = tree.exclusive(np.tile(leaves["launched_ns"], len(_LEVELS)))
        texts = [
            labels.texts[code] if level else WORDS[code % len(WORDS)]
            for level, code in zip(depth.tolist(), tree.key.tolist(), strict=True)
        ]
        order = trees.preorder(tree.parent, trees.heaviest_first(texts, time_ns))
        self._leaves, self._labels = leaves, labels
        self.depth, self.time_ns, self.launched_ns = depth[order], time_ns[order], launched_ns[order]
        self.texts = [texts[node] for node in order.tolist()]
        position = np.full(len(order) + 1, NO_ROW)  # the last item, position[NO_ROW], remains NO_ROW
        position[order] = np.arange(len(order))
        self._rows = position[tree.node].reshape(len(_LEVELS), count)  # of each leaf, at each level
        self.groups = {name: self._of_any_leaf(leaves[name]) for name in by}
        self.calls = self._distinct_calls()

    def _of_any_leaf(self, values: IntArray) -> IntArray:
        result = np.full(len(self.depth), NO_ROW)
        for row in self._rows:
            result[row[row != NO_ROW]] = values[row != NO_ROW]
        return result

    def _distinct_calls(self) -> IntArray:
        """Return the number of distinct calls below each row."""
        call, calls = self._leaves["call"], np.zeros(len(self.depth), np.int64)
        order = np.argsort(call, kind="stable")  # the calls of a device are nearly in order
        order = order[np.searchsorted(call[order], 0) :]
        for row in self._rows:
            _count_calls(call[order], row[order], np.full(len(calls), NO_ROW, np.int64), calls)
        return calls

    def waits(self) -> list[str | None]:
        """Return the wait that most of the time of each row follows, None if there is none."""
        wait, time_ns, count = self._leaves["wait"], self._leaves["time_ns"], len(self._labels.texts)
        result: list[str | None] = [None] * len(self.depth)
        for row in self._rows:
            leaf = np.flatnonzero((row != NO_ROW) & (wait != NO_ROW))
            pairs = group({"pair": row[leaf] * count + wait[leaf]})
            number = pairs.keys["pair"].to_numpy(np.int64)
            large = pairs.sum(time_ns[leaf]) >= _MOST * self.time_ns[number // max(count, 1)]
            for pair in number[large].tolist():
                result[pair // count] = self._labels.texts[pair % count]
        return result

    def places(self, trace: Trace, least_ns: float) -> list[str | None]:
        """Return the places of the rows with at least ``least_ns``: frames and ranges that were recorded as events, or
        else samples of frames."""
        large = np.append(self.time_ns >= least_ns, False)
        parts = []
        for row in self._rows:
            leaf = np.flatnonzero(large[row])
            parts.append((row[leaf], leaf))
        row, leaf = (np.concatenate(cells) for cells in zip(*parts, strict=True))
        cells = {name: self._leaves[name][leaf] for name in ("row", "rank", "event", "start_ns", "time_ns")}
        result = places(trace, row, cells["row"], cells["time_ns"], len(self.depth))
        if trace.frame_samples:
            row, cells = _when_launched(trace, row, cells)
        for rank in trace.frame_samples:
            number = NO_ROW if rank == "-" else int(rank)
            of_rank = np.flatnonzero(cells["rank"] == number)
            lines = sampled_lines(
                trace.frame_samples[rank], trace.meta.framework, row[of_rank], cells["start_ns"][of_rank],
                cells["time_ns"][of_rank],
            )  # fmt: skip
            for at, line in lines.items():
                result[at] = result[at] or line
        return result


def _when_launched(trace: Trace, row: IntArray, cells: Mapping[str, IntArray]) -> tuple[IntArray, dict[str, IntArray]]:
    """Return the parts with the times in which the host was in the operators that launched device work, once for each
    row of the tree. What the host does while the work runs says nothing about it."""
    event, outer = cells["event"], outermost(trace)[cells["row"]]
    launched = np.flatnonzero((event != NO_ROW) & ~trace.host[event] & (cells["row"] != NO_ROW) & (outer != NO_ROW))
    launched = launched[groupby.distinct([row[launched], outer[launched]], len(launched))[1]]
    chosen = np.append(np.flatnonzero((event == NO_ROW) | trace.host[event]), launched)
    result = {name: values[chosen] for name, values in cells.items()}
    own = len(chosen) - len(launched)
    result["start_ns"][own:] = trace.ints("start_ns")[outer[launched]]
    result["time_ns"][own:] = trace.ints("dur_ns")[outer[launched]]
    return row[chosen], result


@compiled
def _count_calls(call: IntArray, row: IntArray, counted: Out[IntArray], calls: Out[IntArray]) -> None:
    """Count each call once for each row. ``call`` ascends; ``counted`` is the last call that a row counts."""
    for i in range(len(call)):
        if row[i] >= 0 and counted[row[i]] != call[i]:
            counted[row[i]] = call[i]
            calls[row[i]] += 1
