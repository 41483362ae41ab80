"""View ``imbalance``: the compute time of each rank, compared with its work.

A rank may compute longer than the others because it has more work, such as longer sequences or more tokens for its
experts, or because it is slower at the same work. The FLOPs and the tokens of a step show which, and so do the elements
that the ranks receive in an all_to_all. Calls in which all ranks receive equally much are left out, because they would
hide uneven calls such as the dispatch of tokens to experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.flops.arguments import SIZES, arguments, flat, number_type
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import RANK, count, duration, key, operations, share, size
from perfkit_core.trace.model.schema import BACKWARD
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import instances, stragglers
from perfkit_core.views.communication.instances import DETAILS
from perfkit_core.views.communication.point_to_point import detailed
from perfkit_core.views.operators.operator_work import operator_flops
from perfkit_core.views.steps import step_rows
from perfkit_core.views.steps.activity import activities
from perfkit_core.views.tables import no_rows

GROUPINGS: Final = ("step",)
_EMBEDDING: Final = "embedding"
_INDEX_TYPES: Final = ("int64", "int32")
_WORK: Final = ("compute_ns", "flops", "tokens")
_TYPES: Final = {
    "rank": "Int64", "step": "int64", "steps": "int64", "compute_ns": "Int64", "compute_ratio": "Float64",
    "tokens": "Int64", "flops": "Int64", "work_ratio": "Float64", "time_per_work_ratio": "Float64",
    "caused_wait_ns": "Int64", "uneven_calls": "int64", "received_bytes": "Int64", "received_rows": "Int64",
    "received_ratio": "Float64", "max_received_ratio": "Float64", "compute_after_ns": "Int64",
    "compute_after_over_mean_ns": "Int64",
}  # fmt: skip


def reduce_each(trace: Trace, request: ViewRequest) -> list[instances.Partial]:
    """Return the result of :func:`instances.reduce_each` with one more table for each rank: ``work``, a row for each of
    the chosen steps. The collectives have more columns: their details, and ``compute_after_ns``."""
    calls = detailed(trace)
    columns = {name: calls[name] for name in DETAILS} | {"compute_after_ns": _compute_after(trace, calls)}
    # The collectives keep their own times, because the waits must be those of the view ``stragglers``.
    parts = instances.reduce_each(trace, request, instances.instances(trace).assign(**columns))
    work = _work(trace, step_rows.chosen_steps(trace, request))
    return [part | {"work": work[work["rank"].fillna(NO_ROW) == part["rank"]]} for part in parts]


def _compute_after(trace: Trace, calls: pd.DataFrame) -> pd.Series[int]:
    """Return the time of computation from the end of each collective to the start of the next one on its rank. After
    the last one, it is NA."""
    rank, start = calls["rank"].fillna(NO_ROW), calls["start_ns"]
    result = pd.Series(pd.NA, calls.index, dtype="Int64")
    for number in rank.unique().tolist():
        mine = start[rank == number]
        begun, end = np.sort(mine.to_numpy(np.int64)), (mine + calls["dur_ns"][mine.index]).to_numpy(np.int64)
        following = np.searchsorted(begun, end)
        has_next = following < len(begun)
        compute = activities(trace).of(trace, number).compute
        result[mine.index[has_next]] = intervals.covered_ns(compute, end[has_next], begun[following[has_next]])
    return result


def _work(trace: Trace, rows: IntArray) -> pd.DataFrame:
    """Return rank, step, compute time, FLOPs and tokens of the steps ``rows``. FLOPs and tokens are NA if unknown."""
    work = step_rows.step_frame(trace, rows).drop(columns="dur_ns").assign(steps=1)
    start, end, rank = trace.ints("start_ns")[rows], trace.end_ns[rows], trace.ints("rank")[rows]
    compute = np.zeros(len(rows), np.int64)
    for number in np.unique(rank).tolist():
        mine = rank == number
        compute[mine] = intervals.covered_ns(activities(trace).of(trace, number).compute, start[mine], end[mine])
    flops = operator_flops(trace)
    counted = np.flatnonzero(flops > 0)
    at = step_rows.position(trace, rows, trace.ints("rank")[counted], trace.ints("step", NO_ROW)[counted])
    total = groupby.sums(at[at >= 0], len(rows), flops[counted[at >= 0]])
    work = work.assign(compute_ns=compute, flops=pd.Series(total, dtype="Int64").where(total > 0))
    return work.join(_tokens(trace), on=["rank", "step"])


@once
def _tokens(trace: Trace) -> pd.Series[int]:
    """Return the number of tokens by rank and step: the indices that are looked up in the embedding with the most
    lookups. Only steps with recorded shapes are included."""
    lookup = trace.operators & trace.rows("op_name", _EMBEDDING) & ~trace.rows("phase", BACKWARD)
    lookup &= (trace.codes("shapes").codes >= 0) & ~nesting.lies_in(trace.ints("parent"), lookup)
    rows = np.flatnonzero(lookup)
    shapes, dtypes = trace.codes("shapes"), trace.codes("dtypes")
    code, first = groupby.distinct([shapes.codes[rows], dtypes.codes[rows]], len(rows))
    pairs = [(shapes.codes[row], dtypes.codes[row]) for row in rows[first]]
    tables = [_looked_up(shapes.values[shape], dtypes.values[dtype] if dtype >= 0 else None) for shape, dtype in pairs]
    frame = pd.DataFrame({"rank": trace.ints("rank")[rows], "step": trace.ints("step", NO_ROW)[rows]})
    frame = frame.assign(table=[tables[index][0] for index in code], tokens=[tables[index][1] for index in code])
    frame["rank"] = frame["rank"].astype("Int64").where(frame["rank"] >= 0)
    sums = frame[frame["tokens"] > 0].groupby(["rank", "step", "table"], dropna=False)["tokens"].sum()
    return sums.groupby(["rank", "step"], dropna=False).max().astype("Int64")


def _looked_up(shapes: str, dtypes: str | None) -> tuple[str, int]:
    """Return the shapes of the tensors of an embedding, as text, and the number of indices looked up in it (or 0)."""
    try:
        tensors = flat(*arguments(shapes, dtypes, None))
    except ValueError:
        tensors = ()
    indices = [tensor for tensor in tensors if tensor.dtype in _INDEX_TYPES]
    table_shapes = [tensor.shape for tensor in tensors if tensor not in indices]
    return str(table_shapes), max((tensor.elements for tensor in indices), default=0)


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank (and step, if grouped), with :data:`COLUMNS`. Unknown numbers are NA. The table is empty
    if only one rank was recorded."""
    by_step = "step" in request.by
    keys = ["rank", "step"] if by_step else ["rank"]
    types = {name: kind for name, kind in _TYPES.items() if by_step or name != "step"}
    work = instances.together(partials, "work")
    if work["rank"].nunique() < 2:
        return no_rows(types)
    sums = work.groupby(keys)[["steps", *_WORK]].sum(min_count=1).reset_index()
    unknown = work[list(_WORK)].isna().groupby([work[name] for name in keys]).any().reset_index(drop=True)
    sums[list(_WORK)] = sums[list(_WORK)].astype("Int64").mask(unknown)
    within = sums["step"] if by_step else pd.Series(0, sums.index)
    compute, flops = (_to_mean(sums[name] / sums["steps"], within) for name in ("compute_ns", "flops"))
    result = sums.assign(compute_ratio=compute, work_ratio=flops, time_per_work_ratio=compute / flops.where(flops > 0))
    waits = stragglers.merge(partials, ViewRequest(by=("rank", "step") if by_step else ()))
    result = result.join(waits.set_index(keys)["caused_wait_ns"], on=keys)
    result = result.join(_exchanges(partials, keys), on=keys).fillna({"uneven_calls": 0})
    return result[list(types)].astype(types)


