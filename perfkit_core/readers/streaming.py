"""From a trace file to a stored run in bounded memory: neither the file nor its events are ever held whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perfkit_core.errors import SourceError, UsageError, unwritable
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.readers.load import check_rereadable, naming, reader
from perfkit_core.storage.bytestream import head
from perfkit_core.storage.recorded_events import RecordedWriter
from perfkit_core.system.atomic_write import replacing
from perfkit_core.system.paths import as_path, exists, is_folder, reaching

_PARQUET: Final = b"PAR1"


def stream(
    source: str | os.PathLike[str], to: str | os.PathLike[str], *, partial: bool = False, plugins: Plugins | None = None
) -> int:
    """Write the events of a trace file to a Parquet file as they are read; returns how many.

    What has to be worked out over all events (nesting, launches, steps, phases) is worked out when the file is loaded.
    Raises SourceError for what cannot be read, UsageError for formats that cannot be streamed and for a place that
    cannot be written.
    """
    path, target = as_path(source), as_path(to)
    chosen, streamed = _streamed(path, plugins or get_plugins())
    reader = chosen.name if chosen.complete is not None else ""
    try:
        with naming(path), replacing(target) as place, RecordedWriter(Path(place), reader) as writer:
            streamed(path, partial, writer)
            return writer.rows
    except OSError as error:
        raise unwritable(target, error) from None


def _streamed(path: Path, plugins: Plugins) -> tuple[Source, Callable[[Path, bool, RecordedWriter], None]]:
    """Its reader, and how it streams a file. Raises SourceError, and UsageError for what is not to be streamed."""
    check_rereadable(path)
    with reaching(path):
        if not exists(path):
            raise SourceError(f"{path}: no such file or folder", "check the path")
        if is_folder(path):
            raise UsageError(f"{path}: a folder cannot be streamed", "name one trace file, or leave --stream out")
        start = head(path)
    if start.startswith(_PARQUET):
        raise UsageError(f"{path}: it is Parquet already", "leave --stream out")
    chosen = reader(path, start, plugins)
    if chosen.stream is None:
        text = f"{path}: {chosen.description} cannot be streamed: parts of it are only told by the whole"
        raise UsageError(text, "leave --stream out")
    return chosen, chosen.stream
