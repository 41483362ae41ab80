"""The limit of a recorded window: a profiler needs memory for each event while it records, and several times as much
when it stops. Steps with very many events would fill the memory of the machine, and nothing would be stored.

A profiler cannot count its events while it records. The adapter estimates them: :class:`EventEstimate`. The estimate is
checked at each end of a step, and several times a second within a step: in the main thread, because a profiler must be
stopped by the thread that started it. While that thread is inside a function of the framework, such as a backward
pass, the check waits for the end of the function."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from perfkit_core.base.language.messages import Text, message
from perfkit_core.base.system import machine

_MOST_OF_FREE: Final = 0.4
"""Share of the free memory that a profiler may need when it stops. perfkit's reading then needs half as much again,
and between two checks, the profiler records more."""
_LITTLE_BYTES: Final = 128 << 20
"""Less memory is there. To ask how much is free takes 0.4 ms, and each recorded step would be longer by this time."""
_SECONDS: Final = 0.2
"""Time between two checks within a step."""
_FAST, _FASTEST = 400_000, 1_000_000
"""Events that a thread of a usual program can produce in a second, and that any thread can produce."""


@dataclass
class EventEstimate:
    """Estimates the events since it was made.

    - ``recording_bytes``, ``stop_bytes``: memory for an event while the profiler records, and further memory at its end
    - ``most_events``: default limit of the events of a window
    - ``counted``: returns the number of events as far as the framework counts something that is proportional, else 0"""

    recording_bytes: int
    stop_bytes: int
    most_events: int
    counted: Callable[[], int] = int
    _resident: int = field(default_factory=machine.resident)
    _begun: float = field(default_factory=time.perf_counter)

    def events(self, per_second: int = _FAST) -> int:
        """Return an estimate, at most ``per_second``. What the framework cannot count is limited by the time and by the
        memory that the process has taken since it had least. The script may have taken it: the estimate may be too
        high."""
        by_time = (time.perf_counter() - self._begun) * per_second
        resident = machine.resident()
        self._resident = min(self._resident, resident)  # the script may have freed memory
        by_memory = (resident - self._resident) / self.recording_bytes
        return self.counted() or int(min(by_time, by_memory))

    def reason(self, most_events: int, more_events: int = 0, processes: Callable[[], int] = lambda: 1) -> Text | None:
        """Return why the window must end, or None. ``more_events`` are those of a step that would follow.
        ``processes()`` returns the number of processes that share the free memory."""
        so_far = self.events()
        events = so_far + more_events
        if events > most_events:
            return message("it would have more than {events:count} events", events=most_events)
        # too many events only take time, but a process that needs too much memory is killed
        needed = self.events(_FASTEST) * events // max(so_far, 1) * self.stop_bytes
        if needed < _LITTLE_BYTES:
            return None
        free = machine.free()
        if free is not None and needed > _MOST_OF_FREE * free / processes():
            return message("its events would need more memory than is free")
        return None


class Checks:
    """Calls the method ``check`` of an object in the main thread several times a second, between two Python
    instructions, until :meth:`end`. Does nothing if another thread than the main thread makes it."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = weakref.WeakMethod(check)
        self._ended = threading.Event()
        self._pending = False
        if threading.current_thread() is threading.main_thread():
            _running.add(self)
            arguments = weakref.ref(self), self._ended
            threading.Thread(target=_ask, args=arguments, name="perfkit-window", daemon=True).start()

    def ask(self) -> None:
        if not self._pending:
            self._pending = ctypes.pythonapi.Py_AddPendingCall(_call, None) == 0

    def run(self) -> None:
        self._pending = False
        check = self._check()
        if check is not None and not self._ended.is_set():
            check()

    def end(self) -> None:
        self._ended.set()
        _running.discard(self)


_running: weakref.WeakSet[Checks] = weakref.WeakSet()


def _run_all(_: object) -> int:
    """Run all checks. Python calls this in the main thread, perhaps after the object that asked for it is gone."""
    for checks in tuple(_running):
        checks.run()
    return 0


_call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_all)


def _ask(reference: weakref.ref[Checks], ended: threading.Event) -> None:
    while not ended.wait(_SECONDS):
        checks = reference()
        if checks is None:
            return
        checks.ask()
        del checks
