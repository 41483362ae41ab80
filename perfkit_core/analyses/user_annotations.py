"""How long did the ranges take that users labelled (record_function, RecordEvent)?"""

from __future__ import annotations

import pandas as pd

from perfkit_core.analyses.operators import operator_table
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import ANNOTATION
from perfkit_core.trace import Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, calls, self_cpu_ns, total/avg/min/max_cpu_ns, self_device_ns, total_device_ns."""
    result = operator_table(trace, request, trace.host & trace.rows("kind", ANNOTATION))
    return result.drop(columns=["op_name", "self_cpu_ratio"])


VIEW = View(
    name="annotations",
    title="User annotations",
    description="time of the ranges that the user labelled, and of the device work launched inside",
    table=table,
    groupings=("shape", "stack", "thread"),
    order="total_cpu_ns",
    explain_empty=lambda trace: "no user labels were recorded",
)
