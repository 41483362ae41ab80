"""What was profiled, and how are the tables of this report to be read?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from perfkit_core.analyses.fluid import events, scope
from perfkit_core.analyses.fluid.threads import described, thread_numbers
from perfkit_core.analyses.select import in_steps, step_numbers
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, NESTED_KINDS
from perfkit_core.trace import Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns setting, value: place, framework, steps, time unit, order, operator instances and threads merged or
    apart, and which thread each number means."""
    apart = scope.asked_for(request, scope.THREAD)
    rows = [
        ("place", _place(trace)),
        ("framework", " ".join(filter(None, (trace.meta.framework, trace.meta.framework_version))) or "not recorded"),
        ("steps", _steps(trace, request)),
        ("time unit", "as each column says; ns in csv and json"),
        ("sorted by", request.sort or events.VIEW.order),
        ("operator instances", "apart" if scope.asked_for(request, scope.INSTANCE) else "merged"),
        ("threads", "apart" if apart else "merged"),
        *(_threads(trace) if apart else ()),
    ]
    return pd.DataFrame(rows, columns=["setting", "value"])


def _place(trace: Trace) -> str:
    """CPU, GPU or All, as Paddle 1.x has it: what was profiled, not what the machine has."""
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0)])
    if not len(used):
        return "CPU"
    products = {device.id: device.name for device in trace.meta.devices}
    names = sorted(codes.values[code] for code in used)
    shown = ", ".join(f"{name} ({products[name]})" if products.get(name) else name for name in names)
    host = (trace.host & trace.rows("kind", *NESTED_KINDS)).any()
    return f"{'All: CPU and ' if host else 'GPU: '}{shown}"


def _threads(trace: Trace) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(thread_numbers(trace)[1].tolist()):
        yield f"thread{number}", described(trace, row)


def _steps(trace: Trace, request: ViewRequest) -> str:
    in_steps(trace, request)  # a step that was not recorded is refused
    recorded = step_numbers(trace)
    if not recorded:
        return "none recorded"
    if request.steps is None:
        return f"all {len(recorded)} recorded, and what lies outside of them"
    return f"{', '.join(map(str, sorted(set(request.steps))))} of {len(recorded)} recorded"


VIEW = View(
    name="fluid_head",
    title="Profiling Report",
    description="what was profiled, and how the tables below are to be read",
    table=table,
    groupings=scope.GROUPINGS,
    group=scope.GROUP,
    page=False,
)
