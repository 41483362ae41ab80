"""Comparison of inference servers: only steps of one kind are compared, because a prefill and a decode step compute
different things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfkit_core.base.language.messages import message
from perfkit_core.errors import UsageError
from perfkit_core.trace.assembly.server_steps import of_kind, serving_steps
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.serving_step import KINDS
from perfkit_core.trace.model.trace import Trace


def of_one_kind(runs: Sequence[Sequence[Trace]]) -> list[list[Trace]]:
    """Return the runs (each with one capture or more) with only the steps of one kind: of all kinds that every run has,
    the one with the most steps. Runs without server steps stay unchanged. Raises UsageError if the runs have no
    kind in common."""
    counts = [Counter(step.kind for trace in run for step in serving_steps(trace)[1]) for run in runs]
    kinds = set().union(*counts)
    if not all(counts) or len(kinds) < 2:
        return [list(run) for run in runs]
    common = [kind for kind in KINDS if all(kind in count for count in counts)]
    if not common:
        recorded = " and ".join(", ".join(kind for kind in KINDS if kind in count) for count in counts)
        raise UsageError(
            f"the runs have no steps of the same kind ({recorded})", "record the same kind of steps in both runs"
        )
    kind = max(common, key=lambda candidate: sum(count[candidate] for count in counts))
    text = message("only {kind} steps are compared: --step-kind chooses another kind", kind=kind)
    return [[of_kind(trace, kind).with_findings(Finding("one-step-kind", text, note=True)) for trace in run]
            for run in runs]  # fmt: skip
