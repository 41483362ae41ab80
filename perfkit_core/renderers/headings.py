"""What columns are called, in the language of the moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from perfkit_core.language import in_english, say
from perfkit_core.table_columns import Column

_SORTS: Final = {
    "ns": in_english("time"),
    "bytes": in_english("memory"),
    "bytes_per_s": in_english("bandwidth"),
    "ratio": "%",
}


def heading(column: Column) -> str:
    """The heading of a column without its unit."""
    return column.title if column.proper else say(column.title)


def without_units(columns: Sequence[Column], others: Iterable[Column]) -> list[str]:
    """Headings for a sentence, each once.

    One that a column of ``others`` has too says what it counts; so does a share, unless that is of one of ``columns``.
    """
    taken = {column.title for column in others}
    whole = {column.title for column in columns if column.unit != "ratio"}

    def clear(column: Column) -> bool:
        return column.title in whole if column.unit == "ratio" else column.title not in taken

    return list(dict.fromkeys(_in_words(column) if clear(column) else _counted(column) for column in columns))


def _counted(column: Column) -> str:
    if column.unit not in _SORTS or column.name == column.unit:
        return heading(column)
    return say("{column} ({what})", column=heading(column), what=say(_SORTS[column.unit]))


def _in_words(column: Column) -> str:
    """``Allocated`` needs its unit to be understood, ``Allocated memory`` does not."""
    if column.unit != "bytes" or column.name == column.unit or column.title.endswith(" memory"):
        return heading(column)
    if column.noun == "size":
        return say("{column} size", column=heading(column))
    return say("{column} memory", column=heading(column))
