"""The clock of a recorded training. It times every step, also those that the profiler does not record.

A profiler makes steps longer. The steps outside its window show how long a step is without it. perfkit's schedules,
callbacks and ``perfkit record`` tell a clock where each step begins. The clock takes some microseconds a step. While
steps are recorded, it also samples the Python frames of the training: profilers record them only on request, and at a
cost for each call. A sample costs about 30 µs. It shows which line runs, and what fills the time without operators."""

from __future__ import annotations

import contextlib
import enum
import gc
import os
import runpy
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Final, Generic, TypeVar

from perfkit_core.base.system.machine import processor_ticks, usable_cpus
from perfkit_core.base.system.processes import watch_forks
from perfkit_core.recording import signals
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps, WorkBetween
from perfkit_core.trace.storage import background

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_SECONDS, _THIN_SECONDS = 0.005, 0.02
"""Time between two samples: of recorded steps, and of the rest of a script. A sample takes the lock and the caches from
the training, which costs it up to 0.1 ms: every 5 ms, 2% to 5% of its time, and a step without the profiler would seem
so much longer."""
_DENSE: Final = 100
"""Number of samples of the rest that are taken as often as those of recorded steps: a short script has few."""
_SWITCH_SECONDS: Final = 0.0005
"""How long Python code runs on while the sampling thread waits for the GIL. With Python's default of 5 ms, code that
calls no operator for some ms has no samples, and the operator after it has too many."""
_MOST: Final = 10_000
"""Maximum number of samples in a cycle."""
_DEPTH: Final = 48
"""Maximum number of frames in a sample, counted from the innermost frame."""
_LEAST_CALLS, _LEAST_SHARE = 3, 0.3
"""A function that may end steps has at least so many calls, and this share of the samples."""
RUNS_SCRIPT: Final = str(Path(__file__).parents[1] / "cli" / "record.py")
"""The file of ``perfkit record``."""
_RUNPY: Final = (runpy.__file__, "<frozen runpy>")


def of_script(frames: Sequence[tuple[CodeType, int | None]]) -> Sequence[tuple[CodeType, int | None]]:
    """Return the frames of a stack, innermost first, without those of ``perfkit record`` and of Python's runpy, which
    run the script."""
    end = next((at for at, (code, _) in enumerate(frames) if code.co_filename == RUNS_SCRIPT), len(frames))
    frames = frames[:end]
    while frames and frames[-1][0].co_filename in _RUNPY:
        frames = frames[:-1]
    return frames


