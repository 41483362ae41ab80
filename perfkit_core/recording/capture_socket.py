"""The socket by which ``perfkit capture`` asks a training process to record, and the folder of the socket.

The folder ``.capture`` in the run folder belongs to the user alone (mode 0700). Each process has a socket in it, and
all processes of the run share its files ``requests`` and ``results``. No thread listens. The process looks for requests
between two steps, so a request waits in the socket while a step runs."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import socket
import stat
import struct
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system import paths
from perfkit_core.base.system.machine import host_digest
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.base.system.processes import watch_forks
from perfkit_core.errors import CaptureError

FOLDER: Final = ".capture"
SUFFIX: Final = ".perfkit"
_LONGEST: Final = 103
"""Maximum length of the path of a socket in bytes. Linux allows 107, other systems 103."""
_MOST_BYTES: Final = 4096
_MOST_WAITING: Final = 16
_GROUP_AND_OTHERS: Final = 0o077
"""Permissions that other users must not have."""
_count = itertools.count()


def host() -> str:
    """Return a text for file names that is different on each machine. The files stay in the run folder, which may be
    shared, so the text is no host name."""
    return host_digest()


def folders(run_dir: Path) -> tuple[Path, Path]:
    """Return the folder in the run folder, and the folder of sockets whose path would be too long. The files of a run
    in a remote store are in the second folder, too."""
    digest = hashlib.sha256(paths.identity(run_dir).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"perfkit-{os.geteuid()}" / digest
    return (short if paths.is_remote(run_dir) else run_dir / FOLDER), short


def private(folder: Path) -> Path:
    """Create a folder that only the user can open, and return it. Raises CaptureError if another user has made it, and
    OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise CaptureError(f"{folder} belongs to another user, so nothing can be captured", "remove the folder")
    if stat.S_IMODE(about.st_mode) & _GROUP_AND_OTHERS:
        folder.chmod(0o700)
    return folder


def connect(path: Path) -> socket.socket:
    """Connect to the socket, or to the socket to which the link leads. Raises OSError: ConnectionRefusedError if its
    process has ended, and BlockingIOError if it cannot take more connections now."""
    path = path.readlink() if path.is_symlink() else path
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        if len(os.fsencode(path)) <= _LONGEST:
            connection.connect(str(path))
            return connection
        descriptor = os.open(path.parent, os.O_RDONLY)  # this spelling of the path is too long
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/{path.name}")
        finally:
            os.close(descriptor)
    except OSError:
        connection.close()
        raise
    return connection


def remove_stale(folder: Path) -> None:
    """Remove the sockets of processes of this machine that have ended."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{host()}-*{SUFFIX}"):
            try:
                connect(path).close()
            except (ConnectionRefusedError, FileNotFoundError):
                path.unlink(missing_ok=True)
            except OSError:  # for example, it takes no connections, because its loop is over
                continue


def processes(folder: Path) -> list[tuple[str, int]]:
    """Return machine and process id of each process that has a socket in the folder."""
    names = {tuple(path.name.split("-")[:2]) for path in folder.glob(f"*{SUFFIX}")}
    return sorted((machine, int(pid)) for machine, pid in names)


class CaptureSocket:
    """The socket of one handler in one process. Raises OSError and CaptureError if there can be none."""

    def __init__(self, run_dir: Path) -> None:
        name = f"{host()}-{os.getpid()}-{next(_count)}{SUFFIX}"
        self.folder, short = folders(run_dir)
        self.path = bound = self.folder / name
        if self.folder != short:
            private(self.folder)
        for folder in (self.folder, short):
            remove_stale(folder)
        self._listener = listener = socket.socket(socket.AF_UNIX)
        self._connections: dict[socket.socket, bytearray] = {}
        if len(os.fsencode(bound)) > _LONGEST:
            bound = short / name
        _bind(listener, bound, short)
        # also when the process ends; not before bind, which fails if the files are those of another process
        self._end = weakref.finalize(self, _remove, os.getpid(), self.path, short / name, listener, self._connections)
        if bound != self.path:
            self.path.symlink_to(bound)
        bound.chmod(0o600)
        listener.listen(_MOST_WAITING)
        listener.setblocking(False)
        watch_forks(self)

    def requests(self) -> Iterator[tuple[socket.socket, Mapping[str, Any]]]:
        """Yield the requests that have arrived, with the connections that wait for the answers. Never waits."""
        while len(self._connections) < _MOST_WAITING:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody connects
                break
            connection.setblocking(False)
            other = peer(connection)
            if other is None or other[1] in (os.geteuid(), 0):  # None: the mode of the folder protects the socket
                self._connections[connection] = bytearray()
            else:
                connection.close()
        for connection, received in list(self._connections.items()):
            request = None
            try:
                while piece := connection.recv(_MOST_BYTES):
                    received += piece
                closed = True
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if received.endswith(b"\n"):
                with contextlib.suppress(ValueError):
                    request = decode_json(received)
                received.clear()
            # a closed connection means that the request was given up
            if closed or len(received) > _MOST_BYTES:
                connection.close()
                del self._connections[connection]
            elif isinstance(request, dict):
                yield connection, request

    def answer(self, connection: socket.socket, content: Mapping[str, Any]) -> None:
        """Send an answer. The connection stays open, so that the other end notices the end of this process."""
        with contextlib.suppress(OSError):  # the other end has given up
            connection.send(json.dumps(content).encode() + b"\n")

    def tell(self, content: Mapping[str, Any]) -> None:
        """Send the same content on all connections."""
        for connection in self._connections:
            self.answer(connection, content)

    def close(self) -> None:
        """Close the socket and all connections. A forked child leaves the socket of its parent in the folder."""
        self._end()

    forked = close


def _bind(listener: socket.socket, path: Path, short: Path) -> None:
    """Bind the socket. A folder for short paths is created for it."""
    for attempt in range(3):
        try:
            if path.parent == short:
                private(short.parent)
                private(short)
            listener.bind(str(path))
            return
        except FileNotFoundError:  # the folder was empty, and a process that ended has just removed it
            if attempt == 2:
                raise


def _remove(pid: int, path: Path, bound: Path, listener: socket.socket, connections: Iterable[socket.socket]) -> None:
    for opened in (listener, *connections):
        opened.close()
    if os.getpid() == pid:
        for socket_path in (path, bound):
            with contextlib.suppress(OSError):
                socket_path.unlink(missing_ok=True)
        for folder in (bound.parent, bound.parent.parent):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def peer(connection: socket.socket) -> tuple[int, int] | None:
    """Return the process id and the user id at the other end. None on systems that do not tell them."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return pid, user
