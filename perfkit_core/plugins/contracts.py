"""The objects that plugins hand to perfkit. Every built-in is made of the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.report.model import Report
    from perfkit_core.trace import Trace


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    ``sniff(path, head)`` says from the name and the first 4 KiB (decompressed) how sure it is that it can read the
    file: 0 no, 1 this kind of container, 2 this framework's dialect. The surest reader is taken.
    ``read(path, partial)`` returns the Trace or raises SourceError; with ``partial`` it keeps what can be read of a
    damaged file and says so in the quality findings.
    """

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends it and returns the number of files written."""

    def finish(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    ``framework`` is the module whose import in a script selects this recorder. ``start(run_dir, steps, options)``
    begins recording in this process and stops by itself after ``steps`` optimizer steps (None: never);
    ``demo(run_dir, report)`` trains the small demo model with the framework's own profiler and handler, calling
    ``report(text)`` as it proceeds.
    """

    framework: str
    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Callable[[Path, Callable[[str], None]], None]


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What a user asked of a view: groupings, step numbers (None: all), RE2 pattern on the name (None: all)."""

    by: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One question about a trace, answered by a table.

    ``table(trace, request)`` returns a DataFrame: integer columns in ns and bytes (units in the names), pandas nullable
    integers where a cell may be unknown. ``groupings`` are the values of ``request.by`` it understands, ``order``
    the column it is sorted by (descending) when nothing is asked, None for the order of the table itself.
    ``explain_empty(trace)`` says why the table has no rows.
    """

    name: str
    title: str
    description: str
    table: Callable[[Trace, ViewRequest], pd.DataFrame]
    groupings: tuple[str, ...] = ()
    order: str | None = None
    explain_empty: Callable[[Trace], str] = field(default=lambda trace: "nothing of this kind was recorded")


@dataclass(frozen=True, slots=True)
class Renderer:
    """A Report as text in one format. ``binary_safe`` renderers may be written to a pipe or file alike."""

    name: str
    render: Callable[[Report], str]


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Framework → function from a native operator name to the canonical one (None: unknown)."""

__all__ = ["OperatorNames", "Recorder", "Recording", "Renderer", "Sequence", "Source", "View", "ViewRequest"]
