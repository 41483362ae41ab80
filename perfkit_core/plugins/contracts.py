"""The objects that plugins hand to perfkit. Every built-in is made of the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.advice.facts import Candidate, Facts
    from perfkit_core.calibration.model import Bench
    from perfkit_core.language.messages import Text
    from perfkit_core.model.columns import Column
    from perfkit_core.model.trace import Trace
    from perfkit_core.report.model import Report
    from perfkit_core.storage.recorded_events import Complete, RecordedWriter


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    ``sniff(path, head)`` says from the name and the first 4 KiB (decompressed) how sure it is that it can read the
    file: 0 no, 1 this kind of container, 2 this framework's dialect, 3 written by this reader's own package. The surest
    reader is taken.
    ``read(path, partial)`` returns the Trace or raises SourceError; with ``partial`` it keeps what can be read of a
    damaged file and says so in the quality findings.
    ``peek(path)`` tells, without reading the events, of which rank a file is (None: it does not say), so that the files
    of a rank are found before any is read; without it, names and order tell.
    ``stream(path, partial, writer)`` reads the events into the writer, never all at once, and closes it; None where a
    format cannot be read without all of its events. ``complete(recorded, meta)`` works out, when such a file is loaded,
    what only all events together tell, and returns them with findings; None where nothing is left to do.
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
    CaptureError where the capture had to end before its time, as for a profiler that the script started."""

    def finish(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Live capture for ``perfkit record`` and ``perfkit demo``.

    ``framework`` is the module whose import in a script selects this recorder. ``start(run_dir, steps, options)``
    begins recording in this process and stops by itself after ``steps`` optimizer steps (None: never). ``options`` says
    what to record besides times: ``shapes``, ``memory``, ``stacks``, ``flops``, each True where it is asked for; what
    the framework cannot record raises UsageError (:func:`perfkit_core.recording.step_recording.asked`).
    ``demo(run_dir, report)`` trains the small demo model with the framework's own profiler and handler, calling
    ``report(text)`` as it proceeds.
    """

    framework: str
    start: Callable[[Path, int | None, Mapping[str, Any]], Recording]
    demo: Callable[[Path, Callable[[str], None]], None]


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What a user asked of a view.

    ``by``: groupings, some with an argument ("stack=5"); the account filters ``steps`` (numbers; None: all), and
    ``pattern``, ``kind``, ``device`` (RE2 on the name, on kind or category, on the device; None: all): events outside
    of them are not counted. ``native``: the framework's own number where it differs from ours (docs/semantics).
    ``sort``: the column the rows will be sorted by, None for the order of the view.
    """

    by: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    pattern: str | None = None
    kind: str | None = None
    device: str | None = None
    native: bool = False
    sort: str | None = None


def split_grouping(item: str) -> tuple[str, str | None]:
    """Name and argument of a grouping: "stack=5" → ("stack", "5")."""
    name, found, argument = item.partition("=")
    return name, argument if found else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a view is computed for many ranks that are never in memory together.

    ``reduce(trace, request)`` turns the trace of one rank into a small partial made of plain values (None, bool, int,
    float, str, lists, mappings by str) and DataFrames, so that it can be written to a file and sent to another
    process. ``merge(partials, request)`` turns any number of partials, in the order of ranks, into the view's table.
    The view's ``table(trace, request)`` equals the merged partials of the ranks of ``trace``. ``explain(partials)``, of
    a view that needs several ranks, says why what they are merged into has no rows; without it, the first rank that has
    nothing itself does, by the view's ``explain_empty``.
    """

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


@dataclass(frozen=True, slots=True)
class MergedRows:
    """How the tables of many ranks become one, where rows that say the same of two ranks are one row: each column as
    its declaration says, a tree by its paths.

    ``weight`` names the columns by which the siblings of a tree are ordered, the largest first. ``finish(table,
    request)`` does what is left to do. ``partial`` is what a rank is reduced to where that is not the view's table, and
    ``columns`` what it has besides. ``together_only``: rows that are split by a grouping are listed instead.
    """

    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    partial: Callable[[Trace, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()
    together_only: bool = False


def _nothing_recorded() -> Text:
    from perfkit_core.language.messages import message  # imports msgspec, which registering a view must not

    return message("nothing of this kind was recorded")


@dataclass(frozen=True, slots=True)
class View:
    """One question about a trace, answered by a table.

    ``table(trace, request)`` returns a DataFrame: integer columns in ns and bytes (units in the names), pandas nullable
    integers where a cell may be unknown. A table with a column ``depth`` is a tree: rows in preorder, roots at depth 0.
    ``columns`` declares every column that it may have, whatever is asked; without a declaration a column is understood
    by its name (:func:`perfkit_core.model.columns.named`).
    ``groupings`` are the values of ``request.by`` it understands, ``order`` the column it is sorted by (descending; in
    a tree among siblings) when nothing is asked, None for the order of the table itself. ``group`` names a report of
    several views, which ``--view GROUP`` shows. ``native`` tells that the view heeds ``request.native``. ``page``: the
    report on a run shows it; long tables that only scripts read are left out. ``reduction`` says how the tables of
    many ranks become one; without it they are listed, a rank after the other. ``of_capture(trace)``, of a view that
    looks beyond a step (at a peak, at what stays), says whether the recording tells that at all: a gate takes its
    numbers of the whole capture, and a row that is missing has none of it.
    ``explain_empty(trace)`` says why the table has no rows.
    """

    name: str
    title: str
    description: str
    table: Callable[[Trace, ViewRequest], pd.DataFrame]
    columns: tuple[Column, ...] = ()
    groupings: tuple[str, ...] = ()
    order: str | None = None
    explain_empty: Callable[[Trace], Text] = field(default=lambda trace: _nothing_recorded())
    group: str | None = None
    native: bool = False
    page: bool = True
    reduction: MergedRows | Reduction | None = None
    of_capture: Callable[[Trace], bool] | None = None

    def column(self, name: str) -> Column:
        """What a column means."""
        from perfkit_core.model.columns import column  # imports pandas, which registering a view must not

        return column(self.columns, name)

    @property
    def per_step(self) -> tuple[str, ...]:
        """The columns that are sums over the chosen steps, which an average divides."""
        return tuple(known.name for known in self.columns if known.per_step)

    @property
    def summed(self) -> dict[str, str]:
        """In a tree, each column that is the sum over a row and all below it → the column of the row's own part, so
        that it can be counted anew without the rows that are not displayed."""
        return {known.name: known.own for known in self.columns if known.own}


@dataclass(frozen=True, slots=True)
class Renderer:
    """A Report as text in one format. ``binary_safe`` renderers may be written to a pipe or file alike."""

    name: str
    render: Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What a user asked of an export. ``weight``: one of the exporter's ``weights``, None for what suits."""

    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """A Trace as a file that another tool opens.

    ``write(trace, file, options)`` writes to a binary file that cannot be sought, and returns in words what the file
    lacks and why ("" when nothing is missing). It is called with a file that replaces the real one only at the end, and
    is compressed when its name ends in ``.gz`` and the suffix does not. ``suffixes`` are the endings of file names that
    mean this format, the usual one first; ``weights`` what ``options.weight`` may be.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern that costs time, and what would remove it.

    ``id`` is its name in commands, ``number`` its place in the list of docs/advice, ``version`` grows when its
    predictions change. ``find(facts)`` returns what it found (nothing: it does not apply) or raises
    :class:`perfkit_core.advice.facts.NotEvaluableError` with what was not recorded. ``what_if(facts, value)`` is the
    candidate for ``--what-if ID=VALUE``, whether or not the rule fires; None where there is nothing to ask.
    """

    id: str
    number: int
    version: int
    title: str
    find: Callable[[Facts], Sequence[Candidate]]
    what_if: Callable[[Facts, float], Candidate] | None = None


VERIFY: Final = "--base 'python train.py' --change 'python train_changed.py'"
"""What ``perfkit verify`` compares where a remedy names nothing else."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to write in a framework against what the rule ``rule`` found.

    ``mode`` is "eager", "static" or "any". ``code``, ``api``, ``note`` and ``verify`` may have words in braces, which
    the rule and the recording fill (:func:`perfkit_core.advice.remedies.recorded_words`). ``api`` names what is
    called, ``since`` the first version that has it ("" for all). ``verify`` is what to compare, as arguments of
    ``perfkit verify``. ``when`` narrows it: for each word, the values of which the recording must have one. Of those
    that fit, the first is taken, so the narrow ones stand before the one for everything else.
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
    """What tiny work costs on a machine, for predictions about operators that would run elsewhere.

    ``version()`` is the installed version of ``framework``, None where it is not installed; it does not import it.
    ``bench()`` is what :func:`perfkit_core.calibration.calibrate.measured` times; it raises CaptureError.
    """

    framework: str
    version: Callable[[], str | None]
    bench: Callable[[], Bench]


OperatorNames = Mapping[str, Callable[[str], str | None]]
"""Framework → function from a native operator name to the canonical one (None: unknown)."""

__all__ = [
    "Calibrator", "Column", "ExportOptions", "Exporter", "MergedRows", "OperatorNames", "Recorder", "Recording",
    "Reduction", "Remedy", "Renderer", "Rule", "Sequence", "Source", "View", "ViewRequest",
]  # fmt: skip
