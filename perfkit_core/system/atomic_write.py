"""How is a file written so that readers see all of it or nothing?"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from perfkit_core.system.paths import is_remote, put


@contextlib.contextmanager
def replacing(path: Path, keep: bool = False) -> Iterator[Path]:
    """A file of this machine to write, which takes the place of ``path`` at the end of the block.

    It vanishes when the block fails. The folder of ``path`` is made. A store gets the file in one put, when it is
    complete: object stores show it only then. Pipes and terminals cannot be replaced: the block writes to them itself.
    Raises OSError. With ``keep``, a file that a store does not take stays on this machine, and the error says where.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            file = Path(folder) / path.name
            yield file
            try:
                put(file, path)
            except OSError as error:
                raise (_kept(file, error) if keep else error) from None
        return
    if path.is_char_device() or path.is_fifo():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check(path: Path) -> None:
    """Raises OSError where :func:`replacing` could not write, which what takes an hour shall not learn at its end.
    Stores are not asked."""
    if is_remote(path) or path.is_char_device() or path.is_fifo():
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = next(one for one in path.absolute().parents if one.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


def _kept(file: Path, error: OSError) -> OSError:
    folder = _keeping(os.getpid())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # who cleans up may have removed it
    if (folder / file.name).exists():
        folder = Path(tempfile.mkdtemp(dir=folder))
    place = shutil.move(file, folder / file.name)
    return OSError(error.errno, f"{error.strerror}; kept as {place}", error.filename)


@functools.cache
def _keeping(pid: int) -> Path:
    """One folder for all that a process keeps; a forked child has its own."""
    return Path(tempfile.mkdtemp(prefix="perfkit-kept-"))
