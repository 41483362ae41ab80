"""The account of a reader: what became of each event of its source. The counts of an account add up to the number of
events in the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from perfkit_core.trace.model.schema import Column
from perfkit_core.trace.model.side_table import SideTable, structs

ROW: Final = "row"
METADATA: Final = "metadata"
LINK: Final = "link"
READ: Final = (ROW, METADATA, LINK)
"""What becomes of events that are used: a row of the event table, metadata, or a link between events."""


class ReadEvents(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events that became the same. ``became`` is one of READ, or the reason why the events are left out.

    - ``type``: the source's word for the type of the events, such as ``ph`` in a Chrome trace.
    - ``category``: the category of the events.
    - ``process``: the name or number of the process of host events, or the device.
    - ``dur_ns``: the sum of their durations.
    """

    became: str
    count: int
    type: str | None = None
    category: str | None = None
    process: str | None = None
    dur_ns: int = 0


SUM: Final = "sum_of_events"
"""What became of events that are sums of other events: they are left out."""


def joined(accounts: Iterable[Sequence[ReadEvents]]) -> tuple[ReadEvents, ...]:
    """Return the account of several sources."""
    sums: dict[tuple[str | None, ...], tuple[int, int]] = {}
    for entry in (entry for account in accounts for entry in account):
        key = (entry.became, entry.type, entry.category, entry.process)
        count, dur_ns = sums.get(key, (0, 0))
        sums[key] = count + entry.count, min(dur_ns + entry.dur_ns, 2**63 - 1)
    return tuple(
        ReadEvents(became or "", count, of_type, category, process, dur_ns)
        for (became, of_type, category, process), (count, dur_ns) in sums.items()
    )


def of_table(table: pa.Table) -> tuple[ReadEvents, ...]:
    return tuple(structs(table, ReadEvents))


def to_table(account: Sequence[ReadEvents]) -> pa.Table:
    return TABLE.of_structs(account)


TABLE: Final = SideTable(
    "account",
    "what became of the events of the source; the counts add up to the number of its events",
    (
        Column("became", pa.string(), False, "row, metadata, link, or the reason why the events are left out"),
        Column("count", pa.int64(), False, "number of events"),
        Column("type", pa.string(), True, "the source's word for the type of the events"),
        Column("category", pa.string(), True, "category of the events"),
        Column("process", pa.string(), True, "name or number of the process of host events, or the device"),
        Column("dur_ns", pa.int64(), False, "sum of the durations"),
    ),
    not_negative=frozenset({"count", "dur_ns"}),
    join=lambda tables: to_table(joined(map(of_table, tables))),
)


def with_left_out(account: Sequence[ReadEvents], became: str, count: int) -> tuple[ReadEvents, ...]:
    """Return the account with ``count`` more events that are left out."""
    return (*account, ReadEvents(became, count)) if count else tuple(account)


def total(account: Iterable[ReadEvents], *became: str) -> int:
    """Return the number of events that became one of ``became``, by default of all events."""
    return sum(entry.count for entry in account if not became or entry.became in became)
