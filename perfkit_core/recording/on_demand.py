"""Windows of steps that are recorded on demand: ``perfkit capture``, or the signal SIGUSR2, asks a running training.

A process looks for requests where a step begins, at most five times a second. Whoever is asked writes the window into
the file ``requests`` of the run folder, which all ranks read. The window begins some steps later, so that all ranks
have read it by then, and record the same steps. Each rank appends what it has recorded to the file ``results``. If a
training ends before its window, or within it, the rank reports this, too.

Nothing here raises into the training. An error is logged, and ends the recording on demand."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from perfkit_core.base.system import failures, paths
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.recording import environment, signals
from perfkit_core.recording.capture_socket import FOLDER, CaptureSocket, host, processes
from perfkit_core.recording.step_clock import Action
from perfkit_core.trace.storage import background

STEPS: Final = 10
"""Number of steps that SIGUSR2 and ``perfkit capture`` record by default."""
WARMUP: Final = 1
"""Number of steps before a window in which the profiler warms up."""
REQUESTS: Final = "requests"
RESULTS: Final = "results"
LOOK_S: Final = 0.2
"""A process looks for requests at most once in this time."""
AGREE_S: Final = 2.0
"""Time until a window of several ranks begins. Each rank has to look for the request before."""
_LEAST_AHEAD: Final = 2
_LEFT_S: Final = 60.0
"""After this time without a step, a handler with a window does not keep other handlers from recording."""
_LEFT_AT_LEAST_S: Final = 5.0
_LEFT_STEPS: Final = 10
"""If its profiler does not record yet, the time of this many of its slowest steps suffices, but at least 5 s."""
_RATES: Final = 8
MOST_STEPS: Final = 10_000
"""Maximum number of steps of a window, whose events are held in memory until it ends."""
_SEARCHED: Final = 100_000
"""A window is put into the first free steps of the schedule. At most this many steps are searched."""


@dataclass(frozen=True, slots=True)
class Window:
    """The steps ``first`` to ``last``, after ``warmup`` steps of warm-up."""

    id: str
    first: int
    last: int
    warmup: int

    @property
    def begin(self) -> int:
        return self.first - self.warmup


Report = Callable[[Path | None, str | None], None]
"""Reports the file that a window was written to, or why there is none."""
_latest: weakref.ref[OnDemand] | None = None
"""The handler of this process that had the latest window."""


class OnDemand:
    """The requests for one handler. :meth:`action` is called where each step begins, and says what the profiler does
    during the step. ``process_rank()`` returns the rank of the process. ``planned(step)`` returns whether the schedule
    itself uses the profiler in a step. ``used`` tells whether a schedule asks for actions."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.process_rank: Callable[[], environment.ProcessRank] = environment.environment_rank
        self.planned: Callable[[int], bool] = lambda step: False
        self.warmup = WARMUP
        self.used = False
        self.paused = False  # whether the profiler only stops for a moment, for example for a validation
        self._folder = run_dir / FOLDER
        self._server: CaptureSocket | None = None
        self._pid = 0
        self._windows: list[Window] = []  # those that are not over, sorted
        self._step = -1
        self._signalled = self._failed = False
        self._next = self._looked = 0.0
        self._looked_step = 0
        self._rates: deque[float] = deque(maxlen=_RATES)  # steps per second between two looks
        self._read = 0  # bytes of the file of requests
        signals.on_capture(self._signal)

    def action(self, step: int) -> Action:
        """Return what the profiler does during ``step``, which is about to begin. A second call returns the same."""
        if step != self._step:
            if step < self._step:  # another training with the same handler
                self._end()
            self._step, self.used = step, True
            if not self._failed and (self._signalled or time.monotonic() >= self._next):
                try:
                    self._look(step)
                except Exception as error:
                    if failures.raised_by_signal(error):
                        raise
                    self._failed = True
                    with contextlib.suppress(OSError):  # a process that connects now gets a refusal, and does not wait
                        self.close(failures.one_line(error))
                    failures.log("nothing can be recorded on demand any more, training continues", error)
        for window in self._windows:
            if window.begin <= step <= window.last:
                return Action.WARM_UP if step < window.first else Action.RECORD
        return Action.OFF

    def ends_cycle(self, step: int) -> bool:
        """Return whether ``step`` is the last step of a window."""
        return any(step == window.last for window in self._windows)

    def cycle(self) -> Report | None:
        """Return the function that reports the cycle that has just been taken from the profiler. None if the cycle
        does not belong to a window on demand. A profiler that stops within a window ends it, unless it is paused."""
        if not self._windows or self._step < self._windows[0].first:
            return None
        window, step = self._windows[0], self._step
        steps = window.first, min(window.last, max(step - 1, window.first))
        ended = None if step > window.last else self._ended()
        done = not ended or not self.paused
        if done:
            del self._windows[0]
            if ended:  # a next training opens the socket again
                self.close()
        return lambda path, error: self._report(window, done, steps, path, error or (ended if done else None))

    def close(self, error: str | None = None) -> None:
        """Take no requests until the next call of :meth:`action`. Report the windows that are not over as ended, by
        ``error`` or by the end of the training."""
        server, self._server = self._server, None
        if server is not None:
            if self._pid == os.getpid():
                self._end(error)
            server.close()
            self._pid = 0

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # when the process ends, modules may be gone
            if self._pid == os.getpid():  # a forked child has the windows of its parent
                self._report_ended(self._windows)

    def _end(self, error: str | None = None) -> None:
        """Forget the windows that are not over. Report that nothing more will be recorded of them."""
        windows, self._windows = self._windows, []
        if windows:  # cycles that are still being written are reported before
            background.shared().submit(self.run_dir, lambda: self._report_ended(windows, error))

    def _report_ended(self, windows: Iterable[Window], error: str | None = None) -> None:
        for window in windows:
            self._report(window, True, error=error or self._ended())

    def _ended(self) -> str:
        return f"the training ended before step {self._step} was complete"

    def _signal(self) -> None:
        self._signalled = True

    def _look(self, step: int) -> None:
        """Take over the windows that other ranks have chosen, and answer the requests to this process."""
        now = time.monotonic()
        if self._looked:
            self._rates.append((step - self._looked_step) / max(now - self._looked, 1e-6))
        self._looked, self._looked_step, self._next = now, step, now + LOOK_S
        server = self._server if self._server is not None and self._pid == os.getpid() else self._open()
        while self._windows and step > self._windows[0].last + 1:
            self._report(self._windows.pop(0), True, error="the profiler was off during these steps")
        # opening a file makes a network file system ask for its present size
        with (self._folder / REQUESTS).open("rb") as file:
            if os.fstat(file.fileno()).st_size > self._read:
                self._follow(file, step)
        server.tell({"step": step})
        for connection, request in server.requests():
            server.answer(connection, self._accept(request, step))
        if self._signalled:
            self._signalled = False
            answer = self._accept({}, step)
            if "busy" in answer:
                failures.tell(f"SIGUSR2 is ignored: the process {answer['busy']}", logging.WARNING)

    def _open(self) -> CaptureSocket:
        """Open the socket. A forked child has its own. Requests that were made before do not count."""
        self._pid, self._windows = os.getpid(), []
        self._server = CaptureSocket(self.run_dir)
        self._folder = self._server.folder
        with _appending(self._folder / REQUESTS) as file:
            self._read = file.seek(0, os.SEEK_END)
        return self._server

    def _accept(self, request: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Choose the steps of a window, and tell all ranks. Return the answer to the process that asks."""
        steps, name, warmup = request.get("steps", STEPS), request.get("id"), self.warmup
        if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
            return {"error": f"cannot record {steps} steps"}
        process_rank, ranks = self.process_rank(), processes(self._folder)
        with _appending(self._folder / REQUESTS) as file:
            self._follow(file, step)
            for handler in (self, *self._other_handlers()):
                for window in handler._windows:
                    if window.id == name:  # another process or handler has accepted the same request
                        return handler._answer(window, ranks)
                    if window.last >= handler._step:
                        return {"busy": f"is recording steps {window.first} to {window.last}"}
            several = len(ranks) > 1 or (process_rank.world_size or 1) > 1
            ahead = max(_LEAST_AHEAD, math.ceil(AGREE_S * max(self._rates, default=0))) if several else 0
            first = self._free(step + ahead, warmup, steps)
            if first is None:
                return {"busy": f"never leaves {warmup + steps} steps without the profiler, because of its schedule"}
            window = Window(str(name or uuid.uuid4().hex[:12]), first, first + steps - 1, warmup)
            self._read = file.seek(0, os.SEEK_END) + file.write(json.dumps(asdict(window)).encode() + b"\n")
        self._hold(window)
        return self._answer(window, ranks)

    def _answer(self, window: Window, ranks: Sequence[tuple[str, int]]) -> dict[str, Any]:
        return {**asdict(window), "run_dir": str(self.run_dir), "processes": ranks}

    def _follow(self, file: IO[bytes], step: int) -> None:
        """Read the windows that were appended to the file of requests."""
        file.seek(self._read)
        lines = file.read()
        complete = lines[: lines.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            try:
                window = decode_json(line, Window)
            except ValueError:  # another program has written into the file
                continue
            error = None
            if step > window.first:
                error = f"step {step} began before it read the request"
            elif any(accepted.last >= other._step for other in self._other_handlers() for accepted in other._windows):
                error = "another handler of the process is recording"
            elif any(window.begin <= accepted.last + 1 for accepted in self._windows):
                error = "it records other steps"
            if error is None:
                self._hold(window)
            else:
                self._report(window, True, error=error)

    def _hold(self, window: Window) -> None:
        global _latest
        self._windows.append(window)
        _latest = weakref.ref(self)

    def _other_handlers(self) -> tuple[OnDemand, ...]:
        """Return the handler of this process that has the latest window, if it is another one that may be recording. A
        process can have only one running profiler."""
        other = _latest() if _latest is not None else None
        if other is None or other is self or other._pid != os.getpid():
            return ()
        if time.monotonic() <= other._looked + other._left_after():
            return (other,)
        other._end()  # for example, its loop has raised an error
        return ()

    def _left_after(self) -> float:
        """Return the time in s after which the loop of this handler counts as over. While its profiler records, no
        other could be started anyway."""
        recording = not self.paused and any(self._step >= window.first for window in self._windows)
        return _LEFT_S if recording or not self._rates else max(_LEFT_AT_LEAST_S, _LEFT_STEPS / min(self._rates))

    def _free(self, step: int, warmup: int, steps: int) -> int | None:
        """Return the first step of a window whose warm-up begins at ``step`` or later. The profiler is off for a step
        between windows. Return None if the schedule leaves no room."""
        start = max([step, *(window.last + 2 for window in self._windows)])
        for at in range(start - 1, start + _SEARCHED):
            if at >= 0 and self.planned(at):
                start = at + 2
            elif at >= start + warmup + steps:
                return start + warmup
        return None

    def _report(
        self,
        window: Window,
        done: bool,
        steps: tuple[int, int] | None = None,
        path: Path | None = None,
        error: str | None = None,
    ) -> None:
        """Append what this process has recorded to the results. Never raises."""
        with signals.guarded("the result of a recording on demand cannot be reported, training continues"):
            result = {
                "id": window.id, "rank": self.process_rank().rank, "host": host(), "pid": os.getpid(), "done": done,
                "steps": steps, "path": None if path is None else str(path), "error": error,
            }  # fmt: skip
            paths.append_line(self._folder / RESULTS, json.dumps(result).encode())


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that the ranks share, for reading and appending. Others wait meanwhile."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
