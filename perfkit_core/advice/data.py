"""Advice as plain data, for JSON: ``{"identity": …, "advice": […], "combined": …, "not_evaluable": […]}``.

Advice as a table: a row an advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.advice.ledger import latest
from perfkit_core.advice.model import Advice, Advices, After, Assumption, Identity, Prediction
from perfkit_core.advice.text import told
from perfkit_core.language.messages import Message, english, render
from perfkit_core.model.trace import Trace
from perfkit_core.replay.quantity import Quantity
from perfkit_core.verify.ledger import Record


def document(found: Advices, trace: Trace, records: Sequence[Record] = ()) -> dict[str, Any]:
    """All of it: times are integer ns, null is unknown; ``rows`` are rows of the event table; ``records`` are earlier
    measurements."""
    return {
        "source": trace.meta.source,
        "framework": trace.meta.framework,
        "quality": [{"code": finding.code, "message": english(finding.text)} for finding in trace.quality],
        "identity": _identity(found.identity),
        "noise_ns": found.noise_ns,
        "advice": [advice(one, found, records) for one in found.advice],
        "combined": _combined(found),
        "without_saving": [advice(one, found, records) for one in found.without_saving],
        "not_evaluable": [{"rule": rule, "why": str(why)} for rule, why in found.not_evaluable.items()],
    }


def advice(one: Advice, found: Advices, records: Sequence[Record] = ()) -> dict[str, Any]:
    """The whole contract of one advice."""
    it = one.candidate
    return {
        "id": one.id, "rule": one.rule, "number": one.number, "version": one.version, "title": one.title,
        "what": render(it.what), "severity": one.severity, "framework": one.framework, "mode": one.mode,
        "direction": it.direction, "evidence": data(it.evidence), "rows": it.rows.tolist(),
        "steps": list(one.steps) if one.steps else None, "place": one.place,
        "preconditions": list(map(render, it.preconditions)), "vetoes": list(map(render, it.vetoes)),
        "transform": [data(edit) for edit in it.edits], "prediction": prediction(one.prediction),
        "trust": _trust(one, found), "risks": list(map(render, it.risks)), "conflicts": list(it.conflicts),
        "excluded_because": render(found.excluded.get(one.id)) or None, "after": _after(found.after.get(one.id)),
        "what_if": _question(one, found), "remedy": asdict(one.remedy) if one.remedy else None,
        "outcome": _outcome(latest(records, one.id)),
    }  # fmt: skip


def _after(then: After | None) -> dict[str, Any] | None:
    return None if then is None else {"once": list(then.once), "saving_ns": then.saving_ns}


def _question(one: Advice, found: Advices) -> str | None:
    return found.asked[found.advice.index(one)] if found.asked else None


def _outcome(record: Record | None) -> dict[str, Any]:
    if record is None:
        return {"outcome": "predicted", "saving_ratio": None, "saving_error": None, "step_error": None}
    names = ("outcome", "saving_ratio", "saving_low_ratio", "saving_high_ratio", "saving_error", "step_error")
    return {name: getattr(record, name) for name in names}


def prediction(found: Prediction) -> dict[str, Any]:
    """Its fields by their names."""
    return asdict(found)


def data(value: Any) -> Any:
    """An edit (or a part of one) as plain data: its kind, then its fields; uncertain numbers as their percentiles."""
    if isinstance(value, Quantity):
        return {"p10": value.low, "p50": value.mid, "p90": value.high, "source": english(value.source)}
    if isinstance(value, Message):
        return english(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: data(getattr(value, field.name)) for field in fields(value)}
        return {"edit": type(value).__name__} | named
    if isinstance(value, Mapping):
        return {str(key): data(item) for key, item in value.items()}
    return [data(item) for item in value] if isinstance(value, (list, tuple)) else value


def _trust(one: Advice, found: Advices) -> dict[str, Any]:
    listed = [_assumption(one.rule, taken) for taken in one.candidate.assumptions]
    return {"assumptions": listed, "identity_error": found.identity.error, "noise_ns": found.noise_ns}


def _assumption(rule: str, one: Assumption) -> dict[str, Any]:
    return {"name": one.name, "value": data(one.value), "source": english(one.source), "text": told(rule, one)}


def _identity(found: Identity) -> dict[str, Any]:
    return {
        "error": found.error, "worst": found.worst, "steps": found.steps, "unexplained": found.unexplained,
        "untold_waits": found.untold_waits,
    }  # fmt: skip


def _combined(found: Advices) -> dict[str, Any] | None:
    if found.combined is None:
        return None
    return {"advice": list(found.together), "prediction": prediction(found.combined)}


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
