"""Find the line of the user's code that advice is about: the innermost frame that belongs to no installed package.

For a frame in the stack of an operator, the line is the one that ran. For a frame that was recorded as an event, the
line is the first line of its function. If the function began to run before the recording, no line is known."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.code import running_before
from perfkit_core.views.grouping import as_recorded, is_frame
from perfkit_core.views.tables import categorical
from perfkit_core.views.user_code import IN, LINE, Owner, innermost, owner_of

_MODULE: Final = "<module>"


class Places:
    """Lines of code for the rows of a trace. The stacks are read once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def of(self, rows: arrays.IntArray, time_ns: arrays.IntArray | None = None) -> str | None:
        """Return the place in which the rows spend most of their time; None if no frames were recorded.

        Device work counts at the place of its launch. ``time_ns`` is the time of each row. By default, it is the
        duration of the row, or of its launch for device work. Forms of the place:

        - ``file:line (function)``: the line that ran
        - ``file:line (def function)``: the first line of the function
        - ``file (function)``: no line is known
        - ``in file:line (function)``: only frames of libraries were recorded"""
        launched_by = self._trace.ints("launched_by")[rows]
        rows = np.where(launched_by != arrays.NO_ROW, launched_by, rows)
        spent = self._trace.ints("dur_ns")[rows] if time_ns is None else time_ns
        codes, names = self._lines.codes[rows], self._lines.categories
        has_line = codes >= 0
        if not has_line.any():
            return None
        time = np.bincount(codes[has_line], spent[has_line] + 1, len(names))
        users = np.array([not name.startswith(IN) for name in names], np.bool_)
        return str(names[int(np.where(users, time, 0).argmax() if time[users].any() else time.argmax())])

    @functools.cached_property
    def _lines(self) -> pd.Categorical:
        trace, framework = self._trace, self._trace.meta.framework
        if trace.has_values("stack"):
            recorded = as_recorded(trace, np.arange(len(trace)))
            return categorical(recorded.codes, [innermost(text, framework) for text in recorded.categories])
        names, frame, parent = trace.codes("name"), is_frame(trace), trace.ints("parent")
        matches = [LINE.match(name) for name in names.values]
        owners = [owner_of(match["file"], framework) if match else Owner.RUNTIME for match in matches]
        users, libraries = (
            nesting.nearest_on_path(
                parent, frame & names.lookup(np.array([owner is who for owner in owners], np.bool_), False)
            )
            for who in (Owner.USER, Owner.LIBRARY)
        )
        around = np.where(users != arrays.NO_ROW, users, libraries)
        # two texts for each name: first with the line where the function begins, then without a line
        lines: list[str | None] = []
        for with_line in (True, False):
            for match, owner in zip(matches, owners, strict=True):
                if match is None:
                    lines.append(None)
                    continue
                function, file = match["function"].strip(), match["file"]
                if with_line and function != _MODULE:  # the first line of a module says nothing
                    kind = "def " if function.isidentifier() else ""  # a <lambda> usually has one line
                    file, function = f"{file}:{match['line'] or match['line2']}", f"{kind}{function}"
                lines.append(f"{'' if owner is Owner.USER else IN}{file} ({function})")
        line = names.codes + np.where(running_before(trace), len(matches), 0)
        return categorical(np.append(line, -1)[around], lines)
