"""View ``annotations``: time of ranges labelled by the user (record_function, RecordEvent) or by the framework."""

from __future__ import annotations

from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.assembly.layers import labelled
from perfkit_core.trace.model.columns import DEVICE, HOST, KIND, NAME, Share, added_by, share
from perfkit_core.trace.model.schema import ANNOTATION, BACKWARD, DATALOADER, FORWARD, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.operators import GROUPINGS, SPAN_COLUMNS, span_table
from perfkit_core.views.steps import step_rows

LABELLED: Final = (ANNOTATION, DATALOADER, FORWARD, BACKWARD, OPTIMIZER)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of name, kind and groupings, with :data:`COLUMNS`. Ranges of the kind
    ``annotation`` were labelled by the user, ranges of other kinds by the framework. Raises UsageError."""
    counted = trace.host & trace.rows("kind", *LABELLED)
    if not request.native:
        # Ranges that ``annotate`` labelled are in the view ``modules``. Here, only native tables contain them.
        layers = labelled(trace)
        counted &= ~((layers.path >= 0) | (layers.mark >= 0))
    result = span_table(trace, request, counted, "kind")
    cpu, device = step_rows.ratios(trace, request, result["total_cpu_ns"], result["total_device_ns"])
    result["total_cpu_ratio"] = cpu
    result.insert(list(result.columns).index("total_device_ns") + 1, "total_device_ratio", device)
    return result.drop(columns=["self_cpu_ratio", "self_device_ratio"])


COLUMNS: Final = (
    NAME,
    *added_by(GROUPINGS),
    KIND,
    *SPAN_COLUMNS,
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns", whole=step_rows.host_ns), place=HOST),
    share("total_device_ratio", "Total device", Share("total_device_ns", whole=step_rows.device_ns), place=DEVICE),
)

VIEW = View(
    name="annotations",
    title="Labelled ranges",
    description="time of ranges labelled by the user or by the framework, and of the device work launched inside them",
    table=Merged(table, native=True),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("total_device_ns", "total_cpu_ns"),
    explain_empty=lambda trace: message("no labelled ranges were recorded"),
)
