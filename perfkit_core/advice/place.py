"""Which line of the user's code is to be changed? The innermost frame that is in no installed package."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.code_owner import Owner, owner_of
from perfkit_core.analyses.source import stacks
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

_LINE: Final = re.compile(r"^(?P<file>[^<].*?)(?:\((?P<line>\d+)\)|:(?P<line2>\d+))(?:: ?| |$)(?P<function>.*)$")
_IN: Final = "in "
"""Before a line that is a library's."""


class Places:
    """Lines of code of the rows of a trace; the stacks are read once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def of(self, rows: IntArray) -> str | None:
        """``file:line (function)`` in which the rows (device work: its launches) spend most time; ``in …`` with a line
        of a library where none of the user was recorded, None where neither was."""
        rows = self._on_host(rows)
        codes, names = self._lines.codes[rows], self._lines.categories
        known = codes >= 0
        if not known.any():
            return None
        time = np.bincount(codes[known], self._trace.ints("dur_ns")[rows][known] + 1, len(names))
        users = np.array([not name.startswith(_IN) for name in names], np.bool_)
        return str(names[int(np.where(users, time, 0).argmax() if time[users].any() else time.argmax())])

    def _on_host(self, rows: IntArray) -> IntArray:
        launched_by = self._trace.ints("launched_by")[rows]
        return np.where(launched_by != NO_ROW, launched_by, rows)

    @cached_property
    def _lines(self) -> pd.Categorical:
        """The line of each row of the trace."""
        trace = self._trace
        found = stacks.as_recorded(trace, np.arange(len(trace)))
        lines = [innermost(text, trace.meta.framework) for text in found.categories]
        distinct = list(dict.fromkeys(line for line in lines if line is not None))
        position = {line: code for code, line in enumerate(distinct)}
        code = np.array([position.get(line or "", -1) for line in lines] + [-1], np.int64)
        return pd.Categorical.from_codes(code[found.codes], categories=pd.Index(distinct, dtype=object))


def innermost(stack: str, framework: str | None) -> str | None:
    """``file:line (function)`` of the innermost frame of the user; where there is none, ``in file:line (function)`` of
    the innermost frame of a library; ``stack`` has the innermost frame first."""
    library = None
    for frame in stack.split(stacks.SEPARATOR):
        found = _LINE.match(frame.strip())
        owner = owner_of(found["file"], framework) if found else Owner.RUNTIME
        if found and owner is Owner.USER:
            return _line(found)
        if found and owner is Owner.LIBRARY and library is None:
            library = f"{_IN}{_line(found)}"
    return library


def _line(found: re.Match[str]) -> str:
    function, line = found["function"].strip(), f"{found['file']}:{found['line'] or found['line2']}"
    return f"{line} ({function})" if function else line
