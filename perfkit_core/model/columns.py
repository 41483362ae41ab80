"""What the columns of tables mean: heading, unit, what they are for, and how they merge over ranks.

A view declares its columns once, as data; a table that is no view declares them beside the code that makes it. What
people read above a column, the unit it is shown in, which columns tell rows apart, what an average divides, what a gate
compares exactly and how the tables of ranks become one follow from the declarations.

A column without a declaration (of a plugin's view) is understood by its name: see :func:`named`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pandas as pd

from perfkit_core.model.schema import DEVICE_WORK

Unit = Literal["ns", "bytes", "bytes_per_s", "ratio", "flops", "count", "tflop_per_s", "gb_per_s", ""]
Kind = Literal["key", "description", "text", "measure", "position"]
Place = Literal["host", "device", ""]

KEY: Final = "key"
"""Tells rows apart."""
DESCRIPTION: Final = "description"
"""Names something of a row; tells rows apart only where they are split by it."""
TEXT: Final = "text"
"""Says something of a row."""
MEASURE: Final = "measure"
POSITION: Final = "position"
"""A point in time, which is no larger than others."""

HOST: Final = "host"
DEVICE: Final = "device"

Rule = Literal["apart", "sum", "min", "max", "first"]
APART: Final = "apart"
"""Rows that differ in it stay rows of their own."""
SUM: Final = "sum"
MIN: Final = "min"
MAX: Final = "max"
FIRST: Final = "first"
"""What the first rank says that knows it."""


@dataclass(frozen=True, slots=True)
class Average:
    """The column ``of`` over the calls, to the nearest integer."""

    of: str


@dataclass(frozen=True, slots=True)
class Share:
    """A share of ``part``, a column, in the sum of it over all rows (of a tree: over its roots).

    Or in another whole: ``of``, the sum of another column; ``above``, the part of the row above, where there is one;
    ``whole``, which tells that of one rank from trace, request and the view's table, and is added up over ranks (None:
    the sum); ``column``, of the same row. Without ``part`` it is the share times that column, which is exact.
    """

    part: str | None = None
    of: str | None = None
    above: bool = False
    whole: Callable[..., int | None] | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    ``title`` is the English heading, without the unit. ``merge`` says how a column merges over ranks ("": keys and
    descriptions tell rows apart, measures are summed). ``exact``: a process repeats it exactly. ``per_step``: a sum
    over the chosen steps, which an average divides; ``adds_up``: its rows may be added up, though no average divides
    them. ``of_capture``: an extreme, which only the whole capture tells. ``place``: only the host or only devices work
    in what it counts. ``own``, of a column of a tree that sums up all below a row: the column of the row's own part.
    ``by``: the groupings that add it (none: it is always there). ``words``: the values are words of ours, and not names
    (or those of them that are), or sentences. ``device_values``: the values of rows in which only a device works.
    ``quantity``: columns of one quantity are shown in one unit (without it, the name tells). ``noun`` completes the
    heading of a size in a sentence. ``proper``: the title is a name, in no language.
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
    words: bool | tuple[str, ...] | Literal["sentences"] = False
    device_values: tuple[str, ...] = ()
    quantity: str = ""
    noun: str = "memory"
    proper: bool = False
    description: str = ""

    @property
    def sums(self) -> bool:
        """Whether rows may be added up."""
        return self.per_step or self.adds_up

    @property
    def rule(self) -> Rule | Average | Share:
        """How it merges over ranks."""
        return self.merge or (SUM if self.kind == MEASURE else APART)


def duration(name: str, title: str, **how: Any) -> Column:
    """A time in ns."""
    return Column(name, title, "ns", **how)


def size(name: str, title: str, **how: Any) -> Column:
    """Bytes, which a process repeats exactly."""
    return Column(name, title, "bytes", **{"exact": True, **how})


def rate(name: str, title: str, **how: Any) -> Column:
    """Bytes per second."""
    return Column(name, title, "bytes_per_s", **how)


def share(name: str, title: str, merge: Share | Literal[""] = "", **how: Any) -> Column:
    """A part of a whole: 1 is all of it."""
    return Column(name, title, "ratio", merge=merge, **how)


def operations(name: str, title: str, **how: Any) -> Column:
    """FLOPs, which a process repeats exactly."""
    return Column(name, title, "flops", **{"exact": True, **how})


def count(name: str, title: str, **how: Any) -> Column:
    """How many."""
    return Column(name, title, "count", **how)


def key(name: str, title: str, **how: Any) -> Column:
    """What tells rows apart: names or numbers."""
    return Column(name, title, kind=KEY, **how)


def description(name: str, title: str, **how: Any) -> Column:
    """What names something of a row, and tells rows apart where they are split by it."""
    return Column(name, title, kind=DESCRIPTION, **how)


def text(name: str, title: str, **how: Any) -> Column:
    """What is said of a row."""
    return Column(name, title, kind=TEXT, **how)


def words(name: str, title: str, **how: Any) -> Column:
    """What tells rows apart, in words of ours."""
    return Column(name, title, kind=KEY, **{"words": True, **how})


def statistics(what: str, title: str, place: Place, per_step: bool = True) -> tuple[Column, Column, Column, Column]:
    """Total, average, smallest and largest time of a call: ``total_{what}_ns`` …"""
    total = f"total_{what}_ns"
    return (
        duration(total, f"Total {title}", place=place, per_step=per_step),
        duration(f"avg_{what}_ns", f"Avg {title}", place=place, merge=Average(total)),
        duration(f"min_{what}_ns", f"Min {title}", place=place, merge=MIN, of_capture=True),
        duration(f"max_{what}_ns", f"Max {title}", place=place, merge=MAX, of_capture=True),
    )


MAKERS: Final = ("Column", "duration", "size", "rate", "share", "operations", "count", "key", "description", "text",
                 "words")  # fmt: skip
"""Functions whose second argument is a heading."""


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """The columns by their names."""
    return {column.name: column for column in columns}


def column(columns: Iterable[Column], name: str) -> Column:
    """The declared column of this name; without one what the name says."""
    return next((known for known in columns if known.name == name), None) or named(name)


def keys(columns: Iterable[Column], table: pd.DataFrame, by: Sequence[str] = ()) -> list[str]:
    """The columns of the table that tell its rows apart, in their order; ``by``: the groupings that rows are split by
    (with or without their arguments).

    Of columns without a declaration those before the first that measures; descriptions, too, where rows have no name.
    """
    declared, asked = by_name(columns), {item.partition("=")[0] for item in by}
    found: list[str] = []
    measured = False
    for name in map(str, table.columns):
        known = declared.get(name) or named(name)
        if name not in declared:
            numeric = name not in VOCABULARY and pd.api.types.is_numeric_dtype(table[name])
            measured |= numeric or known.kind in (MEASURE, POSITION)
        describes = known.kind == DESCRIPTION
        if name in declared:
            told = known.kind == KEY or (describes and not asked.isdisjoint(known.by))
        else:
            told = name in asked or (not measured and not (describes and "name" in table.columns))
        if told:
            found.append(name)
    return found


def called(columns: Iterable[Column], name: str, shown: Iterable[str]) -> tuple[str, ...]:
    """Those of the columns ``shown`` that ``name`` means: the one of this name, or those that the grouping adds."""
    shown = tuple(shown)
    if name in shown:
        return (name,)
    return tuple(known.name for known in columns if name in known.by and known.name in shown)


# What many views have.
DEPTH: Final = Column("depth", "Depth", kind=KEY)
NAME: Final = key("name", "Name")
OP_NAME: Final = description("op_name", "Op name", description="the canonical operator")
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
"""What a column of this name is where nothing else is declared."""
BY: Final = {
    "shape": (SHAPES,),
    "stack": (key("stack", "Stack"),),
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
"""What the groupings that several views know add to a table. A view's own groupings are declared with it."""


