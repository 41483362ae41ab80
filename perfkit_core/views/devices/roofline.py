"""Views ``roofline`` and ``gemm``: achieved FLOP/s and bytes/s, against the limits of the device. ``roofline`` has a
row for each operator and shape, and ``gemm`` one for each size of a matrix product: M × K times K × N."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.plugins.flops.arguments import Argument, Product, Tensor, arguments
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.columns import OPERATOR_NAME, SHAPES, key
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.devices.timed_work import GROUPINGS, LIMITS, MEASURES, NO_SHAPES, TYPE, measured, rated, timed
from perfkit_core.views.operators import calls
from perfkit_core.views.operators.calls import operator_names
from perfkit_core.views.operators.operator_work import operator_work
from perfkit_core.views.tables import categorical, text_column_at

COLUMNS: Final = (OPERATOR_NAME, SHAPES, TYPE, *columns.added_by(GROUPINGS), *MEASURES)


def sums(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the columns of the view that add up over ranks."""
    items = timed(trace, select.selected(trace, request))
    names = text_column_at(calls.operator_names(trace), items.operator).add_categories([calls.NO_LAUNCH, calls.OUTSIDE])
    launched = trace.ints("launched_by")[items.row] != NO_ROW
    names[~launched & (items.operator == NO_ROW)] = calls.NO_LAUNCH
    names[launched & (items.operator == NO_ROW)] = calls.OUTSIDE
    codes = trace.codes("shapes")
    texts = [tensors(text) for text in codes.values]
    shown = codes.lookup(np.array([number if text else NO_ROW for number, text in enumerate(texts)], np.int64), NO_ROW)
    shapes = categorical(np.append(shown, NO_ROW)[items.operator], texts)
    return measured(trace, request, items, {"name": names, "shapes": shapes})


def tensors(shapes: str) -> str:
    """Return the sizes of the tensors among recorded arguments: ``8×64, 64×32``. Lists of tensors are in brackets."""
    try:
        recorded = arguments(shapes, None, None)
    except ValueError:
        return shapes
    return ", ".join(text for argument in recorded if (text := _sizes(argument)))


def _sizes(argument: Argument) -> str:
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_sizes, argument))}]"
    return "×".join(map(str, argument.shape)) if isinstance(argument, Tensor) else ""


def finished(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    return rated(table, COLUMNS)


def explain_empty(trace: Trace) -> Text:
    if not trace.has_values("shapes"):
        return NO_SHAPES
    return message("no recorded operator has a formula of FLOPs")


VIEW = View(
    name="roofline",
    title="Roofline",
    description="achieved FLOP/s and bytes/s of each operator and shape, against the limits of the device; --peaks "
    "FILE gives the limits of devices that perfkit does not know",
    table=Merged(sums, finished, columns=LIMITS),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order=("above_ns", "time_ns"),
    explain_empty=explain_empty,
)


_NO_PRODUCT: Final = Product(-1, -1, -1, -1)
_SIZES: Final = (
    key("m", "M", heading="proper"),
    key("n", "N", heading="proper"),
    key("k", "K", heading="proper"),
    key("batch", "Batch", "number of products in one call"),
)
GEMM_COLUMNS: Final = (OPERATOR_NAME, *_SIZES, TYPE, *columns.added_by(GROUPINGS), *MEASURES)


def products(trace: Trace, request: ViewRequest) -> pd.DataFrame:
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


def finished_products(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    return rated(table, GEMM_COLUMNS)


GEMM_VIEW = View(
    name="gemm",
    title="Matrix products",
    description="matrix products by size and data type, with their efficiency",
    table=Merged(products, finished_products, columns=LIMITS),
    columns=GEMM_COLUMNS,
    groupings=GROUPINGS,
    order=("above_ns", "time_ns"),
    explain_empty=lambda run: message("no matrix products were recorded") if run.has_values("shapes") else NO_SHAPES,
)
