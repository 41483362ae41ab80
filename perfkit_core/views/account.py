"""View ``account``: what became of the events of the source. The numbers of events add up to all events in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.trace.model import account
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.columns import count, duration, key
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select


def reduce(trace: Trace, request: ViewRequest) -> list[dict[str, Any]]:
    select.in_steps(trace, request)  # raises UsageError if a requested step was not recorded
    entries: list[dict[str, Any]] = msgspec.to_builtins(trace.account)
    return entries


def merge(partials: Sequence[list[dict[str, Any]]], request: ViewRequest) -> pd.DataFrame:
    """Return one row per outcome, type, category and process, with :data:`COLUMNS`. Rows of the event table come first,
    then metadata and links, then events that are left out, each with the most events first."""
    entries = account.joined([msgspec.convert(part, list[ReadEvents]) for part in partials])
    order = {became: number for number, became in enumerate(account.READ)}
    entries = tuple(sorted(entries, key=lambda entry: (order.get(entry.became, len(order)), -entry.count)))
    rows = [
        (entry.became, entry.type, entry.category, entry.process, entry.count,
         entry.dur_ns if entry.became == account.ROW else None)
        for entry in entries
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS], dtype=object)
    return table.astype({"events": "int64", "dur_ns": "Int64"})


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    return merge([reduce(trace, request)], request)


COLUMNS = (
    key("became", "Outcome", words="ids"),
    key("type", "Type"),
    key("category", "Recorded category"),
    key("process", "Process or device"),
    count("events", "Events"),
    duration("dur_ns", "Sum of durations"),
)
VIEW = View(
    name="account",
    title="Account of the events",
    description="what became of each event of the source: a row of the event table, metadata, a link, or left out",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message(
        "an older perfkit made this recording, and did not count the events that it read"
    ),
    reduction=Reduction(reduce, merge),
)
