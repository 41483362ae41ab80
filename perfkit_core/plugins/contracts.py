"""The objects that plugins and built-ins return from their hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Protocol, TypeVar

from perfkit_core.base.language.messages import Text, message

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.trace.model.account import ReadEvents
    from perfkit_core.trace.model.columns import Column
    from perfkit_core.trace.model.meta import Finding, TraceMeta
    from perfkit_core.trace.model.report_data import Report
    from perfkit_core.trace.model.trace import Trace

RuleInput = TypeVar("RuleInput")
Candidate = TypeVar("Candidate")


class EventWriter(Protocol):
    """The file to which a reader streams events
    (:class:`perfkit_core.trace.storage.recorded_events.RecordedWriter`)."""

    rows: int

    def write(self, batch: Any) -> None: ...

    def close(
        self,
        meta: TraceMeta,
        quality: tuple[Finding, ...] = (),
        rank: int | None = None,
        base_ns: int = 0,
        account: Sequence[ReadEvents] = (),
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A reader of one format.

    - ``sniff(path, head)`` returns how well the reader suits the file: 0 (cannot read it), 1 (known container, such as
      any folder), 2 (known content), or 3 (written by the package of the reader). ``head`` is the first 4 KiB,
      decompressed. The reader with the highest number is used.
    - ``read(path, partial)`` returns the Trace or raises SourceError. If ``partial`` is set, a damaged file raises no
      error: its readable part is returned with a finding.
    - ``peek(path)`` returns the rank of a file, or None if unknown, without reading the events. Ranks are assigned
      before files are read. Without ``peek``, ranks come from the file names or the order of the files.
    - ``stream(path, partial, writer)`` passes the events to the writer in parts and closes it. It is None if the format
      needs all events in memory.
    - ``complete(recorded, meta)`` is called when a streamed file is loaded. It adds data that depends on all events,
      and returns the events and findings. ``complete`` is None if the format has no such data."""

    name: str
    description: str
    sniff: Callable[[Path, bytes], int]
    read: Callable[[Path, bool], Trace]
    peek: Callable[[Path], int | None] | None = None
    stream: Callable[[Path, bool, EventWriter], None] | None = None
    complete: Callable[[Any, TraceMeta], tuple[Any, tuple[Finding, ...]]] | None = None  # Any: draft.RecordedEvents


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A user's request to a view. Events that match all filters are selected.

    - ``by``: groupings, which may have an argument ("stack=5").
    - ``steps``: filter by step numbers, or None for all steps.
    - ``pattern``, ``kind``, ``device``: filters by RE2 patterns, or None. ``kind`` matches the kind or the category.
    - ``native``: return the framework's own numbers if they differ from perfkit's (docs/semantics).
    - ``sort``: column to sort rows by, or None for the order of the view.
    - ``peaks``: text of a file with peak rates of devices (:mod:`perfkit_core.plugins.flops.peaks`), or None."""

    by: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    pattern: str | None = None
    kind: str | None = None
    device: str | None = None
    native: bool = False
    sort: str | None = None
    peaks: str | None = None


def split_grouping(item: str) -> tuple[str, str | None]:
    """Return the name and the argument of a grouping: ("stack", "5") for "stack=5", ("stack", None) for "stack"."""
    name, separator, argument = item.partition("=")
    return name, argument if separator else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """Functions that compute a view of many ranks, one rank at a time.

    - ``reduce(trace, request)`` returns a partial: a small intermediate result for one rank. It can be stored or sent
      to another process. It consists of DataFrames, None, bool, int, float, str, lists, and mappings with str keys.
    - ``merge(partials, request)`` merges the partials of all ranks, in rank order, into the table of the view. The
      table equals ``table(trace, request)`` of a trace with all ranks.
    - ``explain(partials)`` returns why the table has no rows. If a plugin leaves ``explain`` out, perfkit takes the
      reason from the view's ``explain_empty(trace)``, for the first rank without rows."""

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rules that merge the tables of many ranks. Rows with equal keys become one row. Rows of a tree are merged by
    their paths. Each column is merged as its declaration says.

    - ``weight``: columns by which the siblings of a tree are sorted, in descending order.
    - ``finish(table, request)`` completes the merged table.
    - ``partial(trace, request)`` returns the table of a rank for the merge. By default the view's table is merged.
    - ``columns`` declares columns that only the tables of ``partial`` have.
    - ``together_only``: merge the ranks only if the request has no groupings. If it has, list the rows of all ranks."""

    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    partial: Callable[[Trace, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()
    together_only: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A table of a trace that answers one question.

    - ``table(trace, request)`` returns a DataFrame. Times are integers in ns, and sizes are integers in bytes. Column
      names end with the unit. A column with unknown values has a nullable type of pandas. A table with a column
      ``depth`` is a tree: its rows are in preorder, and roots have depth 0.
    - ``columns``: declarations of the columns, including those that only some requests add. A column without a
      declaration is interpreted by its name (:func:`perfkit_core.trace.model.columns.named`).
    - ``groupings``: accepted values of ``request.by``.
    - ``order``: column to sort rows by, descending. In a tree, it sorts siblings. Of several columns, the first that
      has a value above 0 is used (:meth:`sorted_by`). Without columns, the rows keep their order.
    - ``explain_empty(trace)`` returns why the table has no rows.
    - ``group``: name of a report of several views (``--view GROUP``).
    - ``native``: whether the view supports ``request.native``.
    - ``page``: whether the report page of a run shows the view. Long tables for scripts are not shown.
    - ``reduction`` merges the tables of many ranks. By default the rows of all ranks are listed.
    - ``in_parts(trace)`` is declared if ``reduction`` also merges the tables of parts of a long recording to its table.
      It returns what a table takes from the recording as a whole, such as whether there is device work. This must be
      equal for all parts. None means that the trace cannot be a part.
    - ``of_capture`` is None, or a function if the numbers describe the complete capture (peaks, leaks) instead of
      single steps. It returns whether a trace holds the data. If it does, ``--fail-on`` counts a missing row as 0."""

    name: str
    title: str
    description: str
    table: Callable[[Trace, ViewRequest], pd.DataFrame]
    columns: tuple[Column, ...] = ()
    groupings: tuple[str, ...] = ()
    order: str | tuple[str, ...] | None = None
    explain_empty: Callable[[Trace], Text] = lambda trace: message("nothing of this kind was recorded")
    group: str | None = None
    native: bool = False
    page: bool = True
    reduction: MergedRows | Reduction | None = None
    in_parts: Callable[[Trace], Any] | None = None
    of_capture: Callable[[Trace], bool] | None = None

    def column(self, name: str) -> Column:
        """Return the declaration of a column. If there is none, derive one from the name."""
        from perfkit_core.trace.model.columns import column  # imports pandas, which is slow

        return column(self.columns, name)

    def sorted_by(self, table: pd.DataFrame) -> str | None:
        """Return the column by which the rows of the table are sorted, or None. Device time is 0 without a device."""
        names = (self.order,) if isinstance(self.order, str) else self.order or ()
        names = tuple(name for name in names if name in table.columns)
        return next((name for name in names if (table[name].fillna(0) > 0).any()), names[-1] if names else None)

    @property
    def per_step(self) -> tuple[str, ...]:
        """The names of the columns that are sums over the chosen steps."""
        return tuple(column.name for column in self.columns if column.per_step)

    @property
    def summed(self) -> dict[str, str]:
        """Maps columns that include descendants to columns that do not, such as ``total_cpu_ns`` to ``self_cpu_ns``."""
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

    - ``write(trace, file, options)`` writes to a binary file without seeking. It returns a sentence about missing data,
      or "". The file appears under its name only when it is complete.
    - ``suffixes``: file name extensions. The first is the default. perfkit compresses files whose name ends in ``.gz``,
      except if the extension of the format already ends in ``.gz``.
    - ``weights``: accepted values of ``options.weight``."""

    name: str
    description: str
    suffixes: tuple[str, ...]
    write: Callable[[Trace, BinaryIO, ExportOptions], str]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule(Generic[RuleInput, Candidate]):
    """A pattern that costs time, and how to detect it.

    - ``id``: name of the rule in commands. ``number``: its number in docs/rules.
    - ``version``: number that increases when the predictions change.
    - ``find(facts)`` returns the detected problems as Candidates, or an empty sequence if the rule does not apply. If
      data is missing, it raises :class:`perfkit_core.advice.rule_input.NotEvaluableError`, which names the data.
    - ``what_if(facts, value)`` returns the Candidate for ``--what-if ID=VALUE``, even if the rule does not apply.
      ``what_if`` is None if the rule does not support ``--what-if``."""

    id: str
    number: int
    version: int
    title: str
    find: Callable[[RuleInput], Sequence[Candidate]]
    what_if: Callable[[RuleInput, float], Candidate] | None = None


VERIFY: Final = "--base 'python train.py' --change 'python train_changed.py'"
"""Default arguments of ``perfkit verify`` for a remedy."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Code that solves the problem of a rule in one framework.

    - ``rule``: id of the rule.
    - ``api``: function to call. ``since``: first version of the framework with this function, or "" for all versions.
    - ``mode``: "eager", "static" or "any". Remedies for the recorded mode are preferred, then those for any mode.
    - ``verify``: arguments of ``perfkit verify``.
    - ``when``: placeholder → accepted values. The remedy is used only for these values. If several remedies fit, the
      first is used, so specific remedies come first.

    ``code``, ``api``, ``note`` and ``verify`` may have placeholders in braces. The rule and the recording fill them in
    (:func:`perfkit_core.advice.remedies.recorded_words`)."""

    rule: str
    code: str
    api: str
    since: str = ""
    mode: str = "any"
    note: str = ""
    verify: str = VERIFY
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