def added_by(groupings: Iterable[str]) -> Iterator[Column]:
    """The columns that groupings of :data:`BY` add."""
    for grouping in groupings:
        yield from (replace(known, by=(grouping,)) for known in BY.get(grouping, ()))


_STATISTICS: Final = frozenset(
    ("total", "self", "avg", "mean", "median", "min", "max", "base", "other", "difference", "before", "now", "dur",
     "low", "high", "noise")
)  # fmt: skip
"""Words of names that do not change what is measured, only which number of it is told."""
_PARTS: Final = frozenset(("count_effect", "per_call_effect", "time_so_far"))
"""The same of several words: what a difference is made of, and where it has led to."""
_TERMS: Final = frozenset(("base", "other", "difference"))
_SUFFIXES: Final[tuple[Unit, ...]] = ("bytes_per_s", "tflop_per_s", "gb_per_s", "ratio", "bytes", "ns", "flops")
_BARE: Final = {"ns": "Time", "bytes": "Size", "bytes_per_s": "Bandwidth", "ratio": "Share", "gb_per_s": "Bandwidth",
                "tflop_per_s": "Operations"}  # fmt: skip
_EXACT: Final = ("calls", "steps", "blocks", "allocations", "frees", "bytes", "flops")
_EXTREMES: Final = frozenset(("min", "max", "peak"))
_POSITIONS: Final = ("start_ns", "time_ns", "end_ns", "peak_time_ns")
_MEASURES: Final = ("per_s", "calls", "steps")
_SPELLED: Final = {"dur": "duration", "flops": "FLOPs"} | {
    word: word.upper() for word in ("cpu", "gpu", "npu", "id", "pid", "tid", "utc")
}
_PLACES: Final = ("cpu", "gpu", "npu", "device")


