"""How long did the labelled ranges take: the user's own (record_function, RecordEvent) and those of the framework?"""

from __future__ import annotations

import pandas as pd

from perfkit_core.analyses.operators import GROUPINGS, span_table
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import ANNOTATION, BACKWARD, DATALOADER, FORWARD, OPTIMIZER
from perfkit_core.trace import Trace

LABELLED = (ANNOTATION, DATALOADER, FORWARD, BACKWARD, OPTIMIZER)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, [shapes, stack, tid,] kind, calls, self_cpu_ns, total/avg/min/max_cpu_ns, self_device_ns,
    total_device_ns. Kind ``annotation`` is the user's own label, the others are the framework's."""
    result = span_table(trace, request, trace.host & trace.rows("kind", *LABELLED), "kind")
    return result.drop(columns=["self_cpu_ratio"])


VIEW = View(
    name="annotations",
    title="Labelled ranges",
    description="time of the ranges that the user or the framework labelled, and of the device work launched inside",
    table=table,
    groupings=GROUPINGS,
    order="total_cpu_ns",
    explain_empty=lambda trace: "no labelled ranges were recorded",
)
