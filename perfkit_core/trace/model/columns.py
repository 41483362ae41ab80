"""Declarations of the columns of tables: heading, unit, meaning, and the rule that merges a column over ranks.

Each view declares its columns as data. A column without a declaration is a text key or a number (:func:`column`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar

import pandas as pd

from perfkit_core.trace.model.schema import DEVICE_WORK

Unit = Literal["ns", "bytes", "bytes_per_s", "ratio", "flops", "count", "tflop_per_s", "gb_per_s", ""]
Kind = Literal["key", "description", "text", "measure", "position"]

KEY: Final = "key"
DESCRIPTION: Final = "description"
"""A property of a row. A declared column of this kind identifies rows only if a requested grouping adds it."""
TEXT: Final = "text"
"""A note about a row."""
MEASURE: Final = "measure"
POSITION: Final = "position"
"""A point in time. Only differences of such values have a meaning."""

HOST: Final = "host"
DEVICE: Final = "device"
ADDRESS: Final = "address"  # thing of a column of addresses, relative to the page; pages show them as links
CHANGE: Final = "change"  # quantity of relative changes, which are no shares of a whole

_Values = TypeVar("_Values")
Rule = Literal["apart", "sum", "min", "max", "first"]
APART: Final = "apart"
"""Rows with different values stay separate."""
SUM: Final = "sum"
MIN: Final = "min"
MAX: Final = "max"
FIRST: Final = "first"
"""The merged row has the first value that is not missing, in the order of the ranks."""


@dataclass(frozen=True, slots=True)
class Average:
    """Rule that merges averages over ranks: ``round(sum(totals) / sum(calls))``. ``of`` names the column of totals."""

    of: str


@dataclass(frozen=True, slots=True)
class Share:
    """Rule that merges shares over ranks: ``numerator / denominator``. The numerator is the merged column ``part``. The
    default denominator is the sum of ``part`` over all rows (in a tree, over the roots). Other denominators:

    - ``of``: the sum of the column with this name, over the same rows.
    - ``above``: the value of ``part`` in the parent row. For roots, the default is used.
    - ``whole``: the sum of ``whole(trace, request, table)`` over the ranks. ``table`` is the table of the rank. If the
      function returns None for all ranks, the default is used.
    - ``column``: the merged value of the column with this name, in the same row.

    If ``part`` is None, ``column`` must be set. The numerator is then the sum of ``round(share * value)`` over the
    ranks. ``share`` is the rank's share, and ``value`` is the rank's value of ``column``.
    """

    part: str | None = None
    of: str | None = None
    above: bool = False
    whole: Callable[..., int | None] | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    What it says:

    - ``title``: the English heading, without the unit. ``description`` explains it.
    - ``unit``: the unit of the values, with which the name ends.
    - ``thing``: the kind of thing that the values name: "operator", "kernel", "module", "code", "step", "advice" or
      "path" (parts of the critical path). The first table of a page with such a column has a row for each thing of this
      kind. Pages link the names of things.
    - ``place``: where the measured work runs: HOST, DEVICE, or "" for either. Of a column of words, the values with
      which a row contains only device work.

    Which rows it is part of, and how its values are put together:

    - ``kind``: whether the column identifies rows, describes them, or measures something.
    - ``by``: the groupings that add the column. If it is empty, the column is always present.
    - ``merge``: the rule that merges values over ranks. By default keys and descriptions identify rows, and measures
      are summed.
    - ``over``: what a value is taken over. "steps": it is a sum over the chosen steps, which a per-step table divides
      by the number of steps; values of several rows may be summed. "rows": values of several rows may be summed.
      "capture": it is an extreme over the complete capture. "": none of these.
    - ``own``: if values include child rows or nested events, the column that excludes these, such as "self_cpu_ns".
    - ``exact``: values are the same in every run of a program.

    How it is written:

    - ``words``: values are words or sentences of perfkit, which are translated. A tuple lists the translated values,
      or pairs of a value and the phrase that is shown for it. "ids" are shown as words, too: ``exposed_copy`` as
      "Exposed copy".
    - ``heading``: sentences add the noun "memory" to the title of a column of bytes ("Peak memory"), or the noun
      "size". The heading is "complete" if the title already has a noun, and "proper" if it is a proper name, which is
      not translated either.
    - ``quantity``: columns with the same quantity are shown in the same unit. By default it follows from the name. If
      it is declared, the columns are compared, such as base, other and difference: they also have the same number of
      decimals.
    """

    name: str
    title: str
    description: str = ""
    unit: Unit = ""
    kind: Kind = MEASURE
    merge: Rule | Average | Share | Literal[""] = ""
    over: Literal["steps", "rows", "capture", ""] = ""
    place: Literal["host", "device", ""] | tuple[str, ...] = ""
    own: str = ""
    exact: bool = False
    by: tuple[str, ...] = ()
    thing: str = ""
    words: bool | tuple[str, ...] | tuple[tuple[str, str], ...] | Literal["ids", "sentences"] = False
    heading: Literal["memory", "size", "complete", "proper"] = "memory"
    quantity: str | None = None

    @property
    def per_step(self) -> bool:
        return self.over == "steps"

    @property
    def sums(self) -> bool:
        return self.over in ("steps", "rows")

    @property
    def compared(self) -> bool:
        return self.quantity not in (None, CHANGE)

    @property
    def rule(self) -> Rule | Average | Share:
        return self.merge or (SUM if self.kind == MEASURE else APART)


