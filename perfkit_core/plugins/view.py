"""Views: what a table says, how it is computed, and what a user asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.language.messages import Text, message

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
    from perfkit_core.trace.model.columns import Column
    from perfkit_core.trace.model.trace import Trace


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


TableFunction = Callable[["Trace", ViewRequest], "pd.DataFrame"]
"""Returns the table of a trace. Times are integers in ns, and sizes are integers in bytes. Column names end with the
unit. A column with unknown values has a nullable type of pandas. A table with a column ``depth`` is a tree: its rows
are in preorder, and roots have depth 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How the table of a view is computed. There are four kinds: :class:`Listed`, :class:`Grouped`, :class:`Merged` and
    :class:`Reduced`. They differ in what becomes of the rows of several ranks.

    - ``native``: whether the table supports ``request.native``.
    - ``in_parts(trace)`` is declared if the table of a long recording may be merged from the tables of its parts. It
      returns what a table takes from the recording as a whole, such as whether there is device work. This must be equal
      for all parts. None means that the trace cannot be a part.
    - ``of_capture(trace)`` is declared if the numbers describe the complete capture (peaks, leaks) instead of single
      steps. It returns whether a trace holds the data. If it does, ``--fail-on`` counts a missing row as 0."""

    native: bool = False
    in_parts: Callable[[Trace], Any] | None = None
    of_capture: Callable[[Trace], bool] | None = None


@dataclass(frozen=True, slots=True)
class Listed(Table):
    """The rows of all ranks, one after the other, with a first column ``rank`` if ``rows`` returns none."""

    rows: TableFunction


@dataclass(frozen=True, slots=True)
class Grouped(Table):
    """The selected events, grouped by keys. The rows, their averages and shares, and the merge of ranks and parts
    follow from the columns of the view.

    - ``events(trace, request)`` returns the mask of the events that count if the request selects them. Shape (rows,).
    - ``keys``: columns of the event table that identify a row of the table, or a function of the trace, the request and
      the event rows that returns all keys, including those of groupings. Otherwise, groupings add their keys.
    - ``values``: a measure → the column of the event table that it sums up (or whose extreme it is), or a function of
      the trace, the request and the event rows that returns a value for each row. An unknown value is NA. A measure
      ``calls`` without a value counts the rows. Averages and shares need no value: their columns declare them.
    - ``finish`` and ``columns`` are those of :class:`Merged`.

    If all keys and values are columns of the event table, the table is also merged from parts of a long recording."""

    events: Callable[[Trace, ViewRequest], BoolArray]
    keys: tuple[str, ...] | Callable[[Trace, ViewRequest, IntArray], Mapping[str, Any]]
    values: Mapping[str, str | Callable[[Trace, ViewRequest, IntArray], Any]] = field(default_factory=dict, hash=False)
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.keys, tuple) and not any(map(callable, self.values.values())) and self.in_parts is None:
            object.__setattr__(self, "in_parts", lambda trace: ())


@dataclass(frozen=True, slots=True)
class Merged(Table):
    """Rows of several ranks with equal keys become one row. Rows of a tree are merged by their paths. Each column is
    merged as its declaration says.

    - ``rows(trace, request)`` returns the table of one rank, or what ``finish`` makes the table of.
    - ``finish(rows, request)`` returns the table of the merged rows, for example in another order or with rates. It is
      also called for a single rank, and for an empty table.
    - ``siblings``: columns by which the siblings of a tree are sorted, in descending order.
    - ``columns`` declares columns that only ``rows`` returns, not ``finish``.
    - ``together_only``: merge the ranks only if the request has no groupings. If it has, list the rows of all ranks."""

    rows: TableFunction
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] | None = None
    siblings: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    together_only: bool = False


@dataclass(frozen=True, slots=True)
class Reduced(Table):
    """A table that is made of intermediate results, one for each rank.

    - ``reduce(trace, request)`` returns a partial: a small result for one rank. It can be stored or sent to another
      process. It consists of DataFrames, None, bool, int, float, str, lists, and mappings with str keys.
    - ``merge(partials, request)`` returns the table of the partials of all ranks, in rank order.
    - ``explain(partials)`` returns why the table has no rows. By default, the reason is that of the view
      (``explain_empty``) for the first rank without rows.
    - ``of_trace(trace, request)`` returns the table of a trace with one or more ranks. By default, its partial is
      merged."""

    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None
    of_trace: TableFunction | None = None


PAGE: Final = "page"


@dataclass(frozen=True, slots=True)
class View:
    """A table of a trace that answers one question.

    - ``table``: how the table is computed, or a function: its rows are then those of a :class:`Listed` table.
    - ``columns``: declarations of the columns, including those that only some requests add. Columns without a
      declaration are keys if they are texts, and numbers that are summed if not.
    - ``groupings``: accepted values of ``request.by``.
    - ``order``: column to sort rows by, descending. In a tree, it sorts siblings. Of several columns, the first that
      has a value above 0 is used (:meth:`sorted_by`). Without columns, the rows keep their order.
    - ``explain_empty(trace)`` returns why the table has no rows.
    - ``report``: "page" if the report page of a run shows the view, "" if only ``--view NAME`` shows it, because long
      tables are for scripts, or else the name of a report of several views (``--view REPORT``)."""

    name: str
    title: str
    description: str
    table: Table | TableFunction
    columns: tuple[Column, ...] = ()
    groupings: tuple[str, ...] = ()
    order: str | tuple[str, ...] | None = None
    explain_empty: Callable[[Trace], Text] = lambda trace: message("nothing of this kind was recorded")
    report: str = PAGE

    @property
    def computed(self) -> Table:
        return self.table if isinstance(self.table, Table) else Listed(self.table)

    @property
    def group(self) -> str | None:
        """The name of the report of several views that shows this view, or None."""
        return self.report if self.report not in ("", PAGE) else None

    def column(self, name: str) -> Column:
        """Return the declaration of a column, or the default declaration."""
        from perfkit_core.trace.model.columns import column  # imports pandas, which is slow

        return column(self.columns, name)

    def sorted_by(self, table: pd.DataFrame) -> str | None:
        """Return the column by which the rows of the table are sorted, or None. Device time is 0 without a device."""
        names = (self.order,) if isinstance(self.order, str) else self.order or ()
        names = tuple(name for name in names if name in table.columns)
        return next((name for name in names if (table[name].fillna(0) > 0).any()), names[-1] if names else None)

    @property
    def summed(self) -> dict[str, str]:
        """Maps columns that include descendants to columns that do not, such as ``total_cpu_ns`` to ``self_cpu_ns``."""
        return {column.name: column.own for column in self.columns if column.own}
