"""Synthetic steps for tests of rules. Times are in µs from the beginning of the step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.events import device, host, trace

US = 1_000
BOTH = pytest.mark.parametrize("framework", ["torch", "paddle"])
Find = Callable[[RuleInput], Sequence[Candidate]]
Rows = list[dict[str, Any]]


def op(
    name: str, start: int, dur: int, shapes: Any = None, dtypes: Any = None, kind: str = "operator"
) -> dict[str, Any]:
    texts = {"shapes": shapes and json.dumps(shapes), "dtypes": dtypes and json.dumps(dtypes)}
    return host(name, kind, start * US, dur * US) | {key: text for key, text in texts.items() if text}


def call(name: str, start: int, dur: int, correlation: int = -1, kind: str = "runtime") -> dict[str, Any]:
    """Return a runtime call. ``correlation`` is unique within the step."""
    return host(name, kind, start * US, dur * US, correlation=None if correlation < 0 else correlation)


def kernel(name: str, start: int, dur: int, correlation: int, grid: Sequence[int] = ()) -> dict[str, Any]:
    args = {"args": json.dumps({"grid": list(grid)})} if grid else {}
    return device(name, "kernel", start * US, dur * US, correlation) | args


def copy(kind: str, count: int, start: int, dur: int, correlation: int) -> dict[str, Any]:
    return device(f"Memcpy {kind}", "memcpy", start * US, dur * US, correlation) | {"copy_kind": kind, "bytes": count}


def steps(rows: Rows, dur: int = 100, count: int = 3, framework: str = "torch") -> Trace:
    """Return ``count`` equal steps of ``dur`` µs, one after the other."""
    every: Rows = []
    for number in range(count):
        begin = number * dur * US
        every.append(host(f"step {number}", "step", begin, dur * US, step=number))
        for row in rows:
            shifted = row | {"start_ns": row["start_ns"] + begin}
            if row.get("correlation") is not None:
                shifted["correlation"] = row["correlation"] + 1000 * number
            every.append(shifted)
    return trace(every, names=torch_name if framework == "torch" else paddle_name)


def found(find: Find, recording: Trace, **thresholds: float) -> list[Candidate]:
    return list(find(RuleInput(recording, Thresholds(**thresholds))))  # type: ignore[arg-type]


def predicted(recording: Trace, candidate: Candidate) -> tuple[int | None, ...]:
    """Return the p10, p50 and p90 of the prediction, in ns."""
    prediction = predict(RuleInput(recording), candidate)
    return prediction.p10_ns, prediction.p50_ns, prediction.p90_ns


def why_not(find: Find, recording: Trace) -> str:
    with pytest.raises(NotEvaluableError) as error:
        find(RuleInput(recording))
    return str(error.value)
