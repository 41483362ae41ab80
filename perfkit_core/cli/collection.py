"""When does Python look for garbage? Seldom while perfkit starts, not when it ends, as usual in scripts that it runs.

What perfkit imports makes a quarter of a million objects that stay; looking through them again and again took a third
of the time of a short command.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

OBJECTS: Final = 300_000
"""New objects after which the youngest are looked through: more than the imports make."""

_USUAL: Final = gc.get_threshold()


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Look through objects only after many new ones while the block runs."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_as_usual() -> None:
    """From now on, as often as Python does by itself."""
    gc.set_threshold(*_USUAL)


def leave_garbage() -> None:
    """The process ends: nothing that is still there is looked through for the sake of its memory."""
    gc.freeze()
