"""Child processes: their environment, their memory, and groups of processes that end with the process that started
them. Words of shell commands. The process that a file belongs to: the files of killed processes are found by it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import signal
import socket
import string
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_OWNER: Final = re.compile(r"(\d+)-(\d+)-([0-9a-f]{8})")
_TEMPORARY: Final = re.compile(rf"\..+\.({_OWNER.pattern})\.[0-9a-f]{{8}}\.tmp")


def owner() -> str:
    """Return a text that names this process. It has no dots, and fits into a file name."""
    return _of(os.getpid())


@functools.cache  # the start of a forked child is another
def _of(pid: int) -> str:
    return f"{pid}-{_start(pid) or 0}-{_machine()}"


def temporary_name(name: str) -> str:
    """Return a hidden name for a file of this process that becomes ``name`` when it is complete."""
    return f".{name}.{owner()}.{uuid.uuid4().hex[:8]}.tmp"


def remove_stale(folder: Path) -> None:
    """Remove temporary files from a local folder whose processes were killed. Never raises."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            if match is not None and has_ended(match[1]):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()


def has_ended(owner: str) -> bool | None:
    """Return whether the process that :func:`owner` named has ended. None if that cannot be known: it ran on another
    machine or in another container, or the machine was restarted."""
    match = _OWNER.fullmatch(owner)
    if match is None or match[3] != _machine() or os.name != "posix":
        return None
    pid, start = int(match[1]), int(match[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user
        pass
    now = _start(pid)
    return now is not None and now != start  # a process that started later may have the same number


def _start(pid: int) -> int | None:
    """Return when a process started, in ticks since the start of the machine. 0 if it has ended, but its parent has not
    noticed, and None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = text.rpartition(")")[2].split()  # the name of a program may contain spaces and brackets
        return 0 if state in "ZX" else int(fields[18])
    return None


@functools.cache
def _machine() -> str:
    """Return a text that differs between machines, containers, and runs of a machine."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=4).hexdigest()


PATIENCE_SECONDS: Final = 5.0
"""Seconds from SIGTERM to SIGKILL, in which a launcher can end its children."""
_POLL_SECONDS: Final = 0.01
_START: Final = 'read -r line && exec "$@" < /dev/null'
"""Start a command after a line on standard input: when the watcher of its group exists. If the process that holds the
pipe dies before, the command does not start."""
_WATCH: Final = 'read -r line || { kill -s TERM -- "-$0"; sleep "$1"; kill -s KILL -- "-$0"; }'
"""End a group of processes at the end of standard input: when the process that holds the pipe has died."""

_PLAIN: Final = frozenset(string.printable[:-5]) - {"'", "\\"}
"""Characters that a shell keeps between ``$'`` and ``'``."""

_watching: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_forks(watching: Any) -> None:
    """Call ``watching.forked()`` in each forked child, as long as the object lives."""
    _watching.add(watching)


def _forked() -> None:
    for watching in tuple(_watching):
        watching.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def python(code: str, *arguments: str) -> list[str]:
    """Return the command that runs Python code. The current folder is not searched for modules: a file torch.py in it
    would hide the framework."""
    return [sys.executable, "-P", "-c", code, *arguments]


def environment() -> dict[str, str]:
    """Return the environment in which a child finds the same modules as this process, but none in the current folder.
    A checkout of perfkit is an exception."""
    here, checkout = Path.cwd(), Path(__file__).resolve().parents[3]
    folders = [Path(folder).absolute() for folder in sys.path]
    search_path = dict.fromkeys(str(folder) for folder in folders if folder == checkout or folder != here)
    return os.environ | {"PYTHONPATH": os.pathsep.join(search_path)}


@contextlib.contextmanager
def group(
    command: Sequence[str], patience: float = PATIENCE_SECONDS, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command without input as the first process of a new group. At the end of the block, all processes of the
    group are ended. They are also ended if this process dies, even by SIGKILL. ``patience``: seconds from SIGTERM to
    SIGKILL."""
    shell = "/bin/sh", "-c"
    process = watcher = None
    try:
        with _deferred_signals():
            process = subprocess.Popen(
                [*shell, _START, "sh", *command], stdin=subprocess.PIPE, start_new_session=True, **options
            )
            watcher = subprocess.Popen(
                [*shell, _WATCH, str(process.pid), f"{patience:g}"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has been killed
                process.stdin.write(b"\n")
                process.stdin.close()
        yield process
    finally:
        if process is not None:
            _end(process, patience)
        if watcher is not None:
            watcher.communicate(b"\n")


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    # Other processes of the group may still run when its first process has ended.
    with contextlib.suppress(OSError):  # OSError means that all processes have ended.
        os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait(process: subprocess.Popen[bytes], seconds: float, stop: Callable[[], bool]) -> int | None:
    """Return the exit code of a process, or None if it still runs after ``seconds``, or when ``stop()`` is true."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stop():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, 20 * _POLL_SECONDS))
    return None


@contextlib.contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Let this process allocate at most ``more_bytes`` more in the block. A larger allocation fails. Only Linux has
    such a limit; elsewhere, nothing is limited."""
    try:
        import resource

        used = re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    except (ImportError, OSError):
        used = None
    if used is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in before if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([1024 * int(used[1]) + more_bytes, *limits]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Delay signals until the end of the block.

    Without the delay, a signal handler could raise an exception while ``Popen`` starts a child. The child would then
    keep running, and its process id would be unknown."""
    if threading.current_thread() is not threading.main_thread():  # handlers only run on the main thread
        yield
        return
    pending: list[int] = []
    before = {number: handler for number in _signals("SIGINT", "SIGTERM", "SIGHUP")
              if callable(handler := signal.getsignal(number))}  # fmt: skip
    for number in before:  # signals are not blocked with pthread_sigmask, because the child would inherit the mask
        signal.signal(number, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in pending:
            signal.raise_signal(number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, so that running commands are ended."""
    if threading.current_thread() is not threading.main_thread():  # handlers can only be set on the main thread
        yield
        return

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    numbers = [number for number in _signals("SIGTERM", "SIGHUP") if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, leave)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _signals(*names: str) -> list[int]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]  # Windows has no SIGHUP


def shell_word(text: str) -> str:
    """Return the text as one word of a shell command. Unprintable characters are escaped, as in ``$'a\\x0ab'``."""
    if text.isprintable():
        return shlex.quote(text)
    characters = map(chr, text.encode("utf-8", "surrogateescape"))
    escaped = "".join(c if c in _PLAIN else f"\\x{ord(c):02x}" for c in characters)
    return f"$'{escaped}'"


def shell_path(path: str | Path) -> str:
    """Return a path as one word of a shell command. No command takes it for an option."""
    text = str(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)
