"""The objects that plugins return from their hooks. Built-ins use the same ones."""

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

# Types of packages that import this module: in storage.recorded_events, report.model, advice.facts, calibration.model.
RecordedWriter: TypeAlias = Any
Complete: TypeAlias = Callable[..., Any]
Report: TypeAlias = Any
Facts: TypeAlias = Any
Candidate: TypeAlias = Any
Bench: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    ``sniff(path, head)`` returns from the name and the first 4 KiB (decompressed) how sure it is that it can read the
    file: 0 no, 1 this kind of container, 2 this framework's dialect, 3 written by this reader's own package. The surest
    reader is taken.
    ``read(path, partial)`` returns the Trace or raises SourceError; with ``partial`` it keeps the readable part of a
    damaged file, with a finding.
    ``peek(path)`` returns the rank of a file without reading the events (None: unknown), so that the files of a rank
    are found before any is read; without it, names and order decide.
    ``stream(path, partial, writer)`` reads the events into the writer in parts, and closes it; None where a format
    needs all of its events in memory. ``complete(recorded, meta)`` adds, when such a file is loaded, what follows only
    from all events together, and returns the events with findings; None where nothing is left to do.
    """

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, RecordedWriter], None] | None = None
    complete: Complete | None = None


class Recording(Protocol):
    """A running capture of an unmodified script. ``finish`` ends it and returns the number of files written; it raises
    CaptureError where the capture ended early, as for a profiler that the script started."""

    def finish(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    ``framework`` is the module whose import in a script selects this recorder. ``start(run_dir, steps, options)``
    begins recording in this process and stops by itself after ``steps`` optimizer steps (None: never). ``options``
    selects what to record besides times: ``shapes``, ``memory``, ``stacks``, ``flops``, each True where requested;
    what the framework cannot record raises UsageError (:func:`perfkit_core.recording.step_recording.asked`).
    ``demo(run_dir, report)`` trains the small demo model with the framework's own profiler and handler, calling
    ``report(text)`` as it proceeds.
    """

    framework: str
    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Callable[[Path, Callable[[str], None]], None]


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What a user asks of a view.

    ``by``: groupings, some with an argument ("stack=5"). Filters of the events that count: ``steps`` (numbers), and
    ``pattern``, ``kind``, ``device`` (RE2 on the name, on kind or category, on the device); None: all. ``native``: the
    framework's own number where it differs from ours (docs/semantics). ``sort``: the column the rows will be sorted by,
    None for the order of the view.
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
    """How a view is computed for many ranks that are never in memory together.

    ``reduce(trace, request)`` turns the trace of one rank into a small partial made of plain values (None, bool, int,
    float, str, lists, mappings by str) and DataFrames, so that it can be written to a file and sent to another
    process. ``merge(partials, request)`` turns any number of partials, in the order of ranks, into the view's table.
    The view's ``table(trace, request)`` equals the merged partials of the ranks of ``trace``. ``explain(partials)``, of
    a view that needs several ranks, says why their table has no rows; without it, the view's ``explain_empty`` of the
    first rank without rows does.
    """

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


