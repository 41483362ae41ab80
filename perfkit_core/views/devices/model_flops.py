"""View ``model_flops``: FLOPs of matrix products in the steps, and the share of the peak rate that they reach.

The model FLOPs are those of the forward and backward passes. The hardware FLOPs also include what is computed again to
save memory: the scores in the backward pass of fused attention, and the forward operators that activation checkpointing
repeats. The utilisation is the time that these FLOPs take at the peak rates of their data types, divided by the time of
the steps: MFU for model FLOPs, HFU for hardware FLOPs.

Operators that compute matrix products but whose FLOPs are unknown are missing in the FLOPs. The table says how many
they are. If they take more than :data:`MOST_UNCOUNTED` of the time, the utilisations are unknown, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, FloatArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.base.operators.names import PRODUCT_FAMILIES, family, is_product
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import RANK, STEP, Column, count, duration, operations, share, text
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.devices.roofline import TFLOP_PER_S, Timed, limits, main_items, operator_keys, timed
from perfkit_core.views.modules import layer_flops
from perfkit_core.views.operators.calls import outermost
from perfkit_core.views.operators.families import event_families
from perfkit_core.views.operators.operator_work import operator_work, repeated, uncounted
from perfkit_core.views.steps import serving, step_rows
from perfkit_core.views.steps.activity import has_device_work

GROUPINGS: Final = ("step", "rank")
MOST_UNCOUNTED: Final = 0.05
"""Largest share of the time of operators without FLOPs at which the utilisation still describes the model."""
INCOMPLETE: Final = "products without FLOPs"
_UNCOUNTED: Final = ("uncounted_calls", "uncounted_ns", "work_ns")


def sums(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the columns of the view that add up: a row for each rank, or for each rank and step."""
    chosen = select.in_steps(trace, request)
    steps = step_rows.step_rows(trace)
    steps = steps[chosen[steps]]
    by = ["rank", "step"] if "step" in request.by and len(steps) else ["rank"]
    served = serving.by_step(trace, request)
    if len(served):  # ranges of a server's steps on the host do not show how long the steps take
        times = served[["rank", "step"]].assign(step_ns=served["step_ns"].fillna(served["busy_ns"]), steps=1)
    elif len(steps):
        times = step_rows.step_frame(trace, steps).rename(columns={"dur_ns": "step_ns"}).assign(steps=1)
    else:  # without steps, the time from the first to the last event of each rank
        code, start, end = select.spans(trace, chosen)
        times = pd.DataFrame({"rank": select.ranks(trace)[code], "step_ns": end - start})
        times["rank"] = times["rank"].astype("Int64").where(times["rank"] >= 0)
    chosen = chosen & ((trace.ints("step") >= 0) | (len(steps) == 0))
    items = timed(trace, chosen)
    work = _of_operators(trace, request, items)
    if not len(work):
        work = _of_layers(trace, chosen)
    summed = dict.fromkeys(("model_flops", "hardware_flops"), "Int64") | dict.fromkeys(_IDEAL, "Float64")
    totals = work.groupby(by, dropna=False)[list(summed)].sum(min_count=1).reset_index()
    rows = times.drop(columns=[name for name in ("step",) if name not in by], errors="ignore")
    rows = rows.groupby(by, dropna=False).sum(min_count=1).reset_index()
    rows = rows.merge(_devices(trace, items), on="rank", how="left")
    rows = rows.merge(
        _uncounted(trace, items, chosen).groupby(by, dropna=False)[list(_UNCOUNTED)].sum().reset_index(),
        on=by,
        how="left",
    )
    return rows.merge(totals, on=by, how="left").astype(summed | dict.fromkeys(_UNCOUNTED, "Int64"))


def _devices(trace: Trace, items: Timed) -> pd.DataFrame:
    """Return the number of devices that the operators of each rank used."""
    used = pd.DataFrame({"rank": _nullable_rank(trace.ints("rank")[items.row]), "devices": items.device})
    return used.groupby("rank", dropna=False)["devices"].nunique().astype("Int64").reset_index()


def _uncounted(trace: Trace, items: Timed, chosen: BoolArray) -> pd.DataFrame:
    """Return one row per device event of ``items`` (without a device, per chosen outermost operator): rank, step, its
    duration ``work_ns``, and the calls and the duration of matrix products in it whose FLOPs are unknown."""
    names, calls = trace.codes("op_name"), np.zeros(len(trace), np.int64)
    if has_device_work(trace):
        rows, families = items.row, event_families(trace)
        moves = [family(name) in PRODUCT_FAMILIES and not is_product(name) for name in names.values]
        moved = np.append(names.lookup(np.array(moves, np.bool_), False), False)[items.operator]
        products = np.isin(families.codes[rows], [families.values.index(name) for name in PRODUCT_FAMILIES])
        missing = products & ~moved & ~np.append(operator_work(trace).matrix, False)[items.counted]
        launched = np.flatnonzero(missing)
        first = groupby.distinct((operator_keys(items)[launched],), len(launched))[1]
        calls[rows[launched[first]]] = 1
        missing_ns = np.where(missing, trace.ints("dur_ns")[rows], 0)
    else:
        rows = np.flatnonzero(chosen & nesting.is_own(outermost(trace)))
        mask = uncounted(trace)
        calls[mask] = 1
        missing_ns = nesting.sum_up(trace.ints("parent"), np.where(mask, trace.ints("dur_ns"), 0))[rows]
        calls = nesting.sum_up(trace.ints("parent"), calls)
    columns = {"rank": _nullable_rank(trace.ints("rank")[rows]), "step": trace.ints("step")[rows]}
    numbers = (calls[rows], missing_ns, trace.ints("dur_ns")[rows])
    return pd.DataFrame(columns | dict(zip(_UNCOUNTED, numbers, strict=True)))


