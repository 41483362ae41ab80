"""Live capture: what to pass to ``paddle.profiler.Profiler`` as ``on_trace_ready``.

The protobuf of a cycle that Paddle's profiler has just finished, without a file where the system can.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.model.trace import Trace
from perfkit_core.recording.environment import Place, environment_place, host
from perfkit_core.recording.writer import CycleWriter, Taken
from perfkit_core.system import failures
from perfkit_paddle import findings, framework
from perfkit_paddle.pb_rows import rows
from perfkit_paddle.pb_source import Live, finish, read_rows
from perfkit_paddle.walk import walk


def saved(result: Any) -> memoryview:
    """What ``result.save`` writes, without a copy of it. Empty when Paddle could not write.

    Paddle holds Python's lock from the beginning to the end of it (1.2 µs an event), so another thread would stop the
    training as long, only in the middle of a step instead of between two.
    """
    if not hasattr(os, "memfd_create"):
        return _saved_to_disk(result)
    descriptor = os.memfd_create("perfkit")
    try:
        result.save(f"/proc/self/fd/{descriptor}", "pb")
        if not os.fstat(descriptor).st_size:  # nothing can be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _saved_to_disk(result: Any) -> memoryview:
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        path = Path(folder) / "cycle.pb"
        result.save(str(path), "pb")
        return memoryview(path.read_bytes())


SOURCE: Final = "paddle.profiler"
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_flops")
_LAUNCHER: Final = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")


def trace_handler(run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()) -> CycleWriter[Any]:
    """A callback that writes every recorded cycle into ``run_dir``, one Parquet file a cycle and process.

    ``also`` are further callbacks, called with the profiler after us. Nothing raises into the training: an error is
    logged (logger ``perfkit``) and the run marked as incomplete. The training is held while Paddle saves the cycle (1
    to 1.5 µs an event); a thread does the rest while the training goes on, and ``flush()`` waits for that.
    Paddle logs a line on stderr for each cycle; the environment variable ``GLOG_minloglevel=1``, set before the import
    of paddle, silences it.
    """
    return CycleWriter(run_dir, take, also, place, warn_uncalled=True)


def extract(profiler: Any, place: Place, no_steps: frozenset[int] = frozenset()) -> Trace:
    """The Trace of the cycle that a profiler has just finished. Raises CaptureError when it has none."""
    return take(profiler, place, no_steps).finish()


def take(profiler: Any, place: Place, no_steps: frozenset[int] = frozenset()) -> Taken:
    """The cycle that a profiler has just finished, saved by Paddle; what remains to be done needs no lock of Python.

    Raises CaptureError when there is none.
    """
    result = getattr(profiler, "profiler_result", None)
    if result is None:
        raise CaptureError("the profiler has recorded nothing", "timer_only=True records no events")
    from perfkit_paddle import layers

    facts = {"framework_version": framework.paddle().__version__, "options": _options(profiler)}
    live = Live(place.rank, no_steps, facts, {**layers.extra(), **host(_threads())})
    running = getattr(profiler, "step_num", None)
    return _taken(result, live).then(lambda trace: _with_partial_step(trace, running))


def _threads() -> int | None:
    """Paddle sets the variable where nobody else has."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else None


def _options(profiler: Any) -> dict[str, Any]:
    return {name: bool(getattr(profiler, name)) for name in _OPTIONS if hasattr(profiler, name)}


def _taken(result: Any, live: Live) -> Taken:
    """Through Paddle's protobuf; through its tree where that fails."""
    try:
        content = saved(result)
    except Exception as error:  # whatever fails, the tree is still there
        trace = _instead(result, live, error)
        return Taken(lambda: trace)
    return Taken(lambda: _decoded(content, result, live))


def _decoded(content: memoryview, result: Any, live: Live) -> Trace:
    try:
        scanned, found = read_rows(content, SOURCE)
    except Exception as error:
        return _instead(result, live, error)
    return finish(scanned.tables, found, SOURCE, live=live)


def _instead(result: Any, live: Live, error: Exception) -> Trace:
    failures.tell(f"reading Paddle's protobuf failed ({error}); walking its tree instead", logging.WARNING)
    return walked(result, live).with_findings(findings.save_failed(str(error)))


def walked(result: Any, live: Live) -> Trace:
    """The Trace from Paddle's tree of Python objects."""
    tables = walk(result.get_data(), result.get_extra_info())
    return finish(tables, rows(tables), SOURCE, live=live)


def place() -> Place:
    """From the variables that ``paddle.distributed`` reads, else from those of other launchers."""
    return environment_place(_LAUNCHER)


def _with_partial_step(trace: Trace, running: int | None) -> Trace:
    """The step that is still running when the callback comes was ended by stop(), not by step()."""
    steps = trace.ints("step")[trace.rows("kind", "step")]
    if running is None or not len(steps) or int(steps.max()) != running:
        return trace
    return trace.with_findings(findings.partial_step(int(running)))
