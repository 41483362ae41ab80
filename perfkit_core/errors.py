"""The exceptions of perfkit.

PerfkitError
├── SourceError   a file or folder cannot be read as a profile
├── UsageError    the request is invalid for this profile or installation (unknown view, column, step, …)
└── CaptureError  a recording cannot be made or saved
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LONGEST_WORD: Final = 1000
"""Maximum number of characters of a name or path in an error. A longer one loses its middle."""
LONGEST_MESSAGE: Final = 4000


class PerfkitError(Exception):
    """An error that the command line prints on one line. ``message``: what is wrong and where; ``hint``: the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = abridged(message)
        self.hint = abridged(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return one_line(self.message if not self.hint else f"{self.message}; {self.hint}")


class SourceError(PerfkitError):
    """A file or folder cannot be read as a profile. It is missing, empty, truncated, corrupt or in another format."""


class UsageError(PerfkitError):
    """The request is invalid for this profile or this installation. For example, a view is unknown."""


class CaptureError(PerfkitError):
    """A recording cannot be made or saved: for example, a framework is missing, or a folder is not writable."""


def abridged(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return the text of an error without the middle of long names, and without its own middle if it is too long."""
    if len(text) > LONGEST_WORD:
        text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda match: _without_middle(match[0], LONGEST_WORD), text)
    return _without_middle(text, most)


def _without_middle(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def unwritable(path: object, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror or error})", "choose another path with -o")


def spelled_like(name: str, choices: Iterable[str], label: str = "known", shown: Iterable[str] = ()) -> str:
    """Return a hint: the known names that are similar to ``name``, and all known names, or ``shown``."""
    from difflib import get_close_matches

    names = list(choices)
    near = get_close_matches(name, names, cutoff=0.75)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}{label}: {', '.join(shown or names)}"
