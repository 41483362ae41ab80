"""The captures of a run: recordings of the same training by separate processes, given as a list or as a pattern.

Of inference servers, only steps of one kind are compared, because a prefill and a decode step compute different things.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.paths import PathLike, as_path, exists, is_remote
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.readers.load import as_trace
from perfkit_core.trace.assembly.server_steps import of_kind, serving_steps
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.serving_step import KINDS
from perfkit_core.trace.model.trace import Trace


def matching(text: PathLike) -> list[Path]:
    """Return the path, or the paths that match a pattern. Raises SourceError if no path matches the pattern."""
    path = as_path(text)
    if is_remote(path) or exists(path) or not glob.has_magic(str(text)):
        return [path]
    matches = sorted(glob.glob(str(text)))  # noqa: PTH207 (it may be absolute)
    if not matches:
        raise SourceError(f"{text}: no file or folder matches", "check the pattern")
    return [as_path(match) for match in matches]


def captures_of(run: Trace | PathLike | Sequence[Trace | PathLike | Sequence[PathLike]]) -> list[Trace]:
    """Return the captures of a run: one capture, a pattern such as ``runs/main-*``, or several captures. Raises
    SourceError, and UsageError if the sources are ranks of one recording."""
    if isinstance(run, Trace):
        return [run]
    traces = [as_trace(source) for source in (matching(run) if isinstance(run, str | os.PathLike) else run)]
    if not traces:
        raise UsageError("a run has no captures", "give a recording, or a list of recordings of equal runs")
    ranks = [rank for trace in traces for rank in trace.meta.ranks]
    if traces[1:] and all(trace.meta.ranks for trace in traces) and len(set(ranks)) == len(ranks):
        hint = "join them into one capture: perfkit.load([RANK_0, RANK_1])"
        raise UsageError(f"{traces[0].meta.source}: the captures of the run are different ranks", hint)
    return traces


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