@dataclass(frozen=True, slots=True)
class MergedRows:
    """How the tables of many ranks become one, where equal rows of two ranks become one row: each column as declared,
    a tree by its paths.

    ``weight`` names the columns that order the siblings of a tree, the largest first. ``finish(table, request)``
    completes the merged table. ``partial`` computes what a rank is reduced to where that is not the view's table, and
    ``columns`` declares its further columns. ``together_only``: rows that are split by a grouping are listed instead.
    """

    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    partial: Callable[[Trace, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()
    together_only: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """One question about a trace, answered by a table.

    ``table(trace, request)`` returns a DataFrame: integer columns in ns and bytes (units in the names), pandas nullable
    integers where a cell may be unknown. A table with a column ``depth`` is a tree: rows in preorder, roots at depth 0.
    ``columns`` declares every column that any request may add; a column without a declaration is understood by its name
    (:func:`perfkit_core.model.columns.named`).
    ``groupings`` are the values of ``request.by`` it understands, ``order`` the column it is sorted by (descending; in
    a tree among siblings) by default, None for the order of the table itself. ``group`` names a report of several
    views, which ``--view GROUP`` shows. ``native``: the view heeds ``request.native``. ``page``: the report on a run
    shows it; long tables for scripts are left out. ``reduction`` says how the tables of many ranks become one; without
    it they are listed, one rank after the other. ``of_capture(trace)``, of a view that looks beyond a step (at a peak,
    at leaks), returns whether the recording has its data at all: a gate takes its numbers of the whole capture, and a
    missing row counts as 0. ``explain_empty(trace)`` says why the table has no rows.
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
        """Return the declaration of a column, or what its name says."""
        from perfkit_core.model.columns import column  # imports pandas, which registering a view must not

        return column(self.columns, name)

    @property
    def per_step(self) -> tuple[str, ...]:
        """Names of the columns that are sums over the chosen steps, which an average divides."""
        return tuple(column.name for column in self.columns if column.per_step)

    @property
    def summed(self) -> dict[str, str]:
        """In a tree, each column that sums a row and all below it → the column of the row's own part, from which the
        sum is computed again without the rows that are not displayed."""
        return {column.name: column.own for column in self.columns if column.own}


@dataclass(frozen=True, slots=True)
class Renderer:
    """A Report as text in one format."""

    name: str
    render: Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export. ``weight``: one of the exporter's ``weights``, None for its default."""

    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A Trace as a file that another tool opens.

    ``write(trace, file, options)`` writes to a binary file without seeking, and returns a sentence about what the file
    lacks and why ("" when nothing is missing). The file replaces the real one only at the end, and is compressed when
    its name ends in ``.gz`` and the suffix does not. ``suffixes`` are the endings of file names of this format, the
    usual one first; ``weights`` the values of ``options.weight``.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that costs time, and how to detect it.

    ``id`` is its name in commands, ``number`` its place in the list of docs/advice, ``version`` grows when its
    predictions change. ``find(facts)`` returns its candidates (none: it does not apply) or raises
    :class:`perfkit_core.advice.facts.NotEvaluableError` with what was not recorded. ``what_if(facts, value)`` returns
    the candidate for ``--what-if ID=VALUE``, whether or not the rule fires; None where the rule has no value.
    """

    id: str
    number: int
    version: int
    title: str
    find: Callable[[Facts], Sequence[Candidate]]
    what_if: Callable[[Facts, float], Candidate] | None = None


VERIFY: Final = "--base 'python train.py' --change 'python train_changed.py'"
"""Arguments of ``perfkit verify`` for a remedy without its own."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to write in a framework against a pattern that the rule ``rule`` detects.

    ``mode`` is "eager", "static" or "any". ``code``, ``api``, ``note`` and ``verify`` may have words in braces, which
    the rule and the recording fill (:func:`perfkit_core.advice.remedies.recorded_words`). ``api`` names the function
    to call, ``since`` the first version that has it ("" for all). ``verify`` holds arguments of ``perfkit verify``.
    ``when`` narrows the remedy: for each word, the values of which the recording must have one. The first remedy that
    fits is taken, so narrow ones come first.
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
    """Measures what tiny work costs on a machine, for predictions about operators that would run elsewhere.

    ``version()`` returns the installed version of ``framework`` without importing it, None where it is not installed.
    ``bench()`` returns what :func:`perfkit_core.calibration.calibrate.measured` times; it raises CaptureError.
    """

    framework: str
    version: Callable[[], str | None]
    bench: Callable[[], Bench]


class StepTimer(Protocol):
    """The steps of a process without a profiler, from one update of the first optimizer to the next.

    ``updated`` is called after each update; ``times`` returns the durations in ns and the name of their clock.
    """

    def updated(self) -> None: ...

    def times(self) -> tuple[Sequence[int], str]: ...


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Framework → function from a native operator name to the canonical one (None: unknown)."""
