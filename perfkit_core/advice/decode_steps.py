"""Server steps, for rules. Advice is about one step kind, because a prefill and a decode step differ in their work and
in their limits."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.assembly.server_steps import of_kind, serving_steps
from perfkit_core.trace.model.serving_step import CAPTURE, DECODE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import serving


def of_main_kind(trace: Trace) -> Trace:
    """Return the trace with only the step kind that takes the most time. Steps without a known time count with their
    range."""
    rows, steps = serving_steps(trace)
    total: Counter[str] = Counter()
    for row, step in zip(rows.tolist(), steps, strict=True):
        total[step.kind] += int(trace.ints("dur_ns")[row]) if step.time_ns is None else step.time_ns
    kinds = [kind for kind, _ in total.most_common() if kind != CAPTURE]
    return of_kind(trace, kinds[0]) if kinds and len(total) > 1 else trace


def is_served(facts: RuleInput) -> bool:
    """Return whether the steps are those of an inference server."""
    return bool(len(serving_steps(facts.trace)[0]))


def decode_steps(facts: RuleInput) -> pd.DataFrame:
    """Return the decode steps of :attr:`RuleInput.rank` with a known time, with the columns of the view ``serving``.
    Return no rows for a training."""
    steps = serving.by_step(facts.trace, ViewRequest())
    mine = steps["rank"].fillna(-1) == facts.rank
    return steps[mine & (steps["kind"] == DECODE) & steps["step_ns"].notna()]
