"""How is a file written so that readers see all of it or nothing?"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from perfkit_core.paths import is_remote, put


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file of this machine to write, which takes the place of ``path`` at the end of the block.

    It vanishes when the block fails. The folder of ``path`` is made. A store gets the file in one put, when it is
    complete: object stores show it only then. Raises OSError.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            file = Path(folder) / "file"
            yield file
            put(file, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
