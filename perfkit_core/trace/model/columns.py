"""Declarations of the columns of tables: heading, unit, meaning, and the rule that merges a column over ranks.

Each view declares its columns as data. If a plugin's view does not declare a column, :func:`named` makes a declaration
from the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.trace.model.schema import DEVICE_WORK

Unit = Literal["ns", "bytes", "bytes_per_s", "ratio", "flops", "count", "tflop_per_s", "gb_per_s", ""]
Kind = Literal["key", "description", "text", "measure", "position"]
Place = Literal["host", "device", ""]

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

    - ``title``: the English heading, without the unit.
    - ``proper``: the heading is a proper name and is not translated.
    - ``merge``: the rule that merges values over ranks. By default keys and descriptions identify rows, and measures
      are summed.
    - ``exact``: values are the same in every run of a program.
    - ``per_step``: values are sums over the chosen steps. A per-step table divides them by the number of steps.
    - ``adds_up``: the values of several rows may be summed. This also holds for all columns with ``per_step``.
    - ``of_capture``: values are extremes over the complete capture.
    - ``place``: where the measured work runs: HOST, DEVICE, or "" for either.
    - ``own``: if values include child rows or nested events, the column that excludes these, such as "self_cpu_ns".
    - ``by``: the groupings that add the column. If it is empty, the column is always present.
    - ``words``: values are words or sentences of perfkit, which are translated. A tuple lists the translated values.
      "ids" are shown as words, too: ``exposed_copy`` as "Exposed copy".
    - ``device_values``: if the column has one of these values in a row, the row contains only device work.
    - ``quantity``: columns with the same quantity are shown in the same unit. By default it follows from the name.
    - ``compared``: values belong to a comparison of runs, such as base, other and difference. Compared columns of one
      quantity are shown with the same number of decimals.
    - ``thing``: the kind of thing that the values name: "operator", "kernel", "module", "code", "step", "advice" or
      "path" (parts of the critical path). The
      first table of a page with such a column has a row for each thing of this kind. Pages link the names of things.
    - ``noun``: "size" or "memory". Sentences add this noun to the title of a column of bytes: "Peak memory". If it is
      "", the title already has a noun.
    """

    name: str
    title: str
    unit: Unit = ""
    kind: Kind = MEASURE
    merge: Rule | Average | Share | Literal[""] = ""
    exact: bool = False
    per_step: bool = False
    adds_up: bool = False
    of_capture: bool = False
    place: Place = ""
    own: str = ""
    by: tuple[str, ...] = ()
    words: bool | tuple[str, ...] | Literal["ids", "sentences"] = False
    device_values: tuple[str, ...] = ()
    quantity: str | None = None
    compared: bool = False
    noun: Literal["memory", "size", ""] = "memory"
    proper: bool = False
    description: str = ""
    thing: str = ""

    @property
    def sums(self) -> bool:
        return self.per_step or self.adds_up

    @property
    def rule(self) -> Rule | Average | Share:
        return self.merge or (SUM if self.kind == MEASURE else APART)


# Short forms of Column, as in ``duration("dur_ns", "Duration")``. ``exact``: these values are equal in every run.
duration: Final = partial(Column, unit="ns")
size: Final = partial(Column, unit="bytes", exact=True)
rate: Final = partial(Column, unit="bytes_per_s")
operations: Final = partial(Column, unit="flops", exact=True)
count: Final = partial(Column, unit="count")
key: Final = partial(Column, kind=KEY)
description: Final = partial(Column, kind=DESCRIPTION)
text: Final = partial(Column, kind=TEXT)
words: Final = partial(Column, kind=KEY, words=True)


def share(name: str, title: str, merge: Share | Literal[""] = "", **how: Any) -> Column:
    return Column(name, title, "ratio", merge=merge, **how)


def statistics(what: str, title: str, place: Place, per_step: bool = True) -> tuple[Column, Column, Column, Column]:
    """Return four columns of the times of calls: total, average, minimum and maximum (``total_{what}_ns``, …)."""
    total = f"total_{what}_ns"
    return (
        duration(total, f"Total {title}", place=place, per_step=per_step),
        duration(f"avg_{what}_ns", f"Avg {title}", place=place, merge=Average(total)),
        duration(f"min_{what}_ns", f"Min {title}", place=place, merge=MIN, of_capture=True),
        duration(f"max_{what}_ns", f"Max {title}", place=place, merge=MAX, of_capture=True),
    )


MAKERS: Final = ("Column", "duration", "size", "rate", "share", "operations", "count", "key", "description", "text",
                 "words")  # fmt: skip
"""Names of the callables that return a :class:`Column`. Their second argument is the heading."""


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}


def column(columns: Iterable[Column], name: str) -> Column:
    """Return the declared column with this name. If there is none, interpret the name (:func:`named`)."""
    return next((column for column in columns if column.name == name), None) or named(name)


def keys(columns: Iterable[Column], table: pd.DataFrame, by: Sequence[str] = ()) -> list[str]:
    """Return the names of the columns that identify the rows of ``table``, in table order. ``columns`` has the
    declarations. ``by`` has the requested groupings, each as ``grouping`` or ``grouping=argument``.

    - A declared column identifies rows if it is a key, or a description that a requested grouping adds.
    - An undeclared column identifies rows if it has the name of a requested grouping.
    - Undeclared columns to the left of all undeclared measures also identify rows. Exception: in a table with a column
      ``name``, undeclared descriptions such as ``phase`` do not."""
    declared, groupings = by_name(columns), {item.partition("=")[0] for item in by}
    names: list[str] = []
    measured = False
    for name in map(str, table.columns):
        column = declared.get(name) or named(name)
        describes = column.kind == DESCRIPTION
        if name in declared:
            is_key = column.kind == KEY or (describes and not groupings.isdisjoint(column.by))
        else:
            numeric = name not in VOCABULARY and pd.api.types.is_numeric_dtype(table[name])
            measured |= numeric or column.kind in (MEASURE, POSITION)
            is_key = name in groupings or (not measured and not (describes and "name" in table.columns))
        if is_key:
            names.append(name)
    return names


