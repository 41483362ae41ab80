"""From what a user names to a Trace: trace files, run folders, several of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.several import one_job
from perfkit_core.sources.bytestream import head
from perfkit_core.trace import Trace

PathLike = str | os.PathLike[str]


def load(sources: PathLike | Sequence[PathLike], *, partial: bool = False, plugins: Plugins | None = None) -> Trace:
    """Read a trace file or run folder, or several (one a rank), as one Trace.

    ``partial`` keeps what can be read of damaged files, with a finding. ``plugins`` are those whose readers are asked,
    the installed ones when None. Raises SourceError.
    """
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if not paths:
        raise SourceError("no source given", "name a run folder or a trace file")
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise SourceError("the same source is named twice", "name each rank once")
    return one_job([load_one(Path(path), partial, plugins) for path in paths])


def load_one(path: Path, partial: bool = False, plugins: Plugins | None = None) -> Trace:
    """Read one file or run folder with the reader that recognises it best. Raises SourceError."""
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder", "check the path")
    if path.is_file() and path.stat().st_size == 0:
        raise SourceError(f"{path}: the file is empty", "was the profiler stopped before it wrote?")
    return read_with(_reader(path, plugins or get_plugins()), path, partial)


def read_with(source: Source, path: Path, partial: bool = False) -> Trace:
    """Read with one reader. The SourceError of a reader that forgot which file it read names it here."""
    try:
        return source.read(path, partial)
    except SourceError as error:
        if str(path) in error.message:
            raise
        raise SourceError(f"{path}: {error.message}", error.hint) from None


def _reader(path: Path, plugins: Plugins) -> Source:
    start = head(path) if path.is_file() else b""
    rated = [(source.sniff(path, start), source) for source in plugins.sources()]
    best = max((rating for rating, _ in rated), default=0)
    if not best:
        known = ", ".join(source.description for _, source in rated)
        raise SourceError(f"{path}: not a profile that perfkit knows", f"perfkit reads {known}")
    return next(source for rating, source in rated if rating == best)
