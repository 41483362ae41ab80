"""Options that apply to every recording that a command or a Python call reads: recordings of graph captures, the step
kind to keep, the ranges that are steps, and compile information. They are set once (:func:`choosing`), and apply when a
file is read (:func:`applied`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import msgspec

from perfkit_core.assembly import server_steps
from perfkit_core.errors import UsageError
from perfkit_core.model.trace import Trace
from perfkit_core.readers import graph_captures
from perfkit_core.system.paths import PathLike, absolute


class Choices(msgspec.Struct, frozen=True):
    """What to do with each recording after reading.

    - ``graph_captures``: files or folders with recordings of graph captures, as absolute paths or URLs.
    - ``step_kind``: step kind of a server to keep, one of ``server_steps.KINDS``, or None for all.
    - ``step_on``: name of the ranges that are steps, or None for the recorded steps. It applies to joined files.
    - ``compile_info``: files or folders with what a compiler wrote about its kernels, as absolute paths.
    """

    graph_captures: tuple[str, ...] = ()
    step_kind: str | None = None
    step_on: str | None = None
    compile_info: tuple[str, ...] = ()


_NONE: Final = Choices()
_CHOSEN: Final[ContextVar[Choices]] = ContextVar("choices", default=_NONE)


def chosen() -> Choices:
    return _CHOSEN.get()


def including(
    *,
    step_on: str | None = None,
    step_kind: str | None = None,
    graph_capture: PathLike | Sequence[PathLike] = (),
    compile_info: PathLike | Sequence[PathLike] = (),
) -> Choices:
    """Return the choices that apply now, changed by those that are given here. Raises UsageError for a URL that no
    driver supports."""

    def places(given: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
        each = [given] if isinstance(given, (str, os.PathLike)) else given
        return tuple(str(absolute(place)) for place in each)  # another process may have another current folder

    changes = {
        "step_on": step_on, "step_kind": step_kind, "graph_captures": places(graph_capture),
        "compile_info": places(compile_info),
    }  # fmt: skip
    return msgspec.structs.replace(chosen(), **{name: value for name, value in changes.items() if value})


@contextmanager
def choosing(choices: Choices) -> Iterator[None]:
    """Apply the choices to all recordings that are read inside this context."""
    token = _CHOSEN.set(choices)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def applied(trace: Trace, path: Path, read: Callable[[Path], Trace]) -> Trace:
    """Return the trace of a file with the choices applied. ``read`` reads another file. Raises SourceError, and
    UsageError if the trace has server steps, but none of the chosen kind."""
    choices = chosen()
    trace = graph_captures.with_operators(trace, path, choices.graph_captures, read)
    if choices.step_kind is None:
        return trace
    kinds = {step.kind for step in server_steps.serving_steps(trace)[1]}
    if choices.step_kind not in kinds:
        names = ", ".join(kind for kind in server_steps.KINDS if kind in kinds)
        hint = f"recorded kinds: {names}" if names else "only inference servers record kinds of steps"
        raise UsageError(f"{path}: no step of the kind {choices.step_kind} was recorded", hint)
    return server_steps.of_kind(trace, choices.step_kind)
