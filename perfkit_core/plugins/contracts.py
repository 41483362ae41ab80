"""The objects that plugins and built-ins return from their hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeAlias

from perfkit_core.language.messages import Text, message

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.model.columns import Column
    from perfkit_core.model.trace import Trace

# These types are Any, because their packages (storage, report, advice, calibration) import this package.
RecordedWriter: TypeAlias = Any
Complete: TypeAlias = Callable[..., Any]
Report: TypeAlias = Any
Facts: TypeAlias = Any
Candidate: TypeAlias = Any
Bench: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    - ``sniff(path, head)`` returns how well the reader supports a file, judged by its name and its first 4 KiB
      (decompressed): 0 if it cannot read the file, 1 for a known container format, 2 for the dialect of its framework,
      3 for a file of its own package. The reader with the highest number is used.
    - ``read(path, partial)`` returns the Trace or raises SourceError. With ``partial`` it keeps the readable part of a
      damaged file and adds a finding.
    - ``peek(path)`` returns the rank of a file without reading the events, or None if unknown. Ranks are assigned
      before files are read. If ``peek`` is None, ranks are taken from the file names or the order of the files.
    - ``stream(path, partial, writer)`` reads the events in parts, passes them to the writer, and closes it. It is None
      if the format needs all events in memory.
    - ``complete(recorded, meta)`` runs when a streamed file is loaded. It adds data that depends on all events, and
      returns the events and findings. It is None if nothing is to be added.
    """

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, RecordedWriter], None] | None = None
    complete: Complete | None = None


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends the capture and returns the number of files written.
    It raises CaptureError if the capture ended early, for example because the script started another profiler."""

    def finish(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    ``framework`` is the name of a module. A script that imports this module is recorded by this recorder.
    ``start(run_dir, steps, options)`` begins to record this process. The recording ends after ``steps`` optimizer
    steps. If ``steps`` is None, the recording ends with the process. ``options`` are flags for data besides times:
    ``shapes``, ``memory``, ``stacks``, ``flops``. A flag that the framework does not support raises UsageError
    (:func:`perfkit_core.recording.step_recording.asked`). ``demo(run_dir, report)`` trains the small demo model with
    the framework's profiler and perfkit's handler, and reports progress by ``report(text)``.
    """

    framework: str
    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Callable[[Path, Callable[[str], None]], None]


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A user's request to a view.

    ``by`` lists the groupings. A grouping may have an argument ("stack=5"). Events are filtered by ``steps`` (step
    numbers) and by RE2 patterns: ``pattern`` on the name, ``kind`` on kind or category, ``device`` on the device. A
    filter that is None selects all events. ``native`` asks for the framework's own numbers if they differ from
    perfkit's (docs/semantics). ``sort`` is the column to sort rows by, or None for the order of the view.
    """

    by: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    pattern: str | None = None
    kind: str | None = None
    device: str | None = None
    native: bool = False
    sort: str | None = None


def split_grouping(item: str) -> tuple[str, str | None]:
    """Return the name and the argument of a grouping: ("stack", "5") for "stack=5". The argument may be None."""
    name, separator, argument = item.partition("=")
    return name, argument if separator else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """Functions that compute a view of many ranks, one rank at a time.

    ``reduce(trace, request)`` reduces the trace of one rank to a small partial, which can be stored and sent to another
    process. A partial consists of DataFrames and plain values (None, bool, int, float, str, lists, and mappings with
    str keys). ``merge(partials, request)`` merges the partials of all ranks, in rank order, into the view's table. The
    table equals ``table(trace, request)`` of a trace of all ranks. ``explain(partials)`` returns why the table has no
    rows. If ``explain`` is None, ``explain_empty`` of the first rank without rows is used.
    """

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rules that merge the tables of many ranks. Rows with equal keys become one row, rows of a tree are merged by
    their paths, and each column is merged as declared.

    ``weight`` names the columns that order the siblings of a tree, descending. ``finish(table, request)`` completes the
    merged table. ``partial(trace, request)`` returns the table of a rank to be merged, if it differs from the view's
    table. ``columns`` declares the additional columns of this table. With ``together_only``, rows are merged only if
    the request has no grouping; otherwise the rows of all ranks are listed.
    """

    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    partial: Callable[[Trace, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()
    together_only: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A table of a trace that answers one question.

    - ``table(trace, request)`` returns a DataFrame. Times are integers in ns, sizes are integers in bytes, and column
      names end with the unit. A column with unknown values has a nullable type of pandas. A table with a column
      ``depth`` is a tree: its rows are in preorder, and roots have depth 0.
    - ``columns`` declares all columns that a request may add. Other columns are interpreted by name
      (:func:`perfkit_core.model.columns.named`).
    - ``groupings`` are the accepted values of ``request.by``.
    - ``order`` is the column by which rows (in a tree, siblings) are sorted in descending order. None keeps their
      order.
    - ``explain_empty(trace)`` returns why the table has no rows.
    - ``group`` names a report of several views, shown by ``--view GROUP``.
    - ``native`` is set if the view supports ``request.native``.
    - ``page`` is set if the report page of a run shows the view. Long tables for scripts are left out.
    - ``reduction`` merges the tables of many ranks. If it is None, the rows of all ranks are listed.
    - ``of_capture`` is set if the view's numbers describe the complete capture (peaks, leaks) instead of single steps.
      ``of_capture(trace)`` returns whether the recording has the data. If so, a gate counts a missing row as 0.
    """

    name: str
    title: str
    description: str
    table: Callable[[Trace, ViewRequest], pd.DataFrame]
    columns: tuple[Column, ...] = ()
    groupings: tuple[str, ...] = ()
    order: str | None = None
    explain_empty: Callable[[Trace], Text] = lambda trace: message("nothing of this kind was recorded")
    group: str | None = None
    native: bool = False
    page: bool = True
    reduction: MergedRows | Reduction | None = None
    of_capture: Callable[[Trace], bool] | None = None

    def column(self, name: str) -> Column:
        """Return the declaration of a column. If there is none, interpret the name."""
        from perfkit_core.model.columns import column  # imports pandas, which would slow down the registration of views

        return column(self.columns, name)

    @property
    def per_step(self) -> tuple[str, ...]:
        """The names of the columns that are sums over the chosen steps."""
        return tuple(column.name for column in self.columns if column.per_step)

    @property
    def summed(self) -> dict[str, str]:
        """A mapping from each column of a tree that includes all descendants to the column that excludes them."""
        return {column.name: column.own for column in self.columns if column.own}


@dataclass(frozen=True, slots=True)
class Renderer:
    """A renderer of a Report in one text format."""

    name: str
    render: Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export. ``weight`` is one of the exporter's ``weights``, or None for its default."""

    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A writer of traces in the format of another tool.

    ``write(trace, file, options)`` writes to a binary file without seeking. It returns a sentence about missing data,
    or "". perfkit makes the file visible when it is complete, and compresses it if its name ends in ``.gz`` and the
    format's suffix does not. ``suffixes`` are the file name extensions of the format; the first is the default.
    ``weights`` are the accepted values of ``options.weight``.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that costs time, and how to detect it.

    ``id`` is the rule's name in commands, and ``number`` its position in docs/advice. ``version`` increases when the
    predictions change. ``find(facts)`` returns the candidates, or an empty sequence if the rule does not apply. If the
    recording lacks data, it raises :class:`perfkit_core.advice.facts.NotEvaluableError`, which names these data.
    ``what_if(facts, value)`` returns the candidate for ``--what-if ID=VALUE``, even if the rule does not apply. It is
    None if the rule has no value.
    """

    id: str
    number: int
    version: int
    title: str
    find: Callable[[Facts], Sequence[Candidate]]
    what_if: Callable[[Facts, float], Candidate] | None = None


VERIFY: Final = "--base 'python train.py' --change 'python train_changed.py'"
"""Default arguments of ``perfkit verify`` for a remedy."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Code that removes the pattern of the rule ``rule`` in one framework.

    ``mode`` is "eager", "static" or "any". ``code``, ``api``, ``note`` and ``verify`` may have placeholders in braces,
    which are filled from the rule and the recording (:func:`perfkit_core.advice.remedies.recorded_words`). ``api`` is
    the function to call. ``since`` is the first version of the framework that has the function, or "" for all versions.
    ``verify`` has arguments of ``perfkit verify``. ``when`` restricts the remedy: it maps a placeholder to the accepted
    values. The first remedy that matches is used, so specific remedies come first.
    """

    rule: str
    code: str
    api: str
    since: str = ""
    mode: str = "any"
    note: str = ""
    verify: str = VERIFY
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Measurements of the cost of tiny operators, launches and copies on a machine, for predictions.

    ``version()`` returns the version of ``framework`` without importing it, or None if it is not installed. ``bench()``
    returns the operations that :func:`perfkit_core.calibration.calibrate.measured` times, or raises CaptureError.
    """

    framework: str
    version: Callable[[], str | None]
    bench: Callable[[], Bench]


class StepTimer(Protocol):
    """A timer of the steps of a process that runs without a profiler. A step lasts from one update by the first
    optimizer to the next.

    ``updated`` is called after each update. ``times`` returns the durations in ns and the name of the clock.
    """

    def updated(self) -> None: ...

    def times(self) -> tuple[Sequence[int], str]: ...


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Maps a framework to a function, which returns the canonical name of a native operator name, or None if unknown."""
