"""Live capture: what to pass to ``paddle.profiler.Profiler`` as ``on_trace_ready``."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording.capture import CycleWriter, Place, Taken
from perfkit_core.trace import Trace
from perfkit_paddle import findings, framework
from perfkit_paddle.pb_rows import rows
from perfkit_paddle.pb_source import Live, finish, trace_of
from perfkit_paddle.walk import walk

logger = logging.getLogger("perfkit")

SOURCE: Final = "paddle.profiler"
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_flops")


def trace_handler(run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()) -> CycleWriter[Any]:
    """A callback that writes every recorded cycle into ``run_dir``, one Parquet file a cycle and process.

    ``also`` are further callbacks, called with the profiler after us. Nothing raises into the training: an error is
    logged (logger ``perfkit``) and the run marked as incomplete. The training is held for less than a millisecond; a
    thread reads and writes what was recorded while it goes on, and ``flush()`` waits for that.
    Paddle logs a line on stderr for each; the environment variable ``GLOG_minloglevel=1``, set before the import of
    paddle, silences it.
    """
    return CycleWriter(run_dir, take, also)


def extract(profiler: Any, place: Place, no_steps: frozenset[int] = frozenset()) -> Trace:
    """The Trace of the cycle that a profiler has just finished. Raises CaptureError when it has none."""
    return take(profiler, place, no_steps).finish()


def take(profiler: Any, place: Place, no_steps: frozenset[int] = frozenset()) -> Taken:
    """The cycle that a profiler has just finished: Paddle's result outlives the cycles that follow.

    Raises CaptureError when there is none.
    """
    result = getattr(profiler, "profiler_result", None)
    if result is None:
        raise CaptureError("the profiler has recorded nothing", "timer_only=True records no events")
    from perfkit_paddle import modules

    facts = {"framework_version": framework.paddle().__version__, "options": _options(profiler)}
    live = Live(place.rank, no_steps, facts, modules.extra())
    running = getattr(profiler, "step_num", None)
    return Taken(lambda: _with_partial_step(_trace(result, live), running))


def _options(profiler: Any) -> dict[str, Any]:
    return {name: bool(getattr(profiler, name)) for name in _OPTIONS if hasattr(profiler, name)}


def _trace(result: Any, live: Live) -> Trace:
    """Through Paddle's protobuf; through its tree where that fails."""
    try:
        return trace_of(saved(result), SOURCE, live=live)
    except Exception as error:  # whatever fails, the tree is still there
        logger.warning("perfkit: reading Paddle's protobuf failed (%s); walking its tree instead", error)
        return walked(result, live).with_findings(findings.save_failed(str(error)))


def walked(result: Any, live: Live) -> Trace:
    """The Trace from Paddle's tree of Python objects."""
    tables = walk(result.get_data(), result.get_extra_info())
    return finish(tables, rows(tables), SOURCE, live=live)


def saved(result: Any) -> bytes:
    """The protobuf that Paddle writes, through memory where the system can. Empty when Paddle could not write."""
    if not hasattr(os, "memfd_create"):
        return _saved_to_disk(result)
    descriptor = os.memfd_create("perfkit")
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        result.save(f"/proc/self/fd/{descriptor}", "pb")
        return file.read()


def _saved_to_disk(result: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        path = Path(folder) / "cycle.pb"
        result.save(str(path), "pb")
        return path.read_bytes()


def _with_partial_step(trace: Trace, running: int | None) -> Trace:
    """The step that is still running when the callback comes was ended by stop(), not by step()."""
    steps = trace.ints("step")[trace.rows("kind", "step")]
    if running is None or not len(steps) or int(steps.max()) != running:
        return trace
    return trace.with_findings(findings.partial_step(int(running)))
