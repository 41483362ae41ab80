"""The objects that plugins, and the built-ins, return from their hooks."""

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

# Untyped, as their packages import this one: storage.recorded_events, report.model, advice.facts, calibration.model.
RecordedWriter: TypeAlias = Any
Complete: TypeAlias = Callable[..., Any]
Report: TypeAlias = Any
Facts: TypeAlias = Any
Candidate: TypeAlias = Any
Bench: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    - ``sniff(path, head)`` rates from the name and the first 4 KiB (decompressed) how well it can read the file: 0 not,
      1 this kind of container, 2 this framework's dialect, 3 written by this reader's own package. The best reader is
      used.
    - ``read(path, partial)`` returns the Trace or raises SourceError; with ``partial`` it keeps the readable part of a
      damaged file and adds a finding.
    - ``peek(path)`` returns the rank of a file without reading the events (None: unknown), so that files are assigned
      to ranks before any is read; without it, names and order decide.
    - ``stream(path, partial, writer)`` reads the events into the writer in parts and closes it; None if the format
      needs all events in memory.
    - ``complete(recorded, meta)`` runs when such a file is loaded, adds what depends on all events, and returns the
      events with findings; None if nothing is left to do.
    """

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, RecordedWriter], None] | None = None
    complete: Complete | None = None


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends it and returns the number of files written. It raises
    CaptureError if the capture ended early, as when the script started a profiler itself."""

    def finish(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    ``framework`` is the module whose import in a script selects this recorder. ``start(run_dir, steps, options)``
    begins recording in this process and stops by itself after ``steps`` optimizer steps (None: never). ``options`` are
    flags for what to record besides times: ``shapes``, ``memory``, ``stacks``, ``flops``; one that the framework cannot
    record raises UsageError (:func:`perfkit_core.recording.step_recording.asked`). ``demo(run_dir, report)`` trains the
    small demo model with the framework's own profiler and handler, and reports progress by ``report(text)``.
    """

    framework: str
    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Callable[[Path, Callable[[str], None]], None]


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A user's request to a view.

    ``by``: groupings, some with an argument ("stack=5"). Filters of events, None for all: ``steps`` (numbers),
    ``pattern``, ``kind`` and ``device`` (RE2 on the name, on kind or category, on the device). ``native``: the
    framework's own number where it differs from ours (docs/semantics). ``sort``: the column to sort rows by, None for
    the order of the view.
    """

    by: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    pattern: str | None = None
    kind: str | None = None
    device: str | None = None
    native: bool = False
    sort: str | None = None


def split_grouping(item: str) -> tuple[str, str | None]:
    """Return name and argument of a grouping: "stack=5" → ("stack", "5")."""
    name, separator, argument = item.partition("=")
    return name, argument if separator else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """Functions that compute a view for many ranks that are never in memory together.

    ``reduce(trace, request)`` turns the trace of one rank into a small partial of plain values (None, bool, int, float,
    str, lists, mappings by str) and DataFrames, which can be stored and sent to another process. ``merge`` turns
    partials, in the order of ranks, into the view's table, which equals ``table(trace, request)`` of the trace of these
    ranks. ``explain(partials)``, of a view that needs several ranks, returns why the table has no rows; without it,
    ``explain_empty`` of the first rank without rows is used.
    """

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rules that merge the tables of many ranks, where equal rows become one: each column as declared, a tree by its
    paths.

    ``weight`` names the columns that order siblings of a tree, descending. ``finish(table, request)`` completes the
    merged table. ``partial`` computes what a rank is reduced to, if not the view's table; ``columns`` declares its
    additional columns. ``together_only``: rows that are split by a grouping are listed instead.
    """

    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    partial: Callable[[Trace, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()
    together_only: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """One question about a trace, answered by a table.

    - ``table(trace, request)`` returns a DataFrame: integer columns in ns and bytes (units in the names), pandas
      nullable integers if cells may be unknown. A table with a column ``depth`` is a tree: rows in preorder, roots at
      depth 0.
    - ``columns`` declares every column that any request may add; others are interpreted by name
      (:func:`perfkit_core.model.columns.named`).
    - ``groupings`` are the accepted values of ``request.by``.
    - ``order`` is the default sort column (descending; in a tree among siblings), None for the table's own order.
    - ``explain_empty(trace)`` returns why the table has no rows.
    - ``group`` names a report of several views, shown by ``--view GROUP``.
    - ``native``: the view supports ``request.native``.
    - ``page``: the report on a run shows the view; long tables for scripts are left out.
    - ``reduction`` merges the tables of many ranks; without it they are listed by rank.
    - ``of_capture(trace)``, of a view that looks beyond a step (peaks, leaks), returns whether the recording has its
      data: a gate uses its numbers of the whole capture, and counts a missing row as 0.
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
        """Return the declaration of a column, or the interpretation of its name."""
        from perfkit_core.model.columns import column  # imports pandas, too slow for registering views

        return column(self.columns, name)

    @property
    def per_step(self) -> tuple[str, ...]:
        """Names of the columns that are sums over the chosen steps, which an average divides."""
        return tuple(column.name for column in self.columns if column.per_step)

    @property
    def summed(self) -> dict[str, str]:
        """Columns of a tree that include all rows below → columns of the row's own part, to sum without hidden rows."""
        return {column.name: column.own for column in self.columns if column.own}


@dataclass(frozen=True, slots=True)
class Renderer:
    """A renderer of a Report as text in one format."""

    name: str
    render: Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export. ``weight``: one of the exporter's ``weights``, None for its default."""

    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A writer of traces in the format of another tool.

    ``write(trace, file, options)`` writes to a binary file without seeking, and returns a sentence about missing data
    ("": nothing is missing). The file becomes visible when complete, and is compressed if its name ends in ``.gz`` and
    the suffix does not. ``suffixes`` are the file name extensions of the format, the usual one first; ``weights`` are
    the accepted values of ``options.weight``.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that costs time, and how to detect it.

    ``id`` is its name in commands, ``number`` its place in docs/advice; ``version`` increases when its predictions
    change. ``find(facts)`` returns its candidates (none: it does not apply) or raises
    :class:`perfkit_core.advice.facts.NotEvaluableError` with what was not recorded. ``what_if(facts, value)`` returns
    the candidate for ``--what-if ID=VALUE``, whether or not the rule applies; None if the rule has no value.
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
    """Code to write in a framework against the pattern of the rule ``rule``.

    ``mode`` is "eager", "static" or "any". ``code``, ``api``, ``note`` and ``verify`` may have placeholders in braces,
    filled from the rule and the recording (:func:`perfkit_core.advice.remedies.recorded_words`). ``api`` names the
    function to call, ``since`` the first version that has it ("": all). ``verify`` holds arguments of ``perfkit
    verify``. ``when`` maps words to the values of which the recording must have one. The first match is used, so narrow
    remedies come first.
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
    """Measurements of tiny work on a machine, for predictions about operators that would run elsewhere.

    ``version()`` returns the installed version of ``framework`` without importing it, None if it is not installed.
    ``bench()`` returns what :func:`perfkit_core.calibration.calibrate.measured` times; it raises CaptureError.
    """

    framework: str
    version: Callable[[], str | None]
    bench: Callable[[], Bench]


class StepTimer(Protocol):
    """A timer of the steps of a process without a profiler, from one update of the first optimizer to the next.

    ``updated`` is called after each update; ``times`` returns the durations in ns and the name of their clock.
    """

    def updated(self) -> None: ...

    def times(self) -> tuple[Sequence[int], str]: ...


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Framework → function from a native operator name to the canonical one (None: unknown)."""