def _of_operators(trace: Trace, request: ViewRequest, items: Timed) -> pd.DataFrame:
    """Return one row per operator with matrix products: rank, step, FLOPs, and ideal times in ns."""
    work = operator_work(trace)
    items = items.of(np.append(work.matrix, False)[items.counted])
    items = items.of(main_items(trace, items))
    flops, twice = work.values("flops")[items.counted], work.values("recomputed")[items.counted]
    model = np.where(repeated(trace, work.row)[0][items.counted], 0, flops - twice)
    ideal = limits(trace, request, items).compute_ns
    return _frame(trace, items.operator, model, flops, ideal * model / np.maximum(flops, 1), ideal)


def _of_layers(trace: Trace, chosen: BoolArray) -> pd.DataFrame:
    """Return one row per call of a layer whose FLOPs were stored when the model was annotated."""
    flops = layer_flops(trace)
    rows = np.flatnonzero(chosen & (flops > 0))
    unknown = np.full(len(rows), np.nan)
    return _frame(trace, rows, flops[rows], flops[rows], unknown, unknown)


_IDEAL: Final = ("ideal_ns", "hardware_ideal_ns")
"""Columns of the time of the model's and the hardware's FLOPs at the peak rate."""


def _frame(
    trace: Trace, rows: IntArray, model: IntArray, hardware: IntArray, ideal: FloatArray, hardware_ideal: FloatArray
) -> pd.DataFrame:
    columns = {"rank": _nullable_rank(trace.ints("rank")[rows]), "step": trace.ints("step")[rows]}
    columns |= {"model_flops": model, "hardware_flops": hardware}
    return pd.DataFrame(columns | dict(zip(_IDEAL, (ideal, hardware_ideal), strict=True)))


def _nullable_rank(rank: IntArray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(rank, rank < 0)


def finished(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    time = table["step_ns"].astype("Float64").where(table["step_ns"] > 0)
    result = table.assign(tflop_per_s=table["model_flops"] / time * TFLOP_PER_S)
    work = table["work_ns"].astype("Float64").where(table["work_ns"] > 0)
    result["uncounted_ratio"] = table["uncounted_ns"] / work
    complete = ~(result["uncounted_ratio"] > MOST_UNCOUNTED).fillna(False)
    for name, ideal in zip(("mfu_ratio", "hfu_ratio"), _IDEAL, strict=True):
        result[name] = (table[ideal] / (time * table["devices"])).where(complete)
    if not complete.all():
        result["missing"] = pd.Series(pd.NA, table.index, dtype=object).where(complete, INCOMPLETE)
    return result[[column.name for column in COLUMNS if column.name in result]]


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank (and step, if grouped), with :data:`COLUMNS`. Utilisations are NA if the peak rates of
    the device are unknown. Raises UsageError."""
    rows = finished(sums(trace, request), request)
    return rows[rows["model_flops"].fillna(0) > 0].reset_index(drop=True)


COLUMNS: Final = (
    RANK,
    replace(STEP, by=("step",)),
    count("steps", "Steps", exact=True),
    count("devices", "Devices", "devices that the operators of the rank used", exact=True),
    duration(
        "step_ns",
        "Time of all steps",
        "of an inference server: from the end of the previous step, else the device busy time",
        over="steps",
    ),
    operations("model_flops", "Model FLOPs", "forward and backward pass, without recomputation", over="steps"),
    operations("hardware_flops", "Hardware FLOPs", "including recomputation", over="steps"),
    Column("tflop_per_s", "Achieved", "model FLOPs divided by the time of the steps", unit="tflop_per_s"),
    share(
        "mfu_ratio",
        "MFU",
        heading="proper",
        description="time of the model FLOPs at the peak rate of all used devices, divided by the time of the steps",
    ),
    share(
        "hfu_ratio",
        "HFU",
        heading="proper",
        description="time of the hardware FLOPs at the peak rate of all used devices, divided by the time of the steps",
    ),
    count("uncounted_calls", "Uncounted", "calls of matrix products without FLOPs", exact=True, over="steps"),
    share(
        "uncounted_ratio",
        "Uncounted",
        heading="proper",
        description="share of the device time (host time without a device) that these calls take",
    ),
    text("missing", "Missing", "reason why the utilisation is unknown"),
)

VIEW = View(
    name="model_flops",
    title="Model FLOPs utilisation",
    description="FLOPs of the matrix products of all steps, and their share of the device's peak rate (MFU, HFU)",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message(
        "no matrix products with recorded input shapes were found, and no model was annotated"
    ),
)
