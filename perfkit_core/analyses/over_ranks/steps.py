"""Views of steps over ranks: steps are listed, their parts summed up, phases added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perfkit_core.analyses.merging import Merged, Table, listed, merged
from perfkit_core.analyses.merging_rows import stacked
from perfkit_core.analyses.merging_shares import Share
from perfkit_core.analyses.over_ranks import wholes
from perfkit_core.analyses.step import input_pipeline, model, overview, partition, step_trace, steps
from perfkit_core.analyses.step.step_parts import by_step, over_steps
from perfkit_core.plugins.contracts import Reduction, ViewRequest
from perfkit_core.schema import PHASES, STEP
from perfkit_core.trace import Trace

_ORDER: Final = {name: place for place, name in enumerate((STEP, *PHASES, model.UNLAUNCHED))}
_TIMES: Final = tuple(f"{one}_{side}_ns" for side in ("cpu", "device") for one in ("total", "avg", "min", "max"))


def over_all_steps(view: str, table: Table, what: str) -> Reduction:
    """A view that takes steps apart: a rank is reduced to its steps, and they are summed up in the end."""

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


def in_model_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Phases in the order of the view, whichever rank had them first."""
    return table.sort_values("phase", key=lambda names: names.map(_ORDER), kind="stable", ignore_index=True)


_MODEL_SHARES: Final = {
    "cpu_ratio": Share("total_cpu_ns", whole=wholes.steps_of_model),
    "device_ratio": Share("total_device_ns", whole=wholes.device_work_of_model),
}

_OVERVIEW: Final = merged(
    overview.measured,
    Merged(("calls", "time_ns", overview.RUNNING_NS), {"ratio": Share(overview.RUNNING_NS, whole=wholes.span)}),
)


def kinds_of_events(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
    """The overview of all ranks, without what its shares are of."""
    return _OVERVIEW.merge(partials, request).drop(columns=overview.RUNNING_NS)


REDUCTIONS: Final = {
    "steps": listed(steps.table),
    "partition": over_all_steps("partition", partition.table, "category"),
    "step_trace": over_all_steps("step_trace", step_trace.table, "part"),
    "input_pipeline": listed(input_pipeline.table),
    "overview": Reduction(_OVERVIEW.reduce, kinds_of_events),
    "model": merged(model.table, Merged(("calls", *_TIMES), _MODEL_SHARES, finish=in_model_order)),
}
