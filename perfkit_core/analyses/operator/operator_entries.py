"""The events of the operator tree in one list, parents before children, and what tells them apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses import attribution, grouping
from perfkit_core.analyses.operator import overloads
from perfkit_core.analyses.operator.operator_members import Members, members
from perfkit_core.analyses.operator.spans import GROUPINGS, keys
from perfkit_core.analyses.operator.unowned import unowned
from perfkit_core.analyses.tables import group, plain
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace


@dataclass(frozen=True, slots=True)
class Entries:
    """``above``: the entry above each (-1: root); ``row``: its event (-1: a root that is no event); ``device_ns``:
    device time of each with everything below; ``top``: row of ``tops`` of each root (-1: no root), shape (entries,).
    ``tops``: name and groupings of the distinct roots. The first ``host`` entries are host events."""

    above: IntArray
    row: IntArray
    device_ns: IntArray
    top: IntArray
    tops: pd.DataFrame
    host: int

    def keys(self, trace: Trace) -> IntArray:
        """Equal for entries that are one row of the tree when they are below the same one, shape (entries,)."""
        names, kinds = overloads.operator_names(trace), trace.codes("kind")
        below = names.codes[self.row].astype(np.int64) * len(kinds.values) + kinds.codes[self.row]
        return np.where(self.top == NO_ROW, len(self.tops) + below, self.top)


def entries(trace: Trace, request: ViewRequest) -> Entries:
    """Operators with all below them, then device work that no operator owns. Raises UsageError."""
    found = members(trace, request)
    owned, alone = _of_operators(trace, request, found), _alone(trace, request)
    offset, tops = len(owned.row), len(owned.tops)
    return Entries(
        np.concatenate([owned.above, np.where(alone.above == NO_ROW, NO_ROW, alone.above + offset)]),
        np.concatenate([owned.row, alone.row]),
        np.concatenate([owned.device_ns, alone.device_ns]),
        np.concatenate([owned.top, np.where(alone.top == NO_ROW, NO_ROW, alone.top + tops)]),
        pd.concat([owned.tops, alone.tops], ignore_index=True) if len(alone.tops) else owned.tops,
        owned.host,
    )


def _of_operators(trace: Trace, request: ViewRequest, found: Members) -> Entries:
    shown = found.root | found.inner
    host = np.flatnonzero(shown)
    position = np.full(len(trace) + 1, NO_ROW, np.int64)
    position[host] = np.arange(len(host))
    roots = group(keys(trace, request, np.flatnonzero(found.root)))
    top = np.full(len(host) + len(found.work), NO_ROW)
    top[np.flatnonzero(found.root[host])] = roots.code
    return Entries(
        np.concatenate([position[nesting.nearest_above(found.parent, shown)[host]], position[found.holder]]),
        np.concatenate([host, found.work]),
        np.concatenate([attribution.total_device_ns(trace)[host], trace.ints("dur_ns")[found.work]]),
        top,
        plain(roots.keys),
        len(host),
    )


def _alone(trace: Trace, request: ViewRequest) -> Entries:
    """One root a reason (and grouping), the device work below it."""
    reasons = unowned(trace, request)
    rows = np.concatenate([_EMPTY, *reasons.values()])
    name = np.repeat(np.array(list(reasons), object), [len(each) for each in reasons.values()])
    roots = group({"name": name} | grouping.keys(trace, request, rows, GROUPINGS))
    count, dur_ns = len(roots), trace.ints("dur_ns")[rows]
    return Entries(
        np.concatenate([np.full(count, NO_ROW), roots.code]),
        np.concatenate([np.full(count, NO_ROW), rows]),
        np.concatenate([roots.sum(dur_ns), dur_ns]),
        np.concatenate([np.arange(count), np.full(len(rows), NO_ROW)]),
        plain(roots.keys),
        0,
    )


_EMPTY = np.empty(0, np.int64)
