"""Advice as a table: a row an advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from perfkit_core.advice.model import Advice, Advices, Prediction


def table(found: Advices) -> pd.DataFrame:
    """A row an advice, the largest saving first: id, title, severity, saving_ns (p50), saving_ratio (of the step),
    step_ns (now), step_p10_ns and step_p90_ns (80% interval of its median), p10_ns, p50_ns, p90_ns (of a step
    afterwards), ceiling_ns (no change of this kind saves more by itself), floor_ns (the step less that), method, place,
    first_step, last_step, api. Unknown is NA."""
    return frame(row(one) for one in found.advice)


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows with the columns of :func:`table`, NA where one has none."""
    made = pd.DataFrame(list(rows), columns=list(row_types()))
    return made.astype({name: kind for name, kind in row_types().items() if kind != "object"})


def row_types() -> dict[str, str]:
    """The columns, in order, with their types."""
    numbers = (
        "saving_ns", "saving_ratio", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns", "p50_ns", "p90_ns",
        "ceiling_ns", "floor_ns",
    )  # fmt: skip
    kinds = {name: "Float64" if name.endswith("ratio") else "Int64" for name in numbers}
    texts = dict.fromkeys(("id", "title", "severity"), "object")
    return {**texts, **kinds, "method": "object", "place": "object", "first_step": "Int64", "last_step": "Int64",
            "api": "object"}  # fmt: skip


def row(advice: Advice) -> dict[str, Any]:
    """One advice by the names of the columns."""
    first, last = advice.steps or (None, None)
    return {
        "id": advice.id, "title": advice.title, "severity": advice.severity, **numbers(advice.prediction),
        "place": advice.place, "first_step": first, "last_step": last,
        "api": advice.remedy.api if advice.remedy else None,
    }  # fmt: skip


def numbers(p: Prediction) -> dict[str, Any]:
    """A prediction by the names of the columns."""
    return {
        "saving_ns": p.saving_ns,
        "saving_ratio": None if p.saving_ns is None else p.saving_ns / max(p.base_ns, 1),
        "step_ns": p.base_ns, "step_p10_ns": p.base_p10_ns, "step_p90_ns": p.base_p90_ns,
        "p10_ns": p.p10_ns, "p50_ns": p.p50_ns, "p90_ns": p.p90_ns, "ceiling_ns": p.ceiling_ns,
        "floor_ns": None if p.ceiling_ns is None else max(p.base_ns - p.ceiling_ns, 0),
        "method": p.method,
    }  # fmt: skip
