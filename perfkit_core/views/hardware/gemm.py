"""View ``gemm``: matrix products by size. A product multiplies an M × K matrix with a K × N matrix."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.plugins.flops.arguments import Product
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.columns import OPERATOR_NAME, key
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.hardware.timed_work import GROUPINGS, MEASURES, NO_SHAPES, TYPE, measured, rated, timed
from perfkit_core.views.operators.calls import operator_names
from perfkit_core.views.operators.operator_work import operator_work
from perfkit_core.views.tables import text_column_at

_NO_PRODUCT: Final = Product(-1, -1, -1, -1)
_SIZES: Final = (
    key("m", "M", proper=True),
    key("n", "N", proper=True),
    key("k", "K", proper=True),
    key("batch", "Batch", description="number of products in one call"),
)
COLUMNS: Final = (OPERATOR_NAME, *_SIZES, TYPE, *columns.added_by(GROUPINGS), *MEASURES)


def sums(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the columns of the view that add up over ranks."""
    work = operator_work(trace)
    sizes = np.array([call.product or _NO_PRODUCT for call in work.works] + [_NO_PRODUCT], np.int64)
    items = timed(trace, select.selected(trace, request))
    sizes = sizes[np.append(work.distinct, -1)[items.counted]]
    is_product = sizes[:, 0] >= 0
    items, sizes = items.of(is_product), sizes[is_product]
    names = {"name": text_column_at(operator_names(trace), items.operator)}
    names |= {column.name: sizes[:, Product._fields.index(column.name)] for column in _SIZES}
    return measured(trace, request, items, names)


def finished(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    return rated(table, COLUMNS)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of operator, sizes, type and groupings, with :data:`COLUMNS`. Limits are
    NA if the peak rates of the device are unknown. Raises UsageError."""
    return finished(sums(trace, request), request)


VIEW = View(
    name="gemm",
    title="Matrix products",
    description="matrix products by size and data type, with their efficiency",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("above_ns", "time_ns"),
    explain_empty=lambda run: message("no matrix products were recorded") if run.has_values("shapes") else NO_SHAPES,
    reduction=MergedRows(partial=sums, finish=finished),
)
