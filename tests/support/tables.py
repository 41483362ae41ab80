"""Tables of views and events as tuples of cells, and as texts in golden files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from tests.support.golden import check_golden


def view_table(view: View | str, trace: Trace, columns: str = "", **request: Any) -> pd.DataFrame:
    """Return the table of a view, or of the view of this name. ``columns`` are those to return, if not all."""
    if isinstance(view, str):
        view = get_plugins().views()[view]
    table = table_of(view, trace, ViewRequest(**request))
    return table[columns.split()] if columns else table


def view_rows(view: View | str, trace: Trace, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    """Return the cells of some columns of the table of a view, one tuple for each row. Unknown cells are None."""
    table = view_table(view, trace, columns, **request).astype(object)
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in table.itertuples(index=False)]


def check_tables(name: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Compare tables, each after its heading, with the golden file ``name``."""
    check_golden(name, "\n".join(f"# {heading}\n{table_text(table)}" for heading, table in tables.items()))


def check_events(name: str, traces: Mapping[str, Trace], columns: str, without: str = "") -> None:
    """Compare columns of the events of traces, and their data-quality warnings, with the golden file ``name``.
    ``parent`` and ``launched_by`` have the names of events. ``without`` has codes of warnings to leave out."""
    texts = []
    for heading, trace in traces.items():
        names = trace.events["name"].to_pylist()
        cells = {name: trace.events[name].to_pylist() for name in ("name", *columns.split())}
        for reference in {"parent", "launched_by"} & set(cells):
            cells[reference] = [names[row] if row >= 0 else None for row in cells[reference]]
        text = table_text(pd.DataFrame(cells, dtype=object))
        for each in trace.quality:
            if each.code not in ("event-account", *without.split()):
                text += f"{'note' if each.note else 'warning'} {each.code}: {each.message}\n"
        texts.append(f"# {heading}\n{text}")
    check_golden(name, "\n".join(texts))


def table_text(table: pd.DataFrame) -> str:
    """Return a table as text. Unknown cells are ``-``, and columns without a known cell are left out."""
    if table.empty:
        return "(no rows)\n"
    columns = [[str(name), *map(_text, table[name])] for name in table if table[name].notna().any()]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    rows = ([f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)


def _text(cell: Any) -> str:
    if pd.isna(cell):
        return "-"
    return f"{cell:.9g}" if isinstance(cell, float) else str(cell)
