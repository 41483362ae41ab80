"""Samples the Python frames of the training while its profiler records.

Profilers record Python frames only on request, and at a cost for each call. A sample costs about 30 µs, whatever the
training does. It shows which line runs, and what fills the time in which no operator runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import CodeType
from typing import Final

from perfkit_core.trace.model.frame_samples import FrameSamples

_SECONDS: Final = 0.005
"""Time between two samples."""
_MOST: Final = 10_000
"""Maximum number of samples in a cycle."""
_DEPTH: Final = 48
"""Maximum number of frames in a sample, counted from the innermost frame."""


class FrameSampler:
    """Samples the thread that calls ``start``. The methods never raise."""

    def __init__(self) -> None:
        self.native_id: int | None = None  # thread id of the last sampling thread
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._forget()

    def start(self) -> None:
        if self._thread is not None:
            return
        self._ended = threading.Event()
        arguments = threading.get_ident(), self._ended
        self._thread = threading.Thread(target=self._run, args=arguments, name="perfkit-frames", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process is ending
            self._thread = None

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.set()
            with contextlib.suppress(RuntimeError):  # a forked child does not have the thread
                thread.join(1.0)

    def take_samples(self) -> FrameSamples:
        """Return the samples since the last call."""
        stacks = tuple(";".join(f"{code.co_filename}({line}): {code.co_name}" for code, line in key)
                       for key in self._stacks)  # fmt: skip
        samples = FrameSamples(
            stacks, tuple((at - self._start_ns) // 1000 for at in self._at_ns), tuple(self._stack), self._start_ns
        )
        self._forget()
        return samples

    def _forget(self) -> None:
        self._stacks: dict[tuple[tuple[CodeType, int | None], ...], int] = {}
        self._at_ns: list[int] = []
        self._stack: list[int] = []
        self._start_ns = time.time_ns()

    def _run(self, thread: int, ended: threading.Event) -> None:
        self.native_id = threading.get_native_id()
        while not ended.wait(_SECONDS) and len(self._at_ns) < _MOST:
            frame = sys._current_frames().get(thread)
            at_ns = time.time_ns()
            key: list[tuple[CodeType, int | None]] = []
            while frame is not None and len(key) < _DEPTH:
                key.append((frame.f_code, frame.f_lineno))
                frame = frame.f_back
            self._at_ns.append(at_ns)
            self._stack.append(self._stacks.setdefault(tuple(key), len(self._stacks)))
