"""The captures of a run: recordings of the same training by separate processes, given as a list or as a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from perfkit_core.base.system.paths import PathLike, as_path, exists, is_remote
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.readers.load import as_trace
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
