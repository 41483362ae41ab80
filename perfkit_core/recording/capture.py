"""The other end of recording on demand: ask a training process, and wait for what its ranks record.

A socket may lie in a folder that others can write. So only sockets of the user's own processes are asked, their answers
are checked, and what they record is looked for in the folder of the socket only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from perfkit_core.base.system import paths
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.recording.capture_socket import FOLDER, SUFFIX, connect, folders, host, peer
from perfkit_core.recording.on_demand import MOST_STEPS, RESULTS

SILENT_S: Final = 300.0
"""Without a time limit, give up on processes that have neither begun a step nor reported a file for this time."""
_LOOK_S: Final = 0.1
_GRACE_S: Final = 5.0
"""Time that the other ranks have to report after the process that was asked has ended."""
_MOST_BYTES: Final = 1 << 24
"""Maximum length of an answer, which names all processes of the job."""
_OWN_ONLY: Final = "only its user can capture it"
_SAME: Final = "use the same version of perfkit here and in the training"
_ELSEWHERE: Final = "run the command on the machine of the training, or give its run folder"
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
class CaptureResult:
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
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {pid}" if machine == host() else f"process {pid} on another machine ({machine})"


class _Answer(msgspec.Struct):
    """What a process answers: that it is ``busy``, an ``error``, or the window. Later, each step that it begins."""

    step: int | None = None
    busy: str | None = None
    error: str | None = None
    id: str = ""
    first: int = 0
    last: int = -1
    run_dir: str = ""
    processes: tuple[tuple[str, int], ...] = ()


class _Result(msgspec.Struct):
    """A line of the file of results."""

    id: str
    host: str
    pid: int
    rank: int | None
    done: bool
    steps: tuple[int, int] | None
    path: str | None
    error: str | None


class CaptureClient:
    """A request to the processes of one job. ``target`` is a process id, or a run folder. Raises CaptureError."""

    def __init__(self, target: str, timeout: float | None = None) -> None:
        pid = int(target) if re.fullmatch(r"[+-]?[0-9]{1,4000}", target) else None
        self._target = target if pid is None else f"process {pid}"
        self._timeout, self._begun = timeout, time.monotonic()
        if pid is not None and pid < 1:
            raise CaptureError(f"{target} is no process id", "give the process id of the training, or its run folder")
        sockets = sockets_below(target) if pid is None else sockets_of(pid)
        self._connections = connected(sockets, self._target)

    def __enter__(self) -> CaptureClient:
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
            self._check_time("begun a step", SILENT_S)
            for connection in _arrived(received):
                piece = _received(connection)
                *lines, received[connection] = (received[connection] + piece).split(b"\n")
                answers = [answer for answer in map(self._decoded, lines) if answer.step is None]
                if answers:
                    socket_path = self._connections[connection]
                    self._keep(connection)
                    return self._accepted(answers[0], request, socket_path)
                if len(received[connection]) > _MOST_BYTES:
                    raise self._no_answer()
                if not piece:
                    del received[connection]
        hint = "only a training that runs can be captured"
        raise CaptureError(f"{self._target} ended its training before it began another step", hint)

    def _decoded(self, line: bytes) -> _Answer:
        try:
            return decode_json(line, _Answer)
        except ValueError:
            raise self._no_answer() from None

    def _no_answer(self) -> CaptureError:
        return CaptureError(f"{self._target} gave an answer that is not perfkit's", _SAME)

    def _accepted(self, answer: _Answer, request: dict[str, object], socket_path: Path) -> Accepted:
        if answer.busy is not None:
            raise CaptureError(f"{self._target} {answer.busy}", "try again later")
        if answer.error is not None:
            raise CaptureError(f"{self._target}: {answer.error}", f"ask for 1 to {MOST_STEPS} steps")
        if (answer.id, answer.last - answer.first + 1) != tuple(request.values()) or not answer.processes:
            raise self._no_answer()
        run_paths = run_folder(socket_path, answer.run_dir)
        if run_paths is None:
            text = f"{self._target} names a run folder in which it has no socket: {paths.readable(answer.run_dir)}"
            raise CaptureError(text, "give the run folder: perfkit capture DIR")
        return Accepted(answer.id, answer.first, answer.last, *run_paths, answer.processes)

    def _keep(self, chosen: socket.socket | None) -> None:
        """Close the other connections, which takes their requests back."""
        for connection in self._connections:
            if connection is not chosen:
                connection.close()
        self._connections = {} if chosen is None else {chosen: self._connections[chosen]}

    def wait(self, accepted: Accepted, say: Callable[[str], None]) -> list[CaptureResult]:
        """Wait until every process has written its steps, or has ended. ``say`` gets a text on the progress."""
        what, ended, heard, count, text = f"steps {accepted.first} to {accepted.last}", None, time.monotonic(), 0, b""
        while True:
            now = time.monotonic()
            gone = ended is not None and now > ended + _GRACE_S
            silent = self._timeout is None and now > heard + SILENT_S
            recorded = list(results(accepted))
            left = set(accepted.processes) - {result.process for result in recorded if result.done}
            if not left:
                return recorded
            if gone or silent:
                ranks = {result.process: result.rank for result in recorded}
                error = f"nothing was reported for {SILENT_S:.0f} s, so the loop may be over"
                if gone:
                    error = f"the process ended before all of {what} were recorded"
                return recorded + [CaptureResult(process, ranks.get(process), False, None, None, error)
                                   for process in sorted(left)]  # fmt: skip
            if len(recorded) > count:
                heard, count = now, len(recorded)
            say(f"waiting for {len(left)} of {len(accepted.processes)} processes")
            if ended is not None:
                time.sleep(_LOOK_S)
                continue
            self._check_time(f"written {what}")
            for connection in _arrived(self._connections):
                piece = _received(connection)
                *lines, text = (text + piece).split(b"\n")
                if any((self._decoded(line).step or 0) <= accepted.last + 1 for line in lines):
                    heard = now  # after its window, only files count
                elif piece:
                    continue
                elif _alive(connection):  # its training has ended, but the last file may not be written yet
                    time.sleep(_LOOK_S)
                else:
                    ended = now

    def _check_time(self, what: str, otherwise: float = float("inf")) -> None:
        """Raise CaptureError if the time is over. ``otherwise``: the limit in s if the user gave none."""
        limit = otherwise if self._timeout is None else self._timeout
        if time.monotonic() > self._begun + limit:
            text = f"{self._target} has not {what} within {limit:.0f} s"
            raise CaptureError(text, "its loop may be over, or a step takes long: allow more time with --timeout")


def _arrived(connections: Iterable[socket.socket]) -> list[socket.socket]:
    """Wait a moment. Return the connections that were closed, or on which something has arrived."""
    return select.select(list(connections), [], [], _LOOK_S)[0]


def _received(connection: socket.socket) -> bytes:
    """Return what has arrived, b"" if the other end has closed the connection."""
    try:
        return connection.recv(4096)
    except OSError:
        return b""


def _alive(connection: socket.socket) -> bool:
    """Return whether the process at the other end runs. In another container, it may not be visible."""
    other = peer(connection)
    if other is None:
        return False
    try:
        state = Path(f"/proc/{other[0]}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] not in "ZX"  # its parent may not have noticed its end


def results(accepted: Accepted) -> Iterator[CaptureResult]:
    """Yield what the processes have recorded so far."""
    try:
        lines = (accepted.folder / RESULTS).read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            result = decode_json(line, _Result)
        except ValueError:  # a process died while it wrote the line
            continue
        if result.id == accepted.id:
            path = None if result.path is None else accepted.run_dir / PurePosixPath(result.path).name
            process = result.host, result.pid
            yield CaptureResult(process, result.rank, result.done, result.steps, path, result.error)


def run_folder(socket_path: Path, named: str) -> tuple[Path, Path] | None:
    """Return the run folder of a socket, and the folder of its files. ``named`` is the run folder that its process
    names. It counts only if the socket lies elsewhere, and if it leads to this socket. Otherwise return None."""
    if socket_path.parent.name == FOLDER:
        return socket_path.parent.parent, socket_path.parent
    try:
        run_dir = paths.as_path(named)
        if paths.is_remote(run_dir):
            leads_here = folders(run_dir)[1].name == socket_path.parent.name
            return (run_dir, socket_path.parent) if leads_here else None
        root = Path(*socket_path.parts[:4]) if socket_path.parts[1:2] == ("proc",) else Path(socket_path.anchor)
        run_dir = root / run_dir.relative_to(run_dir.anchor)  # as seen from outside of its container
        target = (run_dir / FOLDER / socket_path.name).readlink()
        leads_here = root / target.relative_to(target.anchor) == socket_path
        return (run_dir, run_dir / FOLDER) if leads_here else None
    except (OSError, ValueError, UsageError):
        return None


def connected(sockets: Iterable[Path], target: str) -> dict[socket.socket, Path]:
    """Connect to the sockets whose processes run. Raises CaptureError if there is none, or one of another user."""
    connections: dict[socket.socket, Path] = {}
    waiting, user = False, os.geteuid()
    for path in sockets:
        try:
            connection = connect(path)
            connections[connection] = path
            other = peer(connection)
            if user and (path.stat().st_uid if other is None else other[1]) not in (user, 0):
                raise PermissionError
        except PermissionError:
            for opened in connections:
                opened.close()
            raise CaptureError(f"{target} belongs to another user", _OWN_ONLY) from None
        except BlockingIOError:
            waiting = True
        except OSError:  # the process has ended without removing its socket
            continue
    if not connections and waiting:
        raise CaptureError(f"{target}: too many requests wait for its next step", "try again later")
    if not connections:
        raise CaptureError(f"{target}: the training that recorded into this folder has ended", "start it again first")
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
    """Return the sockets of a process, which the system knows. Raises CaptureError if there is none."""
    process = Path(f"/proc/{pid}")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise CaptureError(f"there is no process {pid}: it has ended, or runs on another machine", _ELSEWHERE) from None
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
        raise CaptureError(f"there is no process {pid}: it has ended", _ELSEWHERE) from None
    fields = (line.split(None, 7) for line in lines)
    bound = {Path(field[7]) for field in fields if len(field) == 8 and f"socket:[{field[6]}]" in inodes}
    sockets = sorted(path for path in bound if path.name.endswith(SUFFIX))
    if not sockets:
        raise CaptureError(f"process {pid} does not record on demand now", _UNASKED)
    # in another container, the path has another root
    return [path if path.exists() else process / "root" / path.relative_to(path.anchor) for path in sockets]