def called(columns: Iterable[Column], name: str, shown: Iterable[str]) -> tuple[str, ...]:
    """Return the ``shown`` columns that a name selects. If ``name`` is a column, it selects this column. If it is a
    grouping, it selects the columns that the grouping adds."""
    shown = tuple(shown)
    if name in shown:
        return (name,)
    return tuple(column.name for column in columns if name in column.by and column.name in shown)


DEPTH: Final = Column("depth", "Depth", kind=KEY)
NAME: Final = key("name", "Name")
OP_NAME: Final = description("op_name", "Op name", description="name of the canonical operator")
KIND: Final = words("kind", "Kind", device_values=tuple(DEVICE_WORK))
CATEGORY: Final = words("category", "Category")
PLACE: Final = words("place", "Place", device_values=("device",))
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
CALLS: Final = count("calls", "Calls", exact=True, per_step=True)
DUR: Final = duration("dur_ns", "Duration")
RATIO: Final = share("ratio", "Share")
FLOPS: Final = operations("flops", "FLOPs", per_step=True)
CPU: Final = statistics("cpu", "CPU", HOST)
ON_DEVICE: Final = statistics("device", "device", DEVICE)
SELF_CPU: Final = duration("self_cpu_ns", "Self CPU", place=HOST, per_step=True)
SELF_DEVICE: Final = duration("self_device_ns", "Self device", place=DEVICE, per_step=True)

VOCABULARY: Final = by_name(
    (DEPTH, NAME, OP_NAME, KIND, CATEGORY, PLACE, DEVICE_NAME, RANK, STEP, PHASE, MODULE, TID, SHAPES, STREAM, OPERATOR)
)
"""How columns with these names are interpreted if a view does not declare them."""
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
_COMPARED: Final = frozenset(("base", "other", "difference"))
_SUFFIXES: Final[tuple[Unit, ...]] = ("bytes_per_s", "tflop_per_s", "gb_per_s", "ratio", "bytes", "ns", "flops")
_BARE: Final = {"ns": "Time", "bytes": "Size", "bytes_per_s": "Bandwidth", "ratio": "Share", "gb_per_s": "Bandwidth",
                "tflop_per_s": "Operations"}  # fmt: skip
_EXACT: Final = ("calls", "steps", "blocks", "allocations", "frees", "bytes", "flops")
_SPELLED: Final = {"dur": "duration", "flops": "FLOPs"} | {
    word: word.upper() for word in ("cpu", "gpu", "npu", "id", "pid", "tid", "utc")
}
_PLACES: Final = ("cpu", "gpu", "npu", "device")


def quantity(column: Column) -> tuple[str, str]:
    """Return the unit and the quantity of a column, without the statistic: ("ns", "cpu") for ``min_cpu_ns``."""
    if column.quantity is not None:
        return column.unit, column.quantity
    words = _stem(column.name, column.unit).split("_")
    return column.unit, "_".join(word for word in words if word not in _STATISTICS)


def named(name: str) -> Column:
    """Return a declaration for an undeclared column, derived from its name:

    - The suffix is the unit (``_ns``, ``_bytes``, ``_bytes_per_s``, ``_ratio``, ``_flops``; see :data:`Unit`).
    - A column with a unit is a measure. A name in VOCABULARY gets the declaration given there.
    - Merging over ranks keeps the smallest value of ``min_…`` and the largest value of ``max_…``. ``avg_x`` is
      ``total_x`` divided by the calls.
    - ``min``, ``max`` or ``peak`` in the name: the value is an extreme over the complete capture.
    - ``cpu`` in the name: the measured work runs on the host. ``device``: the measured work runs on the device.
    - ``base``, ``other`` or ``difference`` in the name: the column belongs to a comparison.
    - The words of the name form the heading.
    """
    if name in VOCABULARY:
        return VOCABULARY[name]
    unit: Unit = next((end for end in _SUFFIXES if name == end or name.endswith(f"_{end}")), "")
    if name in ("start_ns", "time_ns", "end_ns", "peak_time_ns"):
        return Column(name, _title(name, unit), unit, POSITION, of_capture=name.startswith("peak"))
    title, parts = _title(name, unit), name.split("_")
    measures = unit != "" or name in ("per_s", "calls", "steps")
    merge: Any = {"min": MIN, "max": MAX, "avg": Average("total" + name[3:])}.get(parts[0], "")
    return Column(
        name,
        title,
        unit,
        MEASURE if measures else KEY,
        merge=merge if measures else "",
        exact=name.endswith(_EXACT),
        of_capture=not {"min", "max", "peak"}.isdisjoint(parts),
        compared=not _COMPARED.isdisjoint(parts),
        noun="" if title.endswith(" memory") else "memory",
        place=DEVICE if "device" in name else HOST if "cpu" in name else "",
    )


def _stem(name: str, unit: str) -> str:
    return name.removesuffix(unit).rstrip("_") if unit in _SUFFIXES else name


def _title(name: str, unit: str) -> str:
    """Return the heading, such as ``Self CPU`` for ``self_cpu_ns``."""
    stem = name if unit == "flops" else _stem(name, unit)
    if not stem:
        return _BARE.get(unit, name)
    if unit == "bytes" and stem.split("_")[-1] in _PLACES:  # "Device" alone would be read as device time
        stem += "_memory"
    title = " ".join(_SPELLED.get(word, word) for word in stem.split("_"))
    return title[:1].upper() + title[1:]
