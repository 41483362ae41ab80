"""The causes that take most of the time, as a list: the innermost causes of the tree, each with its share."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import mark
from perfkit_core.causes import account_view
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    IN_FLIGHT,
    LATENCY,
    TAIL,
    UNLAUNCHED,
)
from perfkit_core.trace.model.columns import duration, key

LEAST, MOST = 0.02, 12
"""Minimum share of a cause in the list, and maximum number of causes."""
_REST: Final = "rest"
NO_OPERATOR: Final = "no_operator"
NO_WORK: Final = "no_work"
STATES: Final = (
    (COMPUTE, mark("computing")),
    (COMMUNICATION, mark("communicating")),
    (COPY, mark("copying")),
    (HOST, mark("waiting for the host")),
    (NO_OPERATOR, mark("no operator runs")),
    (NO_WORK, mark("no recorded work")),
    (LATENCY, mark("launch latency")),
    (IN_FLIGHT, mark("launched, not started")),
    (UNLAUNCHED, mark("before unlaunched work")),
    (TAIL, mark("after the last work")),
    (_REST, mark("all else")),
)
STEP, RECORDING = "step_ns", "device_ns"
"""Columns with the share of a cause of a step, and of a recording without steps on one device."""
COLUMNS: Final = (
    key("state", "State", words=STATES),
    duration(STEP, "Per step"),
    duration(RECORDING, "Per device"),
    *(
        column
        for column in account_view.COLUMNS
        if column.name in ("cause", "total_ns", "launched_ns", "ratio", "place")
    ),
)


def largest(tree: pd.DataFrame, on_device: bool, lacks_work: bool = False) -> pd.DataFrame:
    """Return the innermost causes of a table of the view causes, with :data:`COLUMNS`, the largest first. Kernels are
    parts of their operators. A cause without a name is missing. The last row sums up all others. The times are those
    that have the shares. ``on_device``: whether devices work, or only operators on the host. ``lacks_work``: whether
    device work may be missing, so that nothing is known about the times in which none was recorded."""
    time = account_view.time_column(tree)
    depth, time_ns = tree["depth"].to_numpy(np.int64), tree[time].to_numpy(np.int64)
    word = tree["cause"].where(depth == 0).ffill()
    innermost = np.where(word.isin(account_view.INNER), 2, 1)
    parent = pd.Series(np.arange(len(tree)))
    above = {level: parent.where(depth == level).ffill() for level in (0, 1)}
    own_ns = time_ns.copy()  # without the causes below
    for level in (1, 2):
        rows = np.flatnonzero((depth == level) & (level <= innermost))
        np.subtract.at(own_ns, above[level - 1].to_numpy()[rows].astype(np.int64), time_ns[rows])
    state = word if on_device else word.replace(HOST, NO_OPERATOR)
    table = pd.DataFrame({"state": state, "cause": tree["cause"].mask(depth == 0), time: own_ns})
    table = table.assign(place=tree["place"])[(depth <= innermost) & (own_ns > 0)]
    if lacks_work and on_device:
        idle = ~table["state"].isin((COMPUTE, COMMUNICATION, COPY))
        nothing = pd.DataFrame({"state": [NO_WORK], time: [int(table.loc[idle, time].sum())]})
        table = pd.concat([table[~idle], nothing[nothing[time] > 0]], ignore_index=True)
    table = table.sort_values(time, ascending=False, kind="stable")
    whole_ns = max(int(table[time].sum()), 1)
    shown = table[table[time] >= LEAST * whole_ns].head(MOST)
    rest_ns = whole_ns - int(shown[time].sum())
    if len(shown) < len(table):
        shown = pd.concat([shown, pd.DataFrame({"state": [_REST], time: [rest_ns]})])
    shown.insert(3, "ratio", shown[time] / whole_ns)
    return shown.reset_index(drop=True)
