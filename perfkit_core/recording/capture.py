"""The other end of recording on demand: ask a training process, and wait for what its ranks record."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording.capture_socket import SUFFIX, connect, folders
from perfkit_core.recording.on_demand import RESULTS
from perfkit_core.system import paths

_LOOK_S: Final = 0.1
_GRACE_S: Final = 5.0
"""Time that the other ranks have to report after the process that was asked has ended."""
_OWN_ONLY: Final = "only its user can capture it"
_UNASKED: Final = "its training needs trace_handler(…, on_demand=True) and a schedule with on_demand=handler"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The steps that a job will record. ``processes``: machine and process id of each process that takes part."""

    id: str
    first: int
    last: int
    run_dir: Path
    folder: Path
    processes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one process has recorded. ``steps``: the first and the last step. ``error``: why there is no file."""

    process: tuple[str, int]
    rank: int | None
    done: bool
    steps: tuple[int, int] | None
    path: Path | None
    error: str | None

    @property
    def name(self) -> str:
        machine, pid = self.process
        return f"process {pid} on {machine}" if self.rank is None else f"rank {self.rank}"


class Capture:
    """A request to the processes of one job. ``target`` is a process id, or a run folder. Raises CaptureError."""

    def __init__(self, target: str, timeout: float | None = None) -> None:
        self._target = f"process {target}" if target.isdecimal() else target
        self._until = None if timeout is None else time.monotonic() + timeout
        places = sockets_of(int(target)) if target.isdecimal() else sockets_below(target)
        self._connections = connected(places, target)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep(None)

    def ask(self, steps: int) -> Accepted:
        """Ask for a window of steps, and wait until a process begins its next step. All processes are asked, because
        the loop of some handler may be over. They know by the id that it is one request."""
        request = {"id": uuid.uuid4().hex[:12], "steps": steps}
        received = dict.fromkeys(self._connections, b"")
        for connection in self._connections:
            with contextlib.suppress(OSError):  # an end of the process is noticed below
                connection.sendall(json.dumps(request).encode() + b"\n")
        while received:
            for connection in self._arrived(received, "begun a step"):
                piece = _received(connection)
                received[connection] += piece
                if not piece:
                    del received[connection]
                elif received[connection].endswith(b"\n"):
                    self._keep(connection)
                    return self._accepted(json.loads(received[connection]))
        raise CaptureError(f"{self._target} ended its training before it began another step", "")

    def _accepted(self, answer: Mapping[str, Any]) -> Accepted:
        if "busy" in answer:
            raise CaptureError(f"{self._target} {answer['busy']}", "try again later")
        if "error" in answer:
            raise CaptureError(f"{self._target}: {answer['error']}", "")
        ranks = tuple((machine, pid) for machine, pid in answer["processes"])
        place = paths.as_path(answer["run_dir"])
        return Accepted(answer["id"], answer["first"], answer["last"], place, Path(answer["folder"]), ranks)

    def _keep(self, chosen: socket.socket | None) -> None:
        """Close the other connections, which takes their requests back."""
        for connection in self._connections:
            if connection is not chosen:
                connection.close()
        self._connections = [] if chosen is None else [chosen]

    def wait(self, accepted: Accepted, say: Callable[[str], None]) -> list[Recorded]:
        """Wait until every process has written its steps, or has ended. ``say`` gets a text on the progress."""
        ended: float | None = None
        while True:
            gone = ended is not None and time.monotonic() > ended + _GRACE_S
            recorded = list(results(accepted))
            left = set(accepted.processes) - {one.process for one in recorded if one.done}
            if not left or gone:
                return recorded
            say(f"waiting for {len(left)} of {len(accepted.processes)} processes")
            if ended is not None:
                time.sleep(_LOOK_S)
                continue
            what = f"written steps {accepted.first} to {accepted.last}"
            for connection in self._arrived(self._connections, what):
                if _received(connection):
                    continue
                if _alive(connection):  # its training has ended, but the last file may not be written yet
                    time.sleep(_LOOK_S)
                else:
                    ended = time.monotonic()

    def _arrived(self, connections: Iterable[socket.socket], what: str) -> list[socket.socket]:
        """Wait a moment. Return the connections that were closed, or on which something has arrived. Raises
        CaptureError if the time is over."""
        if self._until is not None and time.monotonic() > self._until:
            raise CaptureError(f"{self._target} has not {what} in time", "allow more time with --timeout")
        return select.select(list(connections), [], [], _LOOK_S)[0]


def _received(connection: socket.socket) -> bytes:
    """Return what has arrived, b"" if the other end has closed the connection."""
    try:
        return connection.recv(4096)
    except OSError:
        return b""


def _alive(connection: socket.socket) -> bool:
    """Return whether the process at the other end runs. In another container, it may not be visible."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return False
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] not in "ZX"  # its parent may not have noticed its end


