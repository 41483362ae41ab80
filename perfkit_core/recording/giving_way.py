"""A script that is being recorded starts a profiler of its own. A process has room for one: ours ends before the
script's begins, which then finds what it would have found without us."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfkit_core.errors import CaptureError


class GivingWay:
    """Calls ``end`` once, before the method ``name`` of another profiler runs; ``profiler`` is the class of both. The
    own profiler must have run that method already, and ``end`` must not raise."""

    def __init__(self, profiler: type, name: str, end: Callable[[], None]) -> None:
        original = vars(profiler)[name]
        self._gave_way = False

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            self._gave_way = True
            end()
            self.over()
            return original(*args, **kwargs)

        self._undo: Callable[[], None] = functools.partial(setattr, profiler, name, original)
        setattr(profiler, name, begin)

    def over(self) -> None:
        """Give the class its method back: nothing is left that would be in the way. A second call does nothing."""
        undo, self._undo = self._undo, _nothing
        undo()

    def check(self) -> None:
        """Raises CaptureError where there was another profiler."""
        if self._gave_way:
            raise CaptureError(
                "the script started a profiler of its own, and a process can have only one: recording ended there",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )


def _nothing() -> None:
    """Has been undone."""