def is_term(known: Column) -> bool:
    """Return whether a column is a term of a difference: base, other, difference, and what it is made of."""
    return _stem(known.name, known.unit) in _PARTS or not _TERMS.isdisjoint(known.name.split("_"))


def quantity(known: Column) -> tuple[str, str]:
    """What a column measures, the same for all its statistics: ``min_cpu_ns`` and ``total_cpu_ns`` → ("ns", "cpu")."""
    if known.quantity:
        return known.unit, known.quantity
    stem = _stem(known.name, known.unit)
    return known.unit, "" if stem in _PARTS else "_".join(w for w in stem.split("_") if w not in _STATISTICS)


def named(name: str) -> Column:
    """A column without a declaration, understood by its name alone. This is the one place where names tell:

    - the end of it its unit (``_ns``, ``_bytes``, ``_bytes_per_s``, ``_ratio``, ``_flops``; see :data:`Unit`),
    - the whole of it its kind where the vocabulary has it; what has a unit is a measure, numbers of a table are too,
    - ``min_…`` and ``max_…`` the smallest and the largest of all ranks, ``avg_x`` is ``total_x`` over the calls,
    - ``cpu`` and ``device`` where it was measured, ``peak`` that only the whole capture tells it,
    - its words what it is called.
    """
    if name in VOCABULARY:
        return VOCABULARY[name]
    unit: Unit = next((end for end in _SUFFIXES if name == end or name.endswith(f"_{end}")), "")
    if name in _POSITIONS:
        return Column(name, _title(name, unit), unit, POSITION, of_capture=name.startswith("peak"))
    measures = unit != "" or name in _MEASURES
    merge: Any = {"min": MIN, "max": MAX, "avg": Average("total" + name[3:])}.get(name.split("_")[0], "")
    return Column(
        name,
        _title(name, unit),
        unit,
        MEASURE if measures else KEY,
        merge=merge if measures else "",
        exact=name.endswith(_EXACT),
        of_capture=not _EXTREMES.isdisjoint(name.split("_")),
        place=DEVICE if "device" in name else HOST if "cpu" in name else "",
    )


def _stem(name: str, unit: str) -> str:
    """The name without its unit: ``self_cpu_ns`` → ``self_cpu``."""
    return name.removesuffix(unit).rstrip("_") if unit in _SUFFIXES else name


def _title(name: str, unit: str) -> str:
    """``self_cpu_ns`` → ``Self CPU``."""
    stem = name if unit == "flops" else _stem(name, unit)
    if not stem:
        return _BARE.get(unit, name)
    if unit == "bytes" and stem.split("_")[-1] in _PLACES:  # a place alone would be read as its time
        stem += "_memory"
    title = " ".join(_SPELLED.get(word, word) for word in stem.split("_"))
    return title[:1].upper() + title[1:]
