"""From what a user names to a Trace: trace files, run folders, several of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.sources.bytestream import head
from perfkit_core.trace import Trace, concat_traces

PathLike = str | os.PathLike[str]


def load(sources: PathLike | Sequence[PathLike], *, partial: bool = False) -> Trace:
    """Read a trace file or run folder, or several (one a rank), as one Trace.

    ``partial`` keeps what can be read of damaged files, with a finding. Raises SourceError.
    """
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if not paths:
        raise SourceError("no source given", "name a run folder or a trace file")
    return concat_traces([load_one(Path(path), partial) for path in paths])


def load_one(path: Path, partial: bool = False) -> Trace:
    """Read one file or run folder with the reader that recognises it best. Raises SourceError."""
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder", "check the path")
    if path.is_file() and path.stat().st_size == 0:
        raise SourceError(f"{path}: the file is empty", "was the profiler stopped before it wrote?")
    return _reader(path).read(path, partial)


def _reader(path: Path) -> Source:
    start = head(path) if path.is_file() else b""
    rated = [(source.sniff(path, start), source) for source in get_plugins().sources()]
    best = max((rating for rating, _ in rated), default=0)
    if not best:
        known = ", ".join(source.description for _, source in rated)
        raise SourceError(f"{path}: not a profile that perfkit knows", f"perfkit reads {known}")
    return next(source for rating, source in rated if rating == best)