class FrameSampler:
    """Samples the thread that calls ``start``. The methods never raise.

    - ``count_calls``: also count the calls of each function that samples see, in ``calls``: code and name of its module
      → calls. Calls between two samples are not seen, so there are at least as many. Soon sample less often.
    - ``thin``: soon sample less often. Whenever there are too many samples, drop every second one, and sample half as
      often. Otherwise the sampling ends. The samples have whole stacks. While there are other threads, Python's
      interval stays: a shorter one makes them up to 9% slower."""

    def __init__(self, count_calls: bool = False, thin: bool = False) -> None:
        self._count_calls, self._thin = count_calls, thin
        self.calls: Counter[tuple[CodeType, str]] = Counter()
        self.native_id: int | None = None  # thread id of the last sampling thread
        self._thread: threading.Thread | None = None
        self._switch_seconds = 0.0  # Python's interval before the sampling
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._collects_later = False  # whether the garbage collector is off while a stack is read
        self._forget()
        watch_forks(self)

    def start(self) -> None:
        if self._thread is not None:
            return
        self._ended = threading.Event()
        arguments = threading.get_ident(), self._ended
        self._thread = threading.Thread(target=self._run, args=arguments, name="perfkit-frames", daemon=True)
        self._switch_seconds = sys.getswitchinterval()
        try:
            self._thread.start()
        except RuntimeError:  # the process is ending
            self._thread = None
            return
        self._switch_after(_SWITCH_SECONDS)

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            with self._lock:
                self._ended.set()
                self._switch_after(self._switch_seconds)
            with contextlib.suppress(RuntimeError):  # a forked child does not have the thread
                thread.join(1.0)

    def forked(self) -> None:
        """In a forked child, which lacks the sampling thread, undo what that thread was doing."""
        if self._thread is not None:
            self._switch_after(self._switch_seconds)
        self._thread, self._lock = None, threading.Lock()
        if self._collects_later:
            self._collects_later = False
            gc.enable()

    def _switch_after(self, seconds: float) -> None:
        """Set Python's interval, unless the program has set another."""
        if sys.getswitchinterval() in (_SWITCH_SECONDS, self._switch_seconds):
            sys.setswitchinterval(min(seconds, self._switch_seconds))

    def take_samples(self) -> FrameSamples:
        """Return the samples since the last call."""
        stacks = tuple(
            ";".join(f"{code.co_filename}({line}): {code.co_name}" for code, line in of_script(key))
            for key in self._stacks
        )
        samples = FrameSamples(
            stacks, tuple((at - self._start_ns) // 1000 for at in self._at_ns), tuple(self._stack), self._start_ns
        )
        self._forget()
        return samples

    def sampled(self) -> tuple[list[int], list[int], list[tuple[tuple[CodeType, int | None], ...]]]:
        """Return the times of the samples so far in ns since 1970, the number of the stack of each, and the stacks:
        code and line, innermost frame first."""
        with self._lock:
            return self._at_ns[:], self._stack[:], list(self._stacks)

    def repeated(self) -> list[tuple[str, CodeType, int]]:
        """Return the functions that ran several times and in a large part of the samples, those with the most samples
        first: name of the module, code and number of calls. Needs ``count_calls``."""
        samples: Counter[CodeType] = Counter()
        seen, counted, stacks = self._stack[:], list(self.calls.items()), list(self._stacks)  # sampling may go on
        for stack, count in Counter(seen).items():
            for code in {code for code, _ in of_script(stacks[stack])}:
                samples[code] += count
        enough = max(_LEAST_SHARE * len(seen), 1)
        functions = [
            (module, code, calls)
            for (code, module), calls in counted
            if calls >= _LEAST_CALLS and samples[code] >= enough and "<" not in code.co_qualname
        ]
        return sorted(functions, key=lambda item: (-samples[item[1]], item[2]))

    def _forget(self) -> None:
        self._stacks: dict[tuple[tuple[CodeType, int | None], ...], int] = {}
        self._at_ns: list[int] = []
        self._stack: list[int] = []
        self._start_ns = time.time_ns()

    def _run(self, thread: int, ended: threading.Event) -> None:
        self.native_id = threading.get_native_id()
        seconds, depth = _SECONDS, sys.getrecursionlimit() if self._thin else _DEPTH
        while not ended.wait(seconds) and len(self._at_ns) < _MOST:
            with self._no_collection():
                at_ns, key = time.time_ns(), self._stack_of(thread, depth)
            with self._lock:
                self._at_ns.append(at_ns)
                self._stack.append(self._stacks.setdefault(key, len(self._stacks)))
                if (self._thin or self._count_calls) and len(self._at_ns) == _DENSE:
                    seconds = _THIN_SECONDS
                if self._thin and len(self._at_ns) == _MOST:
                    del self._at_ns[::2], self._stack[::2]
                    seconds *= 2
                if self._thin and not ended.is_set():
                    others = threading.active_count() > 2  # besides the sampled and this one
                    self._switch_after(self._switch_seconds if others else _SWITCH_SECONDS)

    def _stack_of(self, thread: int, depth: int) -> tuple[tuple[CodeType, int | None], ...]:
        """Return code and line of the ``depth`` innermost frames of ``thread``, and count the calls that are new."""
        frame = sys._current_frames().get(thread)
        key: list[tuple[CodeType, int | None]] = []
        while frame is not None and len(key) < depth:
            key.append((frame.f_code, frame.f_lineno))
            # A mark that lasts as long as the call. Python reads it only in a debugger.
            if self._count_calls and not frame.f_trace_opcodes and frame.f_trace is None:
                frame.f_trace_opcodes = True
                self.calls[frame.f_code, str(frame.f_globals.get("__name__"))] += 1
            frame = frame.f_back
        return tuple(key)

    @contextlib.contextmanager
    def _no_collection(self) -> Iterator[None]:
        """Keep the garbage collector from running while the frames of another thread are read. Before Python 3.12 it
        may run inside of each allocation. What it calls (``__del__``, ``gc.callbacks``) lets the other thread go on and
        leave the frame being read: the process then hangs or reads freed memory."""
        if sys.version_info >= (3, 12) or not gc.isenabled():
            yield
            return
        self._collects_later = True
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            self._collects_later = False


Native = TypeVar("Native")
_Reading = tuple[int, int | None, int | None, int | None, int | None, int | None]
_Step = tuple[int, bool, _Reading, _Reading]  # number, whether it was recorded, readings at its start and end

_STEPS_KEPT, _STRETCH = 64, 8
"""The clock keeps the latest recorded steps, four times as many as this, and twice as many others. These are stretches
that are spread over the time since the last cycle: other processes, or the training, may be slow for some seconds."""
_SPARSE: Final = 16
"""A sparse clock times one step in this number of steps, after :data:`_STEPS_KEPT` steps without the profiler."""
SHORT_NS: Final = 2_000_000
"""After a shorter step without the profiler, only the time is read. Reading what the thread used takes 12 µs, and makes
the next step 10 to 20 µs longer, because it evicts caches. Other processes rarely interrupt so short a step."""
SAVED_AFTER: Final = (8, _STEPS_KEPT)
"""The clock saves the step times after these numbers of steps without the profiler that follow a cycle."""


class Action(enum.Enum):
    """State of the profiler during a step."""

    OFF = enum.auto()
    WARM_UP = enum.auto()
    RECORD = enum.auto()


class StepClock:
    """Times the steps of one training. The methods raise no errors. :class:`perfkit_core.recording.writer.CycleWriter`
    sets ``save``, which writes the step times into the run folder, because steps also follow the last cycle.
    ``between`` returns the work between the steps; who looks for it sets it. A ``sparse`` clock is for trainings that
    nearly always run without the profiler, on demand."""

    def __init__(self) -> None:
        self.sparse = False
        self.save: Callable[[], None] | None = None
        self.between: Callable[[], WorkBetween | None] = lambda: None
        self._before: deque[_Step] = deque(maxlen=2 * _STEPS_KEPT)
        self._after: deque[_Step] = deque(maxlen=2 * _STEPS_KEPT)
        self._recorded: deque[_Step] = deque(maxlen=4 * _STEPS_KEPT)
        self._usage = Usage()
        self._frames = FrameSampler()
        self._first: int | None = None
        self._step, self._action, self._begun = 0, Action.WARM_UP, self._usage.read()
        self._waited_ns: int | None = None  # for a processor, at the last reading
        self._usual = False  # whether the running step contains nothing but training, and perhaps recording
        self._since_cycle = self._unsaved = self._idle = 0
        self._pid = os.getpid()
        self._written: int | None = 0  # :func:`.background.idle_since` at the start of the running step
        self._start: _Processors | None = None  # reading at the start of the recorded steps
        self._used = Utilisation()

    def begins(self, step: int, action: Action, at_ns: int | None = None) -> None:
        """End the running step, and begin ``step``: now, or at a time that has passed. The caller then leaves out."""
        signals.shared().end_again()
        self._idle = self._idle + 1 if action is Action.OFF and self._action is Action.OFF else 0
        if self.sparse and self._idle > _STEPS_KEPT and self._idle % _SPARSE > 1:
            self._step, self._usual = step, False
            return
        begun = self._read(action, at_ns)
        written, idle_since = self._written, background.idle_since()
        if self._first is None:
            self._first = step
        elif self._usual and idle_since == written:
            self._add(begun)
        # If the action changes, the profiler is started or stopped within the step.
        self._usual = idle_since is not None and action is self._action and action is not Action.WARM_UP
        self._written = idle_since
        changed = action is not self._action
        self._step, self._action, self._begun = step, action, begun
        if action is Action.RECORD:
            self._frames.start()
            self._start = self._start or _Processors()
        elif changed:
            self._frames.stop()
            self._used, self._start = self.utilisation, None
        if at_ns is None:
            self.leave_out()

    def _read(self, action: Action, at_ns: int | None) -> _Reading:
        now_ns = at_ns or time.perf_counter_ns()
        if action is self._action is Action.OFF and now_ns - self._begun[0] < SHORT_NS:
            return now_ns, None, None, None, None, None
        _, ran_ns, self._waited_ns, preempted, faults, process_ns = self._usage.read()
        return now_ns, ran_ns, self._waited_ns, preempted, faults, process_ns

    def leave_out(self) -> None:
        """Begin the running step only now, if it is not recorded: perfkit itself took the time since its start. What
        the thread used is read again, because it may have waited for a processor meanwhile."""
        if self._action is Action.OFF:
            if self._begun[5] is None:  # after a short step, only the time is read
                self._begun = time.perf_counter_ns(), None, None, None, None, None
            else:
                self._begun = self._usage.read()
                self._waited_ns = self._begun[2]

    def interrupted(self) -> None:
        """Leave out the running step, which contains something else, for example a validation."""
        self._usual = False

    def cycle_taken(self) -> None:
        """Leave out the running step, in which a cycle was taken from the profiler. Stop sampling, because the training
        may have ended."""
        self._usual = False
        self._start, self._used = _Processors() if self._action is Action.RECORD else None, Utilisation()
        self._frames.stop()
        self._since_cycle = self._unsaved = 0

    def save_rest(self) -> None:
        """Save the times of the steps since the last cycle, unless they are saved already."""
        if self.save is not None and self._unsaved and self._pid == os.getpid():
            self._unsaved = 0
            with signals.guarded("the step times could not be saved, training continues"):
                self.save()

    def times(self) -> TimedSteps:
        """Return the steps that have ended, sorted by number."""
        steps = sorted((*self._before, *self._recorded, *self._after), key=lambda step: step[0])
        timed = []
        for number, recorded, begun, ended in steps:
            pairs = zip(begun, ended, strict=True)
            wall_ns, *used = (None if before is None or after is None else after - before for before, after in pairs)
            timed.append(TimedStep(number, recorded, wall_ns or 0, *used))
        return TimedSteps(tuple(timed), self._first or 0, len(usable_cpus()), self.between())

    @property
    def own_ns(self) -> int:
        """:meth:`Usage.own_ns` at the start of the running step, but with waits that end in short steps only at the end
        of the next long one."""
        return self._begun[0] - (self._waited_ns or 0)

    @property
    def utilisation(self) -> Utilisation:
        """What used the processors during the recorded steps of this cycle."""
        return self._start.used() if self._start else self._used

    @property
    def sampler(self) -> int | None:
        """The thread id of the sampler of this cycle, which is no thread of the training."""
        return self._frames.native_id

    def samples(self) -> FrameSamples:
        """Return the samples of the cycle that was just recorded."""
        return self._frames.take_samples()

    def _add(self, now: _Reading) -> None:
        step = self._step, self._action is Action.RECORD, self._begun, now
        if step[1]:
            self._recorded.append(step)
            return
        stretch = self._since_cycle // _STRETCH
        if self.sparse or stretch % (1 << max(stretch.bit_length() - 3, 0)) == 0:  # four whenever the time doubles
            (self._after if self._recorded else self._before).append(step)
            self._unsaved += 1
        self._since_cycle += 1
        if self._since_cycle in SAVED_AFTER:
            self.save_rest()


@dataclass(frozen=True, slots=True)
class Utilisation:
    """What used the processors, as ratios.

    - ``cpu``: the CPU time of all threads of the process ("process"), divided by the elapsed time, and the busy share
      of the machine's processors ("system"). Unknown ratios are missing.
    - ``threads``: thread id → name and CPU time, divided by the elapsed time, of the other Python threads."""

    cpu: dict[str, float] = field(default_factory=dict)
    threads: dict[int, tuple[str, float]] = field(default_factory=dict)


class _Processors:
    """A reading of how long the processors have been busy."""

    def __init__(self) -> None:
        self._times = time.perf_counter_ns(), time.process_time_ns(), *processor_ticks()
        self._threads = {number: (name, thread_ns) for number, name, thread_ns in _other_threads()}

    def used(self) -> Utilisation:
        now = _Processors()
        wall_ns, process_ns, busy, ticks = (b - a for a, b in zip(self._times, now._times, strict=True))
        wall_ns = max(wall_ns, 1)
        cpu = {"process": process_ns / wall_ns, **({"system": busy / ticks} if ticks else {})}
        begun = {number: thread_ns for number, (_, thread_ns) in self._threads.items()}
        threads = {
            number: (name, (thread_ns - begun.get(number, 0)) / wall_ns)
            for number, (name, thread_ns) in now._threads.items()
        }
        return Utilisation(cpu, threads)


def _other_threads() -> Iterator[tuple[int, str, int]]:
    """Yield id, name and CPU time in ns of each Python thread but this one and those of perfkit. Yield nothing where
    the system does not record the time."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.name.startswith("perfkit"):
            with contextlib.suppress(OSError, ValueError):  # the thread has ended, or this is no Linux
                text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii")
                yield thread.native_id or 0, thread.name, int(text.split()[0])


class Usage:
    """Reads the time, and what the calling thread has used of the machine."""

    def __init__(self) -> None:
        self._thread: tuple[int, int] | None = None  # process and thread that the open file is about
        self._file: int | None = None

    def read(self) -> _Reading:
        """Return the time in ns, the time that the thread ran and waited for a processor in ns, how often the system
        took its processor away, the pages that it touched first, and the time that all threads of the process ran.
        Unknown numbers are None."""
        now_ns, process_ns = time.perf_counter_ns(), time.process_time_ns()
        ran_ns = waited_ns = preempted = faults = None
        try:
            usage = resource.getrusage(resource.RUSAGE_THREAD)
            preempted, faults = usage.ru_nivcsw, usage.ru_minflt
            thread = os.getpid(), threading.get_native_id()
            if thread != self._thread:
                self.close()
                self._thread = thread
                self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            if self._file is not None:
                ran_ns, waited_ns = map(int, os.pread(self._file, 64, 0).split()[:2])
        except Exception:  # not every system has these numbers
            pass
        return now_ns, ran_ns, waited_ns, preempted, faults, process_ns

    def own_ns(self) -> int:
        """Return a clock of the calling thread in ns that stands still while the thread waits for a processor."""
        now_ns, _, waited_ns, *_ = self.read()
        return now_ns - (waited_ns or 0)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    __del__ = close


class TimedSchedule(Generic[Native]):
    """A schedule of a framework's profiler that also tells a clock where each step begins. ``actions`` translates what
    the schedule returns. Values that it lacks mean that the profiler is on."""

    def __init__(
        self, schedule: Callable[[int], Native], actions: Mapping[Native, Action], sparse: bool = False
    ) -> None:
        self.clock = StepClock()
        self.clock.sparse = sparse
        self._schedule, self._actions = schedule, actions

    def __call__(self, step: int) -> Native:
        native = self._schedule(step)
        self.clock.begins(step, self._actions.get(native, Action.RECORD))
        return native


def clock_of(schedule: object) -> StepClock | None:
    """Return the clock of a profiler's schedule, or None if perfkit did not make the schedule."""
    return schedule.clock if isinstance(schedule, TimedSchedule) else None
