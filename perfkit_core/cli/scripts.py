"""Runs a user's script as Python itself would, and tells how it ended."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from perfkit_core.cli.collection import collect_as_usual
from perfkit_core.errors import PerfkitError

INTERRUPTED = 130


def prepare(script: Path, arguments: Sequence[str]) -> None:
    """``sys.argv``, ``sys.path[0]`` and the collection of garbage as ``python script arguments`` has them."""
    collect_as_usual()
    sys.argv = [str(script), *arguments]
    sys.path[:1] = [str(script.resolve().parent)]


def run(script: Path) -> int:
    """Run the script as ``__main__`` and return its exit code. Its errors print their own traceback.

    Raises only PerfkitError, when recording could not begin.
    """
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return _exit_code(end)
    except PerfkitError:
        raise
    except BaseException as error:
        error = error.with_traceback(_inside(script, error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _inside(script: Path, traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on: how perfkit called it is no concern of the user."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != str(script):
        traceback = traceback.tb_next
    return traceback