def _to_mean(values: pd.Series[float], within: pd.Series[int]) -> pd.Series[float]:
    """Return each value divided by the mean of its group. It is NA if a value of the group is unknown."""
    values = values.astype("Float64")
    groups = values.groupby(within)
    mean = groups.transform("mean").where(groups.transform("count") == groups.transform("size"))
    return values / mean.where(mean > 0)


def _exchanges(partials: Sequence[instances.Partial], keys: list[str]) -> pd.DataFrame:
    """Return the columns about uneven all_to_all calls, by ``keys``."""
    calls = instances.all_collectives(partials)
    usable = (calls["collective"] == "all_to_all") & (calls["match"] != instances.UNMATCHED) & calls["received"].notna()
    calls = calls[usable & calls["chosen"].astype(bool)]
    # If all ranks of the group were recorded, they must receive as much as they send. If not, the match is wrong.
    totals = {name: calls.groupby("match")[name].transform("sum") for name in ("sent", "received")}
    wrong = calls["complete"] & calls["sent"].notna() & (totals["sent"] != totals["received"])
    calls = calls[~wrong & (calls.groupby("match")["received"].transform("nunique") > 1)]
    element = [SIZES.get(number_type(dtype) or "") if isinstance(dtype, str) else None for dtype in calls["dtype"]]
    by_call = calls.groupby("match")
    mean, after = (by_call[name].transform("mean").astype("Float64") for name in ("received", "compute_after_ns"))
    calls = calls.assign(
        received_bytes=calls["received"] * pd.Series(element, calls.index, dtype="Int64"),
        mean=mean,
        of_mean=calls["received"] / mean,
        over_mean=(calls["compute_after_ns"] - after).round().astype("Int64"),
    )
    grouped = calls.groupby(keys)
    sums = grouped[["received", "received_bytes", "received_rows", "mean", "compute_after_ns", "over_mean"]].sum(
        min_count=1
    )
    return pd.DataFrame(
        {
            "uneven_calls": grouped.size(), "received_bytes": sums["received_bytes"],
            "received_rows": sums["received_rows"], "received_ratio": sums["received"] / sums["mean"],
            "max_received_ratio": grouped["of_mean"].max(), "compute_after_ns": sums["compute_after_ns"],
            "compute_after_over_mean_ns": sums["over_mean"],
        }
    )  # fmt: skip


