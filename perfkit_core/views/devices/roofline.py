"""Views ``roofline`` and ``gemm``: achieved FLOP/s and bytes/s, against the limits of the device. ``roofline`` has a
row for each operator and shape, and ``gemm`` one for each size of a matrix product: M × K times K × N.

The time of operators is the union of the device work that they launched. Without a device, it is their host time. The
limit of an operator is the longer of two times: its FLOPs at the peak rate of its data type, and its bytes at
the peak bandwidth of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, FloatArray, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.plugins.flops.arguments import Argument, Product, Tensor, arguments
from perfkit_core.plugins.flops.peaks import TERA, DevicePeaks, peaks_of, shows_tf32
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.columns import CALLS, OPERATOR_NAME, SHAPES, Column, Share, duration, key, share
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping, select
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.operators import calls
from perfkit_core.views.operators.calls import operator_names, operator_rows
from perfkit_core.views.operators.operator_work import UNKNOWN, counted_operator, operator_work
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.tables import categorical, group, text_column_at, without_categoricals

GROUPINGS: Final = ("device", "module", "phase", "step", "rank")
NO_SHAPES: Final = message("no input shapes were recorded (docs/roofline.md says how to record them)")
COMPUTE, MEMORY = "compute", "memory"
TFLOP_PER_S: Final = 10**-3
"""TFLOP/s per FLOP/ns."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Work of operators with its time: one item per device event, or per operator if there is no device. All arrays
    have the shape (items,)."""

    row: IntArray  # row of the event whose time counts
    operator: IntArray  # row of the operator that the time belongs to, -1 if none
    counted: IntArray  # index of the operator in `operator_work`, -1 if its FLOPs are unknown
    device: IntArray  # code of the device
    tf32: BoolArray  # whether a kernel of the operator rounds the inputs of float32 products

    def of(self, mask: BoolArray) -> Timed:
        return Timed(*(getattr(self, column.name)[mask] for column in fields(self)))


def timed(trace: Trace, chosen: BoolArray) -> Timed:
    """Return the times of the chosen events: all device work except communication, or the operators whose FLOPs are
    known if there is no device work."""
    work, index = operator_work(trace), counted_operator(trace)
    device = trace.codes("device").codes
    if has_device_work(trace):
        rows = np.flatnonzero(chosen & trace.rows("kind", *DEVICE_WORK) & ~communication(trace).device)
        launched_by = trace.ints("launched_by")[rows]
        counted = np.where(launched_by == NO_ROW, NO_ROW, index[launched_by])
        operator = np.where(counted == NO_ROW, operator_rows(trace)[rows], np.append(work.row, NO_ROW)[counted])
    else:
        mask = chosen[work.row]
        rows, counted = work.row[mask], np.flatnonzero(mask)
        operator = rows
    names = trace.codes("name")
    shown = names.lookup(np.array([shows_tf32(name) for name in names.values], np.bool_), False)[rows]
    tf32 = np.zeros(len(work.row) + 1, np.bool_)
    tf32[counted[shown]] = True
    tf32[NO_ROW] = False
    return Timed(rows, operator, counted, device[rows].astype(np.int64), tf32[counted])


def device_peaks(trace: Trace, request: ViewRequest) -> list[DevicePeaks | None]:
    """Return the peak rates of each device in the column ``device``, None if unknown."""
    return [peaks_of(described(trace, name), request.peaks) for name in trace.codes("device").values]


def described(trace: Trace, name: str) -> Device:
    """Return the device with its model, if the trace describes it. ROCm describes ``cuda:0`` and numbers the devices of
    kernels from the number of CPU sockets, so a device without a description is taken for the only recorded model."""
    recorded = {device.id: device for device in trace.meta.devices}
    if name in recorded:
        return recorded[name]
    alike = [device for device in trace.meta.devices if device.id.partition(":")[0] == name.partition(":")[0]]
    only = len({device.name for device in alike}) == 1
    return Device(name, alike[0].name, properties=alike[0].properties) if only else Device(name)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the work of each item's operator, NaN if unknown. All arrays have the shape (items,)."""

    compute_ns: FloatArray  # time of the FLOPs at the peak rate of their type
    memory_ns: FloatArray  # time of the bytes at the peak bandwidth
    tflop_per_s: FloatArray  # the peak rate of the FLOPs
    gb_per_s: FloatArray  # the peak bandwidth of the memory


def limits(trace: Trace, request: ViewRequest, items: Timed) -> Limits:
    """Return the limits of each item by the peak rates of its device."""
    work, peaks = operator_work(trace), device_peaks(trace, request)
    number = np.append(work.distinct, NO_ROW)[items.counted]
    code, first = groupby.distinct((items.device, number, items.tf32.astype(np.int64)), len(items.row))
    values = np.full((4, len(first)), np.nan)
    for column, item in enumerate(first.tolist()):
        device = peaks[items.device[item]]
        if device is None or number[item] == NO_ROW:
            continue
        call = work.works[number[item]]
        rate = device.flops_per_s(call.dtype, call.matrix, bool(items.tf32[item]))
        if call.flops == 0:
            values[0, column] = 0
        elif rate:
            values[[0, 2], column] = call.flops / rate * 1e9, rate / TERA
        if device.memory_gb_per_s and call.bytes is not None:
            values[[1, 3], column] = call.bytes / device.memory_gb_per_s, device.memory_gb_per_s
    return Limits(*values[:, code])


