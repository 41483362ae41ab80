"""What is an advice called? The id of its rule, and a mark of what was found: the same finding keeps its name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit_core.advice.model import Candidate
from perfkit_core.errors import UsageError
from perfkit_core.schema import STEP
from perfkit_core.trace import Trace

_DIGITS: Final = 4
_PROPOSED: Final = frozenset({"threads", "workers"})
"""What remedies are filled with that depends on the machine, not on the finding."""


def ids(trace: Trace, rule: str, candidates: Sequence[Candidate]) -> list[str]:
    """``rule-1a2b`` for each candidate of a rule; findings that are alike in everything are numbered."""
    found: list[str] = []
    for candidate in candidates:
        name = f"{rule}-{_mark(trace, candidate)}"
        same = sum(other == name or other.startswith(f"{name}-") for other in found)
        found.append(f"{name}-{same + 1}" if same else name)
    return found


def _mark(trace: Trace, candidate: Candidate) -> str:
    """Of the names of the events that show it, not of their times, nor of which steps they are: those differ from run
    to run."""
    names = trace.codes("name")
    codes = np.unique(names.codes[candidate.rows[~trace.rows("kind", STEP)[candidate.rows]]])
    parts = sorted(names.values[code] for code in codes if code >= 0)
    words = {f"{key}={value}" for key, value in candidate.fill.items() if key not in _PROPOSED}
    parts += [candidate.direction or "", *sorted(words)]
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def one_of(wanted: str, known: Sequence[str]) -> str:
    """The id that is meant by itself or by its beginning. Raises UsageError where that is none, or several."""
    found = [name for name in known if name == wanted] or [name for name in known if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    choices = ", ".join(found or known) or "there is none"
    raise UsageError(f"{'several advice begin with' if found else 'no advice'} {wanted!r}", f"choose among {choices}")
