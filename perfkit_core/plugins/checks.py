"""Checks of an installation that adapters provide for ``perfkit doctor``, and the results of all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Status = Literal["ok", "note", "warning", "problem"]
"""``note``: something optional is missing. ``warning``: perfkit works, but less well. ``problem``: something that
perfkit or an installed framework needs is broken."""

PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check.

    - ``name``: dotted name. Its first part is the topic: ``dependency.numpy``, ``framework.torch.import``.
    - ``text``: what was found. ``fix``: what to do about it.
    - ``data``: the same as plain data for JSON. Unknown values are None."""

    name: str
    status: Status
    text: str
    fix: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class FrameworkChecks:
    """Checks of a framework.

    - ``distributions``: names of all packages that install this module. The first one is that of perfkit's extra.
    - ``installed()`` checks the metadata of installed packages. It must be quick, and must not import the framework.
    - ``running()`` imports the framework, and yields what works: the devices that it sees, and a recording. It may
      raise, crash or hang: perfkit calls it in a new process with a time limit, and keeps what it yielded before."""

    distributions: tuple[str, ...]
    installed: Callable[[], Sequence[Check]]
    running: Callable[[], Iterable[Check]]