def measured(trace: Trace, request: ViewRequest, items: Timed, names: dict[str, Any]) -> pd.DataFrame:
    """Return one row per combination of ``names`` (columns with one value per item), type and groupings. The other
    columns are those of :data:`MEASURES` that add up over ranks."""
    work = operator_work(trace)
    number = np.append(work.distinct, NO_ROW)[items.counted]
    types = pd.array([call.dtype for call in work.works] + [None], dtype=object)
    around = np.where(items.operator == NO_ROW, items.row, items.operator)
    of_work = {"device": ("device", lambda trace, rows, _: text_column_at(trace.codes("device"), items.row))}
    keys = names | {"type": types[number]} | grouping.keys(trace, request, around, GROUPINGS, of_work)
    groups = group(keys)
    main = main_items(trace, items)
    calls = groupby.distinct((groups.code, operator_keys(items)), len(items.row))[1]
    start, end = trace.ints("start_ns")[items.row], trace.end_ns[items.row]
    # The times of ranks and devices add up. Their work may overlap.
    code, pair = groupby.distinct((groups.code, trace.ints("rank")[items.row], items.device), len(items.row))
    covered = intervals.union_length_by(code, len(pair), start, end)
    result = groups.keys.assign(
        calls=np.bincount(groups.code[calls], minlength=len(groups)),
        time_ns=groupby.sums(groups.code[pair], len(groups), covered),
    )
    for name in ("flops", "bytes"):
        values = np.append(work.values(name), UNKNOWN)[items.counted]
        result[name] = groups.known_sum(np.where(main, values, 0), values != UNKNOWN)
    limit = limits(trace, request, items)
    times = {"compute_ns": limit.compute_ns, "memory_ns": limit.memory_ns}
    times["limit_ns"] = np.maximum(limit.compute_ns, limit.memory_ns)  # unknown unless both are known
    for name, values in times.items():
        # Rounded for each call, so that the sum does not depend on the order or the grouping.
        result[name] = groups.known_sum(
            np.rint(np.where(main, np.nan_to_num(values), 0)).astype(np.int64), ~np.isnan(values)
        )
    for name in ("tflop_per_s", "gb_per_s"):
        result[f"peak_{name}"] = pd.Series(getattr(limit, name)).groupby(groups.code).max().astype("Float64")
    return without_categoricals(result)


def operator_keys(items: Timed) -> IntArray:
    """Return a number for each item that items of the same operator share. Shape (items,)."""
    return np.where(items.operator == NO_ROW, -1 - np.arange(len(items.row)), items.operator)


def main_items(trace: Trace, items: Timed) -> BoolArray:
    """Return the mask of one item of each operator, so that its work counts once and on the device that computes it:
    the operator's longest kernel, not a copy, a memset or the work of another device."""
    kernel_ns = np.where(trace.rows("kind", *DEVICE_WORK[1:])[items.row], -1, trace.ints("dur_ns")[items.row])
    order = np.argsort(-kernel_ns, kind="stable")
    mask = np.zeros(len(order), np.bool_)
    mask[order[groupby.distinct((operator_keys(items)[order],), len(order))[1]]] = True
    return mask


def rated(table: pd.DataFrame, declared: Iterable[Column]) -> pd.DataFrame:
    """Return the ``declared`` columns: those of :func:`measured`, and the rates that follow from them."""
    time = table["time_ns"].astype("Float64").where(table["time_ns"] > 0)
    limit, flops, size = (table[name].astype("Float64") for name in ("limit_ns", "flops", "bytes"))
    compute, memory = (table[name].astype("Float64").fillna(-1) for name in ("compute_ns", "memory_ns"))
    bound = pd.Series(np.where(compute >= memory, COMPUTE, MEMORY), dtype=object, index=table.index)
    result = table.assign(
        tflop_per_s=(flops / time * TFLOP_PER_S).where(flops > 0),
        gb_per_s=size / time,
        flop_per_byte=(flops / size.where(size > 0)).where(flops > 0),
        bound=bound.where(limit > 0, pd.NA),
        limit_ratio=limit / time,
        above_ns=(table["time_ns"] - table["limit_ns"]).clip(lower=0),
    )
    return result[[column.name for column in declared if column.name in result]]


LIMITS: Final = (duration("compute_ns", "Compute"), duration("memory_ns", "Memory"))
"""Columns of :func:`measured` that :func:`rated` compares and leaves out."""
TYPE: Final = key("type", "Type", "data type of the inputs")
MEASURES: Final = (
    CALLS,
    duration(
        "time_ns", "Time", "union of the device work, or host time without a device; rows may overlap", over="steps"
    ),
    share("limit_ratio", "Of roofline", Share("limit_ns", column="time_ns"), description="limit divided by time"),
    duration("above_ns", "Above limit", "time less the limit", over="steps"),
    columns.text("bound", "Bound", "which limit is longer: FLOPs or bytes at the peak rates", words=(COMPUTE, MEMORY)),
    columns.Column("tflop_per_s", "Achieved", "FLOPs divided by time", unit="tflop_per_s"),
    columns.Column("gb_per_s", "Achieved", "bytes divided by time", unit="gb_per_s"),
    columns.count("flop_per_byte", "FLOP/byte", "arithmetic intensity", exact=True),
    duration("limit_ns", "Limit", "shortest possible time at the peak rates of the device", over="steps"),
    columns.FLOPS,
    columns.Column("peak_tflop_per_s", "Peak", "of the data type", unit="tflop_per_s", merge=columns.FIRST),
    columns.Column("peak_gb_per_s", "Peak", "of the memory", unit="gb_per_s", merge=columns.FIRST),
    columns.size("bytes", "Bytes", "sizes of all inputs and results", over="steps", heading="complete"),
)


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
