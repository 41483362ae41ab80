"""The memory at the peak of two runs, by category and by the operator or line of code that allocated it.

The rows of each table sum to the peak of either run, so the differences sum to the difference of the peaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import SIDES, Message, mark, message, say
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, NAME, RANK, count, keys, size
from perfkit_core.trace.model.report_data import Section
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory import memory_blocks, memory_categories
from perfkit_core.views.merging import table_of

SHOWN: Final = 20
"""Number of rows of the table by operator."""
_RANK_AND_DEVICE: Final = (RANK.name, DEVICE_NAME.name)
_MEASURES: Final = ("bytes", "blocks")
COLUMNS: Final = (
    size("base_bytes", "Base", over="rows", quantity=""),
    size("other_bytes", "Other", over="rows", quantity=""),
    size("difference_bytes", "Difference", over="rows", quantity=""),
    count("base_blocks", "Base blocks", over="rows", quantity="blocks"),
    count("other_blocks", "Other blocks", over="rows", quantity="blocks"),
    count("difference_blocks", "Difference in blocks", over="rows", quantity="blocks"),
)


def sections(base: Trace, other: Trace, by: Sequence[str]) -> Iterator[Section]:
    """Yield the sections on memory if both runs recorded blocks with a history. ``by`` has groupings of the view
    memory_peak, which raises UsageError for other groupings."""
    if not (memory.has_peak(base) and memory.has_peak(other)):
        return
    for view, groupings in ((memory_categories.VIEW, ()), (memory_blocks.PEAK_VIEW, tuple(by))):
        table = _joined(view, base, other, ViewRequest(by=groupings))
        compared = {column.name for column in COLUMNS}
        columns = (*(column for column in view.columns if column.name not in compared), *COLUMNS)
        lines = tuple(_peaks(table)) if view is memory_categories.VIEW else ()
        note = say("The differences add up to the difference of the peaks.")
        yield Section(view.name, say(view.title), table, note, limit=SHOWN, lines=lines, columns=columns)


def _joined(view: View, base: Trace, other: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the rows of both runs, those with the largest differences first. Groupings replace the names. Rows without
    a value of the first grouping keep their name there."""
    sides = [table_of(view, trace, request) for trace in (base, other)]
    names = list(dict.fromkeys(name for side in sides for name in keys(view.columns, side, request.by)))
    if request.by:
        names.remove(NAME.name)
        first = next(name for name in names if name not in _RANK_AND_DEVICE)
        sides = [side.assign(**{first: side[first].astype(object).fillna(side[NAME.name])}) for side in sides]
    sums = [
        side.groupby(names, sort=False, dropna=False, observed=True)[list(_MEASURES)].sum().add_prefix(f"{run}_")
        for run, side in zip(SIDES, sides, strict=True)
    ]
    result = sums[0].join(sums[1], how="outer").fillna(0).astype("Int64").reset_index()
    for measure in _MEASURES:
        result[f"difference_{measure}"] = result[f"other_{measure}"] - result[f"base_{measure}"]
    result = result[[*names, *(column.name for column in COLUMNS)]]
    order = result["difference_bytes"].abs().sort_values(ascending=False, kind="stable").index
    result = result.loc[order].reset_index(drop=True)
    return result.drop(columns=[name for name in names if result[name].isna().all()])


def _peaks(table: pd.DataFrame) -> Iterator[Message]:
    key_columns = [name for name in _RANK_AND_DEVICE if name in table.columns]
    for group_key, rows in table.groupby(key_columns, sort=False, dropna=False):
        *rank, device = map(str, group_key)
        base, other, difference = (int(rows[f"{side}_bytes"].sum()) for side in (*SIDES, "difference"))
        text = mark("Peak of {device}: {base:bytes} in base, {other:bytes} in other ({difference:+bytes}).")
        name = message("rank {rank} {device}", rank=rank[0], device=device) if rank else device
        yield message(text, device=name, base=base, other=other, difference=difference)
