"""Options that apply to every recording that a command or a Python call reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from perfkit_core.base.system.paths import PathLike, absolute


class ReadOptions(msgspec.Struct, frozen=True):
    """How recordings are read.

    - ``partial``: keep the readable part of damaged files.
    - ``graph_captures``: files or folders with recordings of graph captures, as absolute paths or URLs.
    - ``step_kind``: step kind of a server to keep, one of ``server_steps.KINDS``, or None for all.
    - ``step_on``: name of the ranges that are steps, or None for the recorded steps. It applies to joined files.
    - ``compile_info``: files or folders with what a compiler wrote about its kernels, as absolute paths.
    """

    partial: bool = False
    graph_captures: tuple[str, ...] = ()
    step_kind: str | None = None
    step_on: str | None = None
    compile_info: tuple[str, ...] = ()

    @property
    def without_partial(self) -> ReadOptions:
        """The options that change what the events of a complete file are."""
        return msgspec.structs.replace(self, partial=False)


DEFAULT: Final = ReadOptions()


def read_options(
    *,
    partial: bool = False,
    step_on: str | None = None,
    step_kind: str | None = None,
    graph_capture: PathLike | Sequence[PathLike] = (),
    compile_info: PathLike | Sequence[PathLike] = (),
) -> ReadOptions:
    """Return the options from arguments as in :func:`perfkit_core.load`. Raises UsageError for a URL that no driver
    supports."""
    return ReadOptions(partial, _absolute(graph_capture), step_kind or None, step_on or None, _absolute(compile_info))


def _absolute(paths: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return tuple(str(absolute(path)) for path in listed)  # another process may have another current folder