COLUMNS: Final = (
    RANK,
    key("step", "Step", by=("step",)),
    count("steps", "Steps", exact=True),
    duration("compute_ns", "Compute", over="steps"),
    share(
        "compute_ratio", "Compute, of mean", description="compute time of a step, divided by the mean over the ranks"
    ),
    count("tokens", "Tokens", "indices looked up in an embedding", exact=True, over="steps"),
    operations("flops", "FLOPs", "of operators with recorded shapes", over="steps"),
    share("work_ratio", "FLOPs, of mean", description="FLOPs of a step, divided by the mean over the ranks"),
    share(
        "time_per_work_ratio", "Time per FLOP, of mean", description="compute time (of mean) divided by FLOPs (of mean)"
    ),
    duration("caused_wait_ns", "Wait caused", "waits of the other ranks for this rank", over="steps"),
    count("uneven_calls", "Uneven all_to_all calls", "all_to_all calls with unequal receivers", over="steps"),
    size("received_bytes", "Received", "in uneven calls", over="steps", heading="size"),
    count("received_rows", "Received rows", "in uneven calls, such as tokens", over="steps"),
    share("received_ratio", "Received, of mean", description="in uneven calls, divided by the mean over the ranks"),
    share("max_received_ratio", "Max received, of mean", description="the largest of a call"),
    duration("compute_after_ns", "Compute after all_to_all", "until the next collective", over="steps"),
    duration("compute_after_over_mean_ns", "Compute after all_to_all, above mean", over="steps"),
)

VIEW = View(
    name="imbalance",
    title="Rank imbalance",
    description="compute time of each rank, compared with its work: FLOPs, tokens, and data received in all_to_all",
    table=instances.compared(
        reduce_each, merge, lambda partials: instances.needs_several_ranks(len(partials), WITHOUT_STEPS)
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: instances.needs_several_ranks(len(trace.meta.ranks), WITHOUT_STEPS),
)
