"""How is a command run so that nothing of an earlier run is left, and nothing stays behind whatever happens?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError

PATIENCE_SECONDS: Final = 5.0
"""How long processes that were asked to end may take: a launcher ends its own children in that time."""
_GLANCE_SECONDS: Final = 0.01
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command that succeeded has printed."""

    out: str
    err: str


def run(command: str, environment: Mapping[str, str], timeout: float | None = None) -> Finished:
    """Run a command by the shell, in a process group of its own, and end what it leaves running.

    Raises CaptureError where it fails, with the last line that it wrote to stderr, or takes longer than ``timeout``
    seconds. Its output goes to files: a process that it leaves behind must not keep us waiting for a pipe.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        code = _exit_code(command, environment, (out, err), timeout)
        finished = Finished(_text(out), _text(err))
    if code:
        raise CaptureError(f"{command!r} {_ended(code)}: {_last_line(finished)}", "run it by hand first")
    return finished


def _exit_code(command: str, environment: Mapping[str, str], files: tuple[Path, Path], timeout: float | None) -> int:
    with files[0].open("wb") as out, files[1].open("wb") as err:
        process = None
        try:
            with _deferred_signals():
                process = subprocess.Popen(
                    command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment),
                    start_new_session=True,
                )  # fmt: skip
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise CaptureError(f"{command!r} still runs after {timeout:g} s", "give a longer --timeout") from None
        finally:
            if process is not None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, wait, and end what is left by force. The shell itself may long have ended."""
    with contextlib.suppress(OSError):  # nobody is left
        os.killpg(process.pid, signal.SIGTERM)
        last = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < last:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_GLANCE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Handle signals at the end of the block.

    An exception raised by a handler while ``Popen`` waits for its child to start would lose the child: it runs, and
    nothing here knows its number. Handlers are replaced, not blocked: a process inherits what its parent blocks.
    """
    if threading.current_thread() is not threading.main_thread():  # where no handler runs
        yield
        return
    pending: list[int] = []
    numbers = [
        number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
    ]
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in before:
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
    """SIGTERM, and the end of the terminal, end the block as an exception does, so that commands are ended too."""
    if threading.current_thread() is not threading.main_thread():  # where no handlers can be set
        yield
        return
    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number in numbers if before[number] is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, _leave)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _ended(code: int) -> str:
    """A shell ends with 128 + the signal that ended its command; itself ended by one, its code is negative."""
    number = -code if code < 0 else code - 128
    if code < 0 or code > 128:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"failed with exit code {code}"


def _last_line(finished: Finished) -> str:
    lines = [line.strip() for text in (finished.out, finished.err) for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else "it printed nothing"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
