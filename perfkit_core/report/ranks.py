"""The ranks of a job side by side: a heat map of their steps, and who keeps the others waiting.

Which ranks keep the others waiting, or are slower on their own where nobody knows who waits for whom?

Many ranks and steps in a table that a page can hold: one row for a stretch of steps of a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.language.messages import Message, Text, message, say
from perfkit_core.model.meta import EDGES, spelled
from perfkit_core.report.model import Chart, Section
from perfkit_core.views.tables import rounded_division

MATTERS: Final = 0.01
"""Share of the step time of all ranks below which waiting is left to the table."""
SLOWER: Final = 0.05
"""From this share above the median rank on, a rank is slower on its own."""
OUTLYING: Final = 5
"""A rank that is slower on its own is so by this many times what ranks usually differ by."""
NAMED: Final = 3
"""Ranks that get a sentence; the tables have all."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ranks to point at, the worst first, and sentences on them."""

    ranks: tuple[int, ...]
    lines: tuple[Message, ...]


def stragglers_found(ranks: pd.DataFrame, waiting: pd.DataFrame) -> Found:
    """From the tables of the views ranks and stragglers. A straggler causes a quarter of all waiting or more (of few
    ranks more than half as much again as its part would be); nobody is one where less than a hundredth of the step time
    is waited, nor where most of what it causes is within what clocks contradict themselves by. Ranks without a
    collective that others have, too, are left out and told. Where ranks are missing at collectives, what is waited is
    told as the least that it can be, and nobody is said to be no straggler."""
    if ranks.empty:
        return Found((), ())
    own = own_times(ranks)
    waiting = waiting[waiting["collectives"] > 0] if len(waiting) else waiting
    if waiting.empty:
        return _slower(own)
    known = ranks[ranks["rank"].isin(waiting["rank"])]
    whole = int(waiting["caused_wait_ns"].sum())
    matters = whole >= MATTERS * float(known["dur_ns"].sum())
    share = max(0.25, 1.5 / len(waiting))
    late = waiting[waiting["caused_wait_ns"] >= share * whole] if matters else waiting.iloc[:0]
    doubtful = 2 * late["doubtful_ns"] > late["caused_wait_ns"]
    unsure, late = late[doubtful], late[~doubtful]
    named = tuple(int(rank) for rank in late["rank"].tolist())
    unknown = sorted(set(ranks["rank"].tolist()) - set(waiting["rank"].tolist()))
    at_least = bool(waiting["incomplete"].sum() > EDGES * waiting["collectives"].sum())
    lines = [*_late(late, whole, at_least), *_unsure(unsure)] or _nobody(known, whole, len(unknown), at_least)
    return Found(named, (*lines, *_own(own, [rank for rank in named if rank in own]), *_unknown(unknown, len(own))))


