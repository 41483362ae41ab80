"""The exceptions of perfkit.

PerfkitError
├── SourceError   a file or folder cannot be read as a profile
├── UsageError    the request is invalid for this profile or installation (unknown view, column, step, …)
└── CaptureError  a recording cannot be made or saved
"""

from __future__ import annotations

from collections.abc import Iterable


class PerfkitError(Exception):
    """An error that the command line prints on one line. ``message``: what is wrong and where; ``hint``: the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = self.message if not self.hint else f"{self.message}; {self.hint}"
        return " ".join(text.split())


class SourceError(PerfkitError):
    """A file or folder cannot be read as a profile. It is missing, empty, truncated, corrupt or in another format."""


class UsageError(PerfkitError):
    """The request is invalid for this profile or this installation. For example, a view is unknown."""


class CaptureError(PerfkitError):
    """A recording cannot be made or saved: for example, a framework is missing, or a folder is not writable."""


def unwritable(path: object, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror or error})", "choose another path with -o")


def spelled_like(name: str, choices: Iterable[str], label: str = "known", shown: Iterable[str] = ()) -> str:
    """Return a hint: the known names that are similar to ``name``, and all known names, or ``shown``."""
    from difflib import get_close_matches

    names = list(choices)
    near = get_close_matches(name, names, cutoff=0.75)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}{label}: {', '.join(shown or names)}"
