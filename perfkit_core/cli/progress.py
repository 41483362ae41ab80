"""What long work shows: a spinner on a terminal, nothing in a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core import compile_events

if TYPE_CHECKING:
    from perfkit_core.trace import Trace

COMPILING: Final = " (compiling its loops, once on this machine)"


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show ``text`` while the block runs, and what is given to the function that it yields; beside it that functions
    are compiled, while they are."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)) as status:
        told = [text, ""]

        def say(text: str) -> None:
            told[0] = text
            status.update(escape("".join(told)))

        def compiling(begun: bool) -> None:
            told[1] = COMPILING if begun else ""
            say(told[0])

        with compile_events.watched(compiling):
            yield say


def loaded(sources: Sequence[Path], partial: bool) -> Trace:
    """Read the sources with a spinner. Raises SourceError."""
    from perfkit_core.loading import load

    with working(f"reading {', '.join(str(source) for source in sources[:3])}"):
        return load(list(sources), partial=partial)
