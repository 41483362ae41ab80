"""The two tables of a view that takes steps apart: one row a step, and what that is for all steps together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.model.columns import DUR, MAX, MIN, RANK, RATIO, Average, Share, count, duration, key
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, ViewRequest
from perfkit_core.views.merging import stacked
from perfkit_core.views.tables import ratio, rounded_division

GROUPINGS: Final = ("step", "rank")
OVER_STEPS: Final = (
    count("steps", "Steps", exact=True, description="that tell"),
    duration("total_ns", "Total", per_step=True),
    duration("avg_ns", "Avg", merge=Average("total_ns"), description="of a step"),
    duration("min_ns", "Min", merge=MIN, of_capture=True),
    duration("max_ns", "Max", merge=MAX, of_capture=True),
    replace(RATIO, merge=Share("total_ns"), description="of the duration of the steps"),
)
BY_STEP: Final = (
    replace(RANK, by=("rank", "step")),
    key("step", "Step", by=("step",)),
    replace(DUR, by=("step",)),
)


def by_step(view: str, request: ViewRequest) -> bool:
    """Whether a row a step is asked for. Raises UsageError for a grouping that such views do not know."""
    unknown = [item for item in request.by if item not in GROUPINGS]
    if unknown:
        raise UsageError(f"{view} cannot be grouped by {unknown[0]!r}", f"known: {', '.join(GROUPINGS)}")
    return "step" in request.by


def over_all_steps(view: str, table: Callable[[Trace, ViewRequest], pd.DataFrame], what: str) -> Reduction:
    """The reduction of a view that takes steps apart: ranks are reduced to their steps, summed up in the end."""

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        by_step(view, request)  # refuses what it cannot be grouped by
        return table(trace, replace(request, by=("step",)))

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        wide = stacked(partials)
        if by_step(view, request):
            return wide
        times = [str(name) for name in wide.columns if str(name).endswith("_ns") and name != "dur_ns"]
        return over_steps(wide, [name.removesuffix("_ns") for name in times], what, "rank" in request.by)

    return Reduction(reduce, merge)


def over_steps(wide: pd.DataFrame, parts: Sequence[str], what: str, by_rank: bool) -> pd.DataFrame:
    """Rows of the parts: [rank,] ``what``, steps (that tell), total/avg/min/max_ns of a step, ratio to their duration.

    ``wide`` has the columns rank, dur_ns and ``{part}_ns``, null where a step does not tell.
    """
    columns = [*(["rank"] if by_rank else []), what, "steps", *_TIMES, "ratio"]
    groups = _ranks(wide) if by_rank else [(None, wide)]
    rows = [{"rank": rank, **row} for rank, steps in groups for row in _rows(steps, parts, what)]
    result = pd.DataFrame(rows, columns=columns)
    if by_rank:
        result["rank"] = result["rank"].astype("Int64")
    return result


def _ranks(wide: pd.DataFrame) -> list[tuple[object, pd.DataFrame]]:
    """The rows of each rank, unknown ones last (pandas 2 cannot group by a nullable column that has only NA)."""
    known = sorted(wide["rank"].dropna().unique())
    groups: list[tuple[object, pd.DataFrame]] = [(rank, wide[(wide["rank"] == rank).fillna(False)]) for rank in known]
    unknown = wide[wide["rank"].isna()]
    return [*groups, (pd.NA, unknown)] if len(unknown) else groups


_TIMES = ("total_ns", "avg_ns", "min_ns", "max_ns")


def _rows(wide: pd.DataFrame, parts: Sequence[str], what: str) -> list[dict[str, object]]:
    rows = []
    for part in parts:
        known = wide[f"{part}_ns"].notna()
        times = wide.loc[known, f"{part}_ns"].to_numpy(np.int64)
        if not len(times):
            continue
        total, whole = times.sum(), int(wide.loc[known, "dur_ns"].sum())
        average = rounded_division(total, len(times))
        four = dict(zip(_TIMES, map(int, (total, average, times.min(), times.max())), strict=True))
        rows.append({what: part, "steps": len(times), **four, "ratio": float(ratio(total, whole))})
    return rows
