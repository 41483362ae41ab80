"""View ``memory_manipulation``: host time of calls that copy or fill memory, and device time of the work they launch.

The view counts host events with memcpy, memorycopy or memset in their name, and operators that copy (``copy_``,
``_to_copy``). ``--native`` (Paddle) counts only events with such a name and of Paddle's types UserDefined and
PythonUserDefined. The time of an event includes the events inside it, even if these have rows, too.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.algorithms.arrays import filled
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Grouped, View, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import (
    CALLS,
    CPU,
    DEVICE,
    HOST,
    KIND,
    ON_DEVICE,
    OPERATOR_NAME,
    Share,
    added_by,
    measured,
    share,
)
from perfkit_core.trace.model.schema import ANNOTATION, DEVICE_WORK, OPERATOR, OPERATOR_DETAIL, RUNTIME
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping
from perfkit_core.views.operators import calls
from perfkit_core.views.steps import step_rows
from perfkit_core.views.tables import integers, texts

GROUPINGS: Final = ("thread", "label", "scope", "module", "phase", "step", "rank")
_WORDS: Final = "(?i)memcpy|memorycopy|memset"
_COPIES: Final = r"(?:^|[:._])(?:_?to_)?copy_?$"


def _manipulates(trace: Trace, request: ViewRequest) -> arrays.BoolArray:
    """Return the mask of the events that count, if the request selects them. Shape (rows,)."""
    names, categories = calls.operator_names(trace), trace.codes("category")
    manipulates: arrays.BoolArray = names.lookup(arrays.matches(names.values, _WORDS), False) & trace.host
    if request.native:
        user_defined = categories.lookup(arrays.matches(categories.values, "UserDefined$"), False)
        manipulates &= user_defined & trace.rows("kind", ANNOTATION, OPERATOR_DETAIL)
        return manipulates
    copies = names.lookup(arrays.matches(names.values, _COPIES), False)
    manipulates &= trace.rows("kind", RUNTIME, ANNOTATION, OPERATOR, OPERATOR_DETAIL)
    manipulates |= copies & trace.rows("kind", OPERATOR) & trace.host
    manipulates &= calls.is_call(trace)
    return manipulates


def _keys(trace: Trace, request: ViewRequest, rows: arrays.IntArray) -> dict[str, Any]:
    keys = {"name": texts(calls.operator_names(trace), rows), "kind": texts(trace.codes("kind"), rows)}
    return keys | grouping.keys(trace, request, rows, GROUPINGS)


@once
def _launched_ns(trace: Trace) -> arrays.IntArray:
    """Return the time of the device work that each call launched, or that calls inside it launched. Shape (rows,).
    Device work counts for the runtime call that launched it, because this view has rows for runtime calls. The module
    ``attribution`` would count it for the event around the call."""
    launched_by, launched_ns = trace.ints("launched_by"), filled(len(trace), 0)
    work = trace.rows("kind", *DEVICE_WORK) & (launched_by != arrays.NO_ROW)
    np.add.at(launched_ns, launched_by[work], trace.ints("dur_ns")[work])
    return nesting.sum_up(trace.ints("parent"), launched_ns)


def _on_device(trace: Trace, request: ViewRequest, rows: arrays.IntArray) -> Any:
    recorded = request.native or trace.rows("kind", *DEVICE_WORK).any()
    return integers(_launched_ns(trace)[rows], np.full(len(rows), recorded))


COLUMNS: Final = (
    OPERATOR_NAME,
    KIND,
    *added_by(GROUPINGS),
    CALLS,
    *CPU,
    share("cpu_ratio", "CPU", Share("total_cpu_ns", whole=step_rows.host_ns), place=HOST),
    *ON_DEVICE,
    share("device_ratio", "Device", Share("total_device_ns", whole=step_rows.device_ns), place=DEVICE),
)

VIEW = View(
    name="memory_manipulation",
    title="Memory manipulation",
    description="host calls that copy or fill memory, and the device work that they launch",
    table=Grouped(
        _manipulates,
        _keys,
        values=measured("cpu", "dur_ns") | measured("device", _on_device),
        native=True,
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_cpu_ns",
    explain_empty=lambda trace: message("no host event is named like a memory copy or fill"),
)
