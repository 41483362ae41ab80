"""Tables in plain text: which columns fit, in which order, their alignment, bars and colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd
from rich.cells import cell_len, set_cell_size

from perfkit_core.base.language.shortening import cut
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.table_columns import ShownColumn, by_worth, columns, is_measure
from perfkit_core.trace.model.columns import DESCRIPTION, MEASURE, SHAPES
from perfkit_core.trace.model.report_data import Section

GAP: Final = "  "
_MAX_TEXT_WIDTH: Final = 80
_MIN_NAME_WIDTH: Final = 24
_SHORT_TEXT_WIDTH: Final = 8
"""Maximum width of a short text column, such as a device. If space is short, wider text columns are left out first."""
_SENTENCES: Final = "note"
_DATE: Final = "_utc"
_BAR: Final = 8
"""Width of a bar. It takes precedence over columns of little worth."""
_BLOCKS: Final = " ▏▎▍▌▋▊▉█"
_DIFFERENCE: Final = "difference"
"""First word of the names of columns with differences between runs."""


@dataclass(frozen=True, slots=True)
class Style:
    """Escape codes of a terminal. If ``on`` is false, texts are returned unchanged."""

    on: bool = False

    def bold(self, text: str) -> str:
        return self._code(text, 1)

    def dim(self, text: str) -> str:
        return self._code(text, 2)

    def red(self, text: str) -> str:
        return self._code(text, 31)

    def green(self, text: str) -> str:
        return self._code(text, 32)

    def yellow(self, text: str) -> str:
        return self._code(text, 33)

    def cyan(self, text: str) -> str:
        return self._code(text, 36)

    def _code(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text.strip() else text


def table_lines(
    section: Section, rows: pd.DataFrame, width: int | None, style: Style
) -> tuple[Iterator[str], list[ShownColumn]]:
    """Return the lines of the table with the given rows of a section, and the columns that did not fit.

    With a width, columns that are 0 in all rows are left out, and numbers are ordered by their worth, unless the user
    chose the columns."""
    formatted = columns(rows, section.columns, unit=section.unit)
    if width is not None and not section.chosen:
        shown = [column for column in formatted if column.declared.compared or not _is_zero(column)]
        formatted = _short_labels(by_worth(shown))
    barred = None if width is None else bar_column(formatted)
    fitted, left_out = fitting(formatted, width, barred, section.chosen)
    return _table(fitted, width, style, barred if barred in fitted else None), left_out


def without_zeros(section: Section) -> Section:
    """Return the section without the rows whose measures are all 0 or missing. Only a section with a limit and with
    measures that sum over rows loses rows."""
    declared = (section.column(str(name)) for name in section.table.columns)
    # a row with counts only, such as steps, is a row of zeros
    measures = [column for column in declared if column.kind == MEASURE and column.unit not in ("", "count")]
    if section.limit is None or not any(column.sums for column in measures):
        return section
    values = section.table[[column.name for column in measures]].fillna(0)
    return replace(section, table=section.table[(values != 0).any(axis=1)])


def _short_labels(shown: Sequence[ShownColumn]) -> list[ShownColumn]:
    """Return the columns. The share of the column on its left, such as "Self CPU (%)" after "Self CPU (ms)", is "%"."""
    before = [None, *shown]
    return [
        replace(column, label="%")
        if left and column.declared.unit == "ratio" and column.declared.title == left.declared.title
        else column
        for left, column in zip(before, shown, strict=False)
    ]


def fitting(
    shown: Sequence[ShownColumn], width: int | None, barred: ShownColumn | None = None, chosen: bool = False
) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """Return two lists: the columns that fit the terminal, and the columns that are left out.

    At least two columns are kept. Descriptions and long texts are left out first. Exceptions are the first long text,
    the shapes if they are the second, and groupings, because rows of one operator may differ only in these. If the user
    chose the columns, the last ones are left out first."""
    if width is None:
        return list(shown), []
    texts = [column for column in shown if not column.numeric]
    long = [column for column in texts if not column.name.endswith(_DATE)]  # a date is worth its width
    long = [column for column in long if max(map(cell_len, column.cells), default=0) > _SHORT_TEXT_WIDTH]
    spared = 2 if long[1:] and long[1].name == SHAPES.name else 1
    later = [*long[spared:], *(c for c in texts if c.declared.kind == DESCRIPTION and c not in long)]
    later = [column for column in later if not column.declared.by]
    # Keys come first: a table whose columns of numbers fit, but not the name of the row, says nothing.
    by_worth = [*(column for column in texts if column not in later), *(c for c in shown if c.numeric), *later]
    by_priority = shown if chosen else by_worth
    needed = -len(GAP)
    names: set[str] = set()
    for column in by_priority:
        size = full_width(column) + (_BAR + 1 if column is barred else 0)
        needed += len(GAP) + (size if column.numeric else min(size, _MIN_NAME_WIDTH))
        if needed > width and len(names) > 1:
            break
        names.add(column.name)
    return [c for c in shown if c.name in names], [c for c in shown if c.name not in names]


def name_width(shown: Sequence[ShownColumn], width: int | None, bars: int = 0) -> int:
    """Return the maximum width of a text column. The columns of numbers and the bars take their width first."""
    if width is None:
        return _MAX_TEXT_WIDTH
    names = sorted(full_width(column) for column in shown if not column.numeric)
    free = width - bars - len(GAP) * (len(shown) - 1) - sum(full_width(column) for column in shown if column.numeric)
    for index, size in enumerate(names):  # Short columns get their full width. Long columns share the rest.
        share = free // (len(names) - index)
        if size > share:
            return max(_MIN_NAME_WIDTH, share)
        free -= size
    return max(names, default=_MAX_TEXT_WIDTH)


def full_width(column: ShownColumn) -> int:
    """Return the width of a column with its heading, in terminal cells, if nothing is shortened."""
    return max(map(cell_len, (visible(column.label), *column.cells)))


def bar_column(shown: Sequence[ShownColumn]) -> ShownColumn | None:
    """Return the column with bars: the differences between runs, else the first column with shares, if any."""
    for column in shown:
        if column.numeric and column.name.startswith(_DIFFERENCE):
            return column
    return next((column for column in shown if column.shares), None)


def _table(shown: list[ShownColumn], width: int | None, style: Style, barred: ShownColumn | None) -> Iterator[str]:
    # A table library would take half a millisecond per row, and tables have tens of thousands of rows.
    longest = name_width(shown, width, _BAR + 1 if barred else 0)
    aligned = []
    for column in shown:
        texts = [visible(column.label), *column.cells]
        if not column.numeric:
            uncut = column.name == _SENTENCES and width is None
            texts = [cut(text, full_width(column) if uncut else longest) for text in texts]
        size = max(map(cell_len, texts))
        if column.numeric:
            aligned.append([" " * (size - cell_len(text)) + text for text in texts])
        else:
            aligned.append([set_cell_size(text, size) for text in texts])
        if column is barred:
            heading, *values = aligned[-1]
            bars = _bars(column, style)
            aligned[-1] = [f"{heading} {' ' * _BAR}", *(f"{v} {bar}" for v, bar in zip(values, bars, strict=True))]
    head, *rows = (GAP.join(row).rstrip() for row in zip(*aligned, strict=True))
    yield style.bold(head)
    yield style.dim("─" * (sum(cell_len(column[0]) for column in aligned) + len(GAP) * (len(aligned) - 1)))
    yield from rows


def _bars(column: ShownColumn, style: Style) -> Iterator[str]:
    """Yield a bar for each row. The bar of a difference is red if the time increases, and green if it decreases."""
    if column.shares is not None and not column.name.startswith(_DIFFERENCE):
        yield from (style.cyan(_bar(share or 0)) for share in column.shares)
        return
    values = [float(value or 0) for value in column.order]
    largest = max(map(abs, values), default=0) or 1
    for value in values:
        yield (style.red if value > 0 else style.green)(_bar(abs(value) / largest))


def _bar(share: float) -> str:
    """Return a bar of _BAR cells. Any share above 0 is visible."""
    eighths = max(round(8 * _BAR * min(share, 1.0)), int(share > 0))
    return ("█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()).ljust(_BAR)


def _is_zero(column: ShownColumn) -> bool:
    return is_measure(column) and bool(column.order) and not any(float(value or 0) for value in column.order)
