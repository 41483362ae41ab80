"""Which code took the time? A tree of Python frames, the outermost at the root.

A frame that was recorded as an event has the line where its function begins; where it ran already when the recording
began, the line at which it was then (torch records no other); a frame in the stack of an operator has the line that
called it.

Where frames were recorded as events, a frame's time is its duration: what it calls, and Python itself. Where only the
operators hold their stack, it is the time of those operators. Device work belongs to the frame whose code launched it;
that of a backward pass is launched by the line that runs it, not by the line of the forward operator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.trees import heaviest_first, preorder
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import (
    CALLS,
    CPU,
    DEPTH,
    HOST,
    NAME,
    ON_DEVICE,
    SELF_CPU,
    SELF_DEVICE,
    Share,
    share,
    text,
)
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import attribution
from perfkit_core.views.code import frames
from perfkit_core.views.code.frames import Frames
from perfkit_core.views.select import selected
from perfkit_core.views.tables import ratio


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The frames as a tree; see :data:`COLUMNS`. Ratios: of the roots."""
    counted = selected(trace, request)
    found = frames.events(trace, counted) if frames.recorded(trace) else frames.stacks(trace, counted)
    owner = attribution.self_device_ns(trace)
    device = np.where(counted, owner, 0)
    columns = {
        "calls": found.calls,
        "total_cpu_ns": found.total_ns,
        "self_cpu_ns": found.self_ns,
        "total_device_ns": found.tree.inclusive(device),
        "self_device_ns": found.tree.own(device),
    }
    seen = nesting.sum_up(found.tree.parent, found.calls + found.total_ns) > 0
    order = preorder(found.tree.parent, heaviest_first((found.names[key] for key in found.tree.key), found.total_ns))
    return _table(found, columns, order[seen[order]])


def _table(found: Frames, columns: dict[str, IntArray], order: IntArray) -> pd.DataFrame:
    names = frames.split(found.names)
    result = pd.DataFrame({"depth": found.tree.depth()[order]})
    for name, values in names.items():
        result[name] = values.iloc[found.tree.key[order]].reset_index(drop=True)
    for name, numbers in columns.items():
        result[name] = numbers[order]
    whole = int(result.loc[result["depth"] == 0, "total_cpu_ns"].sum())
    for kind in ("total", "self"):
        place = list(result.columns).index(f"{kind}_cpu_ns")
        result.insert(place + 1, f"{kind}_cpu_ratio", ratio(result[f"{kind}_cpu_ns"], whole))
    return result


def _why_empty(trace: Trace) -> Text:
    return message(
        "no Python stacks were recorded: where the profiler can, with_stack=True asks for them (record --stacks)"
    )


COLUMNS = (
    DEPTH,
    replace(NAME, description="``file.py(12): function``"),
    text("file", "File"),
    text("line", "Line"),
    text("function", "Function"),
    replace(CALLS, description="0 where only the stacks of operators name the frame, or only what it calls counts"),
    replace(CPU[0], own="self_cpu_ns"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST, own="self_cpu_ratio"),
    replace(SELF_CPU, description="without the frames that it calls"),
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", of="total_cpu_ns"), place=HOST),
    replace(ON_DEVICE[0], own="self_device_ns"),
    SELF_DEVICE,
)

VIEW = View(
    name="code",
    title="Code",
    description="host and device time of Python functions (or of calling lines, where operators hold them), as a tree",
    table=table,
    columns=COLUMNS,
    order="total_cpu_ns",
    explain_empty=_why_empty,
    reduction=MergedRows(weight=("total_cpu_ns",)),
)