# Short forms of Column, as in ``duration("dur_ns", "Duration", "what it means")``. Exact values are equal in every run.
duration: Final = partial(Column, unit="ns")
size: Final = partial(Column, unit="bytes", exact=True)
rate: Final = partial(Column, unit="bytes_per_s")
operations: Final = partial(Column, unit="flops", exact=True)
count: Final = partial(Column, unit="count")
position: Final = partial(Column, unit="ns", kind=POSITION)
key: Final = partial(Column, kind=KEY)
description: Final = partial(Column, kind=DESCRIPTION)
text: Final = partial(Column, kind=TEXT)
words: Final = partial(Column, kind=KEY, words=True)


def share(name: str, title: str, merge: Share | Literal[""] = "", **how: Any) -> Column:
    return Column(name, title, unit="ratio", merge=merge, **how)


def statistics(what: str, title: str, place: Literal["host", "device"]) -> tuple[Column, Column, Column, Column]:
    """Return four columns of the times of calls: total, average, minimum and maximum (``total_{what}_ns``, …)."""
    total = f"total_{what}_ns"
    return (
        duration(total, f"Total {title}", place=place, over="steps"),
        duration(f"avg_{what}_ns", f"Avg {title}", place=place, merge=Average(total)),
        duration(f"min_{what}_ns", f"Min {title}", place=place, merge=MIN, over="capture"),
        duration(f"max_{what}_ns", f"Max {title}", place=place, merge=MAX, over="capture"),
    )


def measured(what: str, values: _Values) -> dict[str, _Values]:
    """Return what the columns of :func:`statistics` are computed from. Averages follow from totals."""
    return dict.fromkeys((f"{statistic}_{what}_ns" for statistic in ("total", "min", "max")), values)


MAKERS: Final = ("Column", "duration", "size", "rate", "share", "operations", "count", "position", "key",
                 "description", "text", "words")  # fmt: skip
"""Names of the callables that return a :class:`Column`. Their second argument is the heading."""


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}


def column(columns: Iterable[Column], name: str, values: pd.Series[Any] | None = None) -> Column:
    """Return the declared column with this name. Without a declaration, it is a number if its name ends with a unit or
    if ``values`` are numbers, else a text that identifies rows. The words of its name are the heading."""
    for declared in (*columns, RANK):  # the rank of listed rows is a column of every view
        if declared.name == name:
            return declared
    unit = unit_of(name)
    numeric = unit != "" or (values is not None and pd.api.types.is_numeric_dtype(values))
    return Column(name, heading(name), unit=unit, kind=MEASURE if numeric else KEY)


def keys(columns: Iterable[Column], table: pd.DataFrame, by: Sequence[str] = ()) -> list[str]:
    """Return the names of the columns that identify the rows of ``table``, in table order. ``columns`` has the
    declarations. ``by`` has the requested groupings, each as ``grouping`` or ``grouping=argument``.

    A column identifies rows if it is a key, or a description that a requested grouping adds, or undeclared and named
    like a requested grouping."""
    declared, groupings = tuple(columns), {item.partition("=")[0] for item in by}
    names = []
    for name in map(str, table.columns):
        declaration = column(declared, name, table[name])
        added = declaration.kind == DESCRIPTION and not groupings.isdisjoint(declaration.by)
        if declaration.kind == KEY or added or (name in groupings and name not in by_name(declared)):
            names.append(name)
    return names


def label_of(table: pd.DataFrame) -> str:
    """Return the column with the texts of a tree: the one after the depth."""
    names = [str(name) for name in table.columns]
    return names[min(names.index(DEPTH.name) + 1, len(names) - 1)]


