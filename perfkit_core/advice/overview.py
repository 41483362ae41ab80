"""What does each advice make of a step, and all of them together? A row each, with the picture of their intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from perfkit_core.advice.model import Advices, Prediction
from perfkit_core.advice.table import frame, numbers, row
from perfkit_core.language import mark, say
from perfkit_core.language.units import format_ratio
from perfkit_core.report.model import Chart, Section

_NAMES: Final = (
    mark("now, and its 80% interval"),
    mark("afterwards: likely, and p10 to p90"),
    mark("the median at best, by itself"),
)
_COLUMNS: Final = (
    "id", "advice", "severity", "saving_ns", "saving_ratio", "place", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns",
    "p50_ns", "p90_ns", "floor_ns", "method",
)  # fmt: skip


def overview(found: Advices) -> Section:
    """All advice, the largest saving first, then what can be combined as one more row (without an id).

    Columns: id, advice (number, title and change; the question where one was asked), severity, then as in
    :func:`perfkit_core.advice.table.table`.
    """
    made = frame([*map(row, found.advice), *_together(found)])
    made.insert(1, "advice", [*_labels(found), *(one["title"] for one in _together(found))])
    return Section(
        "advice",
        say("Advice"),
        made[list(_COLUMNS)],
        note=say("Times of a step, of the whole recording where no steps were recorded; savings are of the median."),
        empty=say("nothing was found that would save time"),
        chart=intervals("advice"),
    )


def intervals(x: str) -> Chart:
    """The picture of a table with the columns of predictions, each row called by its column ``x``."""
    now, after, floor = ("step_p10_ns", "step_ns", "step_p90_ns"), ("p10_ns", "p50_ns", "p90_ns"), ("floor_ns",) * 3
    return Chart("intervals", x, (*now, *after, *floor), names=_NAMES)


def _labels(found: Advices) -> Iterator[str]:
    for number, one in enumerate(found.advice, 1):
        asked = f"{found.asked[number - 1]}: " if found.asked else ""
        yield _changed(f"{number}. {asked}{one.title}", one.prediction)


def _changed(text: str, prediction: Prediction) -> str:
    """With what becomes of the time: ``1. Load data in worker processes: −34%``."""
    if prediction.saving_ns is None:
        return text
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    return f"{text}{say(': ')}{'−' if share >= 0 else '+'}{format_ratio(abs(share))}"


def _together(found: Advices) -> list[dict[str, Any]]:
    if found.combined is None or len(found.together) < 2:
        return []
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    title = _changed(_called(count, savings), found.combined)
    return [{"id": pd.NA, "title": title, "severity": pd.NA, **numbers(found.combined)}]


def _called(count: int, savings: int) -> str:
    if count < savings:
        return say("The {count} that can be combined", count=count)
    return say("Both together") if count == 2 else say("All {count} together", count=count)