def own_times(ranks: pd.DataFrame) -> dict[int, tuple[float, float]]:
    """Rank → the own time of an average step in ns, and by what share it is above that of the median rank."""
    average = ranks.groupby("rank")["own_time_ns"].mean().astype("float64")
    middle = float(average.sort_values().iloc[(len(average) - 1) // 2]) or 1.0
    return {int(rank): (time, time / middle - 1) for rank, time in zip(average.index, average.tolist(), strict=True)}


def _late(late: pd.DataFrame, whole: int, at_least: bool) -> Iterator[Message]:
    names = ("rank", "last", "collectives", "caused_wait_ns")
    for rank, last, collectives, caused in zip(*(late[name].head(NAMED).tolist() for name in names), strict=True):
        values = {"rank": rank, "last": last, "collectives": collectives, "time": caused, "share": caused / whole}
        if at_least:
            yield message(
                "Of the ranks that can be compared, rank {rank} keeps the others waiting: it came last to {last} of "
                "{collectives} collectives, and they waited at least {time:ns}, {share:ratio} of all waiting that is "
                "known.",
                **values,
            )
        else:
            yield message(
                "Rank {rank} keeps the others waiting: it came last to {last} of {collectives} collectives, and they "
                "waited {time:ns} for it, {share:ratio} of all waiting.",
                **values,
            )


def _unsure(late: pd.DataFrame) -> Iterator[Message]:
    for rank, caused in zip(*(late[name].head(NAMED).tolist() for name in ("rank", "caused_wait_ns")), strict=True):
        yield message(
            "Whether rank {rank} keeps the others waiting is not known: most of the {time:ns} that they seem to wait "
            "for it is within what the clocks of the ranks contradict each other by.",
            rank=rank, time=caused,
        )  # fmt: skip


def _nobody(ranks: pd.DataFrame, whole: int, unknown: int, at_least: bool) -> Iterator[Message]:
    values = {"time": whole, "share": whole / float(ranks["dur_ns"].sum() or 1)}
    if at_least:
        yield message(
            "Which rank keeps the others waiting is not known, as some cannot be compared or were not read: the rest "
            "together waited at least {time:ns} for each other, {share:ratio} of their step time.",
            **values,
        )
    elif unknown:
        yield message(
            "No single one of the {known} ranks whose waiting is known keeps the others waiting: together they waited "
            "{time:ns} for each other, {share:ratio} of their step time.",
            **values,
            known=ranks["rank"].nunique(),
        )
    else:
        yield message(
            "No single rank keeps the others waiting: together they waited {time:ns} for each other, {share:ratio} of "
            "their step time.",
            **values,
        )


def _unknown(unknown: Sequence[int], count: int) -> Iterator[Message]:
    if unknown:
        yield message(
            "How long {unknown} of {count} ranks wait for others is not known ({ranks}): their clocks cannot be "
            "compared with those of others.",
            unknown=len(unknown), count=count, ranks=spelled(unknown),
        )  # fmt: skip


def _own(own: Mapping[int, tuple[float, float]], named: Sequence[int]) -> Iterator[Message]:
    """Whether those that come late do more than others."""
    for rank in named[:NAMED]:
        time, over = own[rank]
        if over > 0:
            yield message(
                "Without communication that nothing hides, a step of rank {rank} takes {time:ns}, {more:ratio} above "
                "the median rank.",
                rank=rank, time=time, more=over,
            )  # fmt: skip
        else:
            yield message(
                "Without communication that nothing hides, a step of rank {rank} takes {time:ns}, no more than that of "
                "the median rank: it begins late rather than working longer.",
                rank=rank, time=time,
            )  # fmt: skip


def _slower(own: Mapping[int, tuple[float, float]]) -> Found:
    least = max(SLOWER, OUTLYING * _spread([over for _, over in own.values()]))
    slow = sorted((rank for rank, (_, over) in own.items() if over >= least), key=lambda rank: -own[rank][0])
    lines = [_said(rank, *own[rank]) for rank in slow[:NAMED]]
    if not lines:
        times = [time for time, _ in own.values()]
        text = message(
            "No rank is much slower than the others: without communication that nothing hides their steps take "
            "{low:ns} to {high:ns}.",
            low=min(times),
            high=max(times),
        )
        lines = [text]
    return Found(tuple(slow), tuple(lines))


def _spread(over: Sequence[float]) -> float:
    """The median distance from the median: of many ranks some are always slower than most."""
    distances = sorted(map(abs, over))
    return distances[(len(distances) - 1) // 2]


def _said(rank: int, time: float, over: float) -> Message:
    return message(
        "Rank {rank} is slower on its own: without communication that nothing hides, its steps take {time:ns}, "
        "{more:ratio} above the median rank.",
        rank=rank, time=time, more=over,
    )  # fmt: skip


MOST: Final = 5000
"""Rows."""


def fitting(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table of the view ranks, and "" ; or with ``step`` a stretch (``8–15``), all times the average of its steps
    (to the nearest ns, of those that are known), and a sentence on that."""
    if len(table) <= MOST:
        return table, ""
    steps = np.unique(table["step"].to_numpy(np.int64))
    stretches = max(MOST // table["rank"].nunique(), 1)
    long = -(-len(steps) // stretches)
    labels = _labels(steps, long)
    at = np.searchsorted(steps, table["step"].to_numpy(np.int64)) // long
    found = _averaged(table, at)
    found.insert(1, "step", [labels[stretch] for stretch in found.pop("stretch")])
    note = say("Each row is the average of up to {count} steps; single ones: perfkit summary --view ranks.", count=long)
    return found, note


def _labels(steps: np.ndarray, long: int) -> list[str]:
    parts = [steps[begin : begin + long] for begin in range(0, len(steps), long)]
    return [str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts]


def _averaged(table: pd.DataFrame, stretch: np.ndarray) -> pd.DataFrame:
    times = [str(name) for name in table.columns if str(name).endswith("_ns")]
    grouped = table[["rank", *times]].assign(stretch=stretch).groupby(["rank", "stretch"], sort=True)
    total, known = grouped.sum(min_count=1), grouped.count()
    columns = {name: _average(total[name], known[name]) for name in times}
    return pd.DataFrame(columns, index=total.index).reset_index()


def _average(total: pd.Series[int], known: pd.Series[int]) -> pd.Series[int]:
    whole = rounded_division(total.fillna(0).to_numpy(np.int64), known.to_numpy(np.int64))
    return pd.Series(whole, index=total.index).astype("Int64").where(known > 0)


VIEW: Final = "ranks"
_PARTS: Final = 6
"""The columns before the parts of a step."""


def with_picture(section: Section, tables: Mapping[str, pd.DataFrame]) -> Section:
    """The section of the view with its picture and sentences: ranks by steps, or by the parts of the only step.

    Where there are too many cells, they are averages of several steps.
    """
    if section.table.empty:
        return section
    found = stragglers_found(section.table, tables.get("stragglers", pd.DataFrame()))
    parts = tuple(map(str, section.table.columns[_PARTS:]))
    if section.table["step"].nunique() == 1:
        chart = Chart("heatmap", "", parts, by="rank", marked=found.ranks)
        return replace(section, lines=found.lines, chart=chart)
    table, note = fitting(section.table)
    numbers = ("own_time_ns", "dur_ns", "own_time_over_median_ns", "dur_over_median_ns", *parts)
    chart = Chart("heatmap", "step", numbers, by="rank", marked=found.ranks)
    return replace(section, table=table, note=f"{section.note} {note}".strip(), lines=found.lines, chart=chart)


def in_short(sections: Iterable[Section]) -> tuple[Text, ...]:
    """What a hurried reader needs to know of the ranks: the worst of those that are pointed at."""
    return tuple(one.lines[0] for one in sections if one.name == VIEW and one.chart and one.chart.marked)