def heading(name: str) -> str:
    """Return the words of a name as a heading, without the unit: ``Self CPU`` for ``self_cpu_ns``."""
    unit = unit_of(name)
    stem = name.removesuffix(unit).rstrip("_") if unit and unit != "flops" else name
    words = " ".join(_SPELLED.get(word, word) for word in (stem or name).split("_"))
    return _BARE.get(name) or words[:1].upper() + words[1:]


def unit_of(name: str) -> Unit:
    """Return the unit that a name ends with, or ""."""
    return next((unit for unit in _SUFFIXES if name == unit or name.endswith(f"_{unit}")), "")


def called(columns: Iterable[Column], name: str, shown: Iterable[str]) -> tuple[str, ...]:
    """Return the ``shown`` columns that a name selects. If ``name`` is a column, it selects this column. If it is a
    grouping, it selects the columns that the grouping adds."""
    shown = tuple(shown)
    if name in shown:
        return (name,)
    return tuple(column.name for column in columns if name in column.by and column.name in shown)


DEPTH: Final = Column("depth", "Depth", kind=KEY)
NAME: Final = key("name", "Name")
OP_NAME: Final = description("op_name", "Op name", "name of the canonical operator")
KIND: Final = words("kind", "Kind", place=tuple(DEVICE_WORK))
CATEGORY: Final = words("category", "Category")
PLACE: Final = words("place", "Place", place=("device",))
DEVICE_NAME: Final = key("device", "Device")
RANK: Final = key("rank", "Rank")
STEP: Final = description("step", "Step")
PHASE: Final = description("phase", "Phase", words=True)
MODULE: Final = description("module", "Module")
TID: Final = description("tid", "TID")
SHAPES: Final = key("shapes", "Shapes")
STREAM: Final = key("stream", "Stream")
OPERATOR: Final = key("operator", "Operator")
OPERATOR_NAME: Final = replace(NAME, thing="operator")
CALLS: Final = count("calls", "Calls", exact=True, over="steps")
START: Final = position("start_ns", "Start")
DUR: Final = duration("dur_ns", "Duration")
RATIO: Final = share("ratio", "Share")
FLOPS: Final = operations("flops", "FLOPs", over="steps")
CPU: Final = statistics("cpu", "CPU", HOST)
ON_DEVICE: Final = statistics("device", "device", DEVICE)
SELF_CPU: Final = duration("self_cpu_ns", "Self CPU", place=HOST, over="steps")
SELF_DEVICE: Final = duration("self_device_ns", "Self device", place=DEVICE, over="steps")

BY: Final = {
    "shape": (SHAPES,),
    "stack": (key("stack", "Stack"),),
    "line": (key("line", "Line of code"),),
    "thread": (TID,),
    "stream": (STREAM,),
    "overload": (key("overload", "Overload"),),
    "label": (key("label", "Label"),),
    "scope": (key("scope", "Scope"),),
    "module": (MODULE,),
    "phase": (PHASE,),
    "device": (DEVICE_NAME,),
    "step": (STEP,),
    "rank": (RANK,),
    "operator": (OPERATOR,),
    "category": (CATEGORY,),
}
"""The columns that each grouping adds to a table. Only groupings that several views share are listed."""


def added_by(groupings: Iterable[str]) -> Iterator[Column]:
    for grouping in groupings:
        yield from (replace(column, by=(grouping,)) for column in BY.get(grouping, ()))


_STATISTICS: Final = frozenset(
    ("total", "self", "avg", "mean", "median", "min", "max", "base", "other", "difference", "before", "now", "dur",
     "low", "high", "noise")
)  # fmt: skip
"""Words in column names that select a statistic: ``avg`` in ``avg_cpu_ns``. The other words name the quantity."""
_SUFFIXES: Final[tuple[Unit, ...]] = ("bytes_per_s", "tflop_per_s", "gb_per_s", "ratio", "bytes", "ns", "flops")
_BARE: Final = {"ns": "Time", "bytes": "Size", "bytes_per_s": "Bandwidth", "ratio": "Share"}
"""Headings of columns whose name is only a unit."""
_SPELLED: Final = {"dur": "duration", "flops": "FLOPs"} | {
    word: word.upper() for word in ("cpu", "gpu", "npu", "id", "pid", "tid", "utc")
}


def quantity(column: Column) -> tuple[str, str]:
    """Return the unit and the quantity of a column, without the statistic: ("ns", "cpu") for ``min_cpu_ns``."""
    if column.quantity is not None:
        return column.unit, column.quantity
    stem = column.name.removesuffix(column.unit).rstrip("_") if column.unit in _SUFFIXES else column.name
    words = stem.split("_")
    return column.unit, "_".join(word for word in words if word not in _STATISTICS)
