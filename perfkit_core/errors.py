"""The exceptions of perfkit.

PerfkitError
├── SourceError   a file or folder that cannot be read as a profile
├── UsageError    a request that this profile or installation cannot answer (unknown view, column, step, …)
└── CaptureError  a recording that cannot be made or kept
"""

from __future__ import annotations

from collections.abc import Iterable


class PerfkitError(Exception):
    """An error with ``message``, what is wrong and where, and ``hint``, what to try. Printed as one line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = self.message if not self.hint else f"{self.message}; {self.hint}"
        return " ".join(text.split())


class SourceError(PerfkitError):
    """A file or folder that cannot be read as a profile: missing, empty, truncated, corrupt or of another format."""


class UsageError(PerfkitError):
    """A request that this profile or this installation cannot answer."""


class CaptureError(PerfkitError):
    """A recording that cannot be made: framework missing, script missing, folder not writable."""


def unwritable(path: object, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror or error})", "choose another place with -o")


def spelled_like(name: str, known: Iterable[str], label: str = "known") -> str:
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, cutoff=0.75)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}{label}: {', '.join(names)}"