def results(accepted: Accepted) -> Iterator[Recorded]:
    """Yield what the processes have recorded so far."""
    try:
        lines = (accepted.folder / RESULTS).read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            result: Mapping[str, Any] = json.loads(line)
        except ValueError:  # a process died while it wrote the line
            continue
        if result["id"] == accepted.id:
            path, steps = result["path"], result["steps"]
            yield Recorded(
                (result["host"], result["pid"]), result["rank"], result["done"], steps and (steps[0], steps[1]),
                path and paths.as_path(path), result["error"],
            )  # fmt: skip


def connected(sockets: Iterable[Path], target: str) -> list[socket.socket]:
    """Connect to the sockets whose processes run. Raises CaptureError if there is none."""
    connections, waiting = [], False
    for path in sockets:
        try:
            connections.append(connect(path))
        except PermissionError:
            raise CaptureError(f"{target} belongs to another user", _OWN_ONLY) from None
        except BlockingIOError:
            waiting = True
        except OSError:  # the process has ended without removing its socket
            continue
    if not connections and waiting:
        raise CaptureError(f"{target}: too many requests wait for its next step", "try again later")
    if not connections:
        raise CaptureError(f"{target}: the training that recorded into this folder has ended", "")
    return connections


def sockets_below(target: str) -> list[Path]:
    """Return the sockets of a run folder. Raises CaptureError if no training has recorded into it on demand."""
    run_dir = paths.as_path(target)
    folder = folders(run_dir)[0]
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except PermissionError:
        raise CaptureError(f"{target} belongs to another user", _OWN_ONLY) from None
    except OSError:
        if paths.is_remote(run_dir) or run_dir.is_dir():
            raise CaptureError(f"{target}: no training records on demand into this folder", _UNASKED) from None
        hint = "give the run folder of a running training, or its process id"
        raise CaptureError(f"{target}: no such folder", hint) from None


def sockets_of(pid: int) -> list[Path]:
    """Return the sockets of a process, which the system knows. Raises CaptureError if there is no such process, or no
    socket."""
    process = Path(f"/proc/{pid}")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise CaptureError(f"there is no process {pid}: it has ended, or runs on another machine", "") from None
    except PermissionError:
        raise CaptureError(f"process {pid} belongs to another user", _OWN_ONLY) from None
    if not process.is_dir():
        raise CaptureError("sockets of processes are known on Linux only", "give the run folder: perfkit capture DIR")
    inodes = set()
    try:
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                inodes.add(str(descriptor.readlink()))
        lines = (process / "net" / "unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except PermissionError:
        raise CaptureError(f"process {pid} belongs to another user", _OWN_ONLY) from None
    except OSError:
        raise CaptureError(f"there is no process {pid}: it has ended", "") from None
    fields = (line.split(None, 7) for line in lines)
    bound = {Path(field[7]) for field in fields if len(field) == 8 and f"socket:[{field[6]}]" in inodes}
    found = sorted(path for path in bound if path.name.endswith(SUFFIX))
    if not found:
        raise CaptureError(f"process {pid} does not record on demand", _UNASKED)
    # in another container, the path has another root
    return [path if path.exists() else process / "root" / path.relative_to(path.anchor) for path in found]
