"""What was profiled, and how are the tables of this report to be read?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.language.messages import Message, Sentence, Text, mark, message
from perfkit_core.model.columns import key, words
from perfkit_core.model.schema import DEVICE_WORK, NESTED_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.fluid import fluid_events, scope
from perfkit_core.views.fluid.scope import described, thread_numbers
from perfkit_core.views.merging import in_order_of
from perfkit_core.views.select import in_steps, step_numbers

_TOLD: Final = {True: message("apart"), False: message("merged")}


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Place, framework, steps, time unit, order, operator instances and threads merged or apart, and which thread each
    number means."""
    apart, version = scope.asked_for(request, scope.THREAD), (trace.meta.framework, trace.meta.framework_version)
    rows = [
        (mark("place"), _place(trace)),
        (mark("framework"), " ".join(filter(None, version)) or message("not recorded")),
        (mark("steps"), _steps(trace, request)),
        (mark("time unit"), message("as each column says; ns in csv and json")),
        (mark("sorted by"), request.sort or fluid_events.VIEW.order),
        (mark("operator instances"), _TOLD[scope.asked_for(request, scope.INSTANCE)]),
        (mark("threads"), _TOLD[apart]),
        *(_threads(trace) if apart else ()),
    ]
    values = [Sentence(value) if isinstance(value, Message) else value for _, value in rows]
    return pd.DataFrame({"setting": [name for name, _ in rows], "value": pd.Series(values, dtype=object)})


def _place(trace: Trace) -> Text:
    """CPU, GPU or All, as Paddle 1.x has it: what was profiled, not what the machine has."""
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0)])
    if not len(used):
        return "CPU"
    products = {device.id: device.name for device in trace.meta.devices}
    names = sorted(codes.values[code] for code in used)
    shown = ", ".join(f"{name} ({products[name]})" if products.get(name) else name for name in names)
    host = (trace.host & trace.rows("kind", *NESTED_KINDS)).any()
    return message("All: CPU and {devices}", devices=shown) if host else f"GPU: {shown}"


def _threads(trace: Trace) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(thread_numbers(trace)[1].tolist()):
        yield f"thread{number}", described(trace, row)


def _steps(trace: Trace, request: ViewRequest) -> Text:
    in_steps(trace, request)  # a step that was not recorded is refused
    recorded = step_numbers(trace)
    if not recorded:
        return message("none recorded")
    if request.steps is None:
        return message("all {count} recorded, and what lies outside of them", count=len(recorded))
    asked = ", ".join(map(str, sorted(set(request.steps))))
    return message("{steps} of {count} recorded", steps=asked, count=len(recorded))


COLUMNS: Final = (
    words("setting", "Setting"),
    key("value", "Value"),
)

VIEW = View(
    name="fluid_head",
    title="Profiling Report",
    description="what was profiled, and how the tables below are to be read",
    table=table,
    columns=COLUMNS,
    groupings=scope.GROUPINGS,
    group=scope.GROUP,
    page=False,
    reduction=MergedRows(
        finish=lambda table, request: in_order_of(table, "setting", dict.fromkeys(table["setting"])), together_only=True
    ),
)
