"""Is everything written that this process has recorded into a folder? Asked by whoever reads it; imports nothing."""

from __future__ import annotations

import sys
from pathlib import Path

_WRITER = "perfkit_core.recording.background"


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until the cycles taken so far are on disk: those of ``path``, below it and above it, all when None.

    ``timeout`` in seconds, None: as long as it takes. False when it ran out. A process that has recorded nothing
    returns at once.
    """
    writer = sys.modules.get(_WRITER)
    return True if writer is None else bool(writer.shared().flush(path, timeout))
