"""The account of a reader: what became of each event of its source. The counts of an account add up to the number of
events in the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

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
        sums[key] = count + entry.count, dur_ns + entry.dur_ns
    return tuple(
        ReadEvents(became or "", count, of_type, category, process, dur_ns)
        for (became, of_type, category, process), (count, dur_ns) in sums.items()
    )


def with_left_out(account: Sequence[ReadEvents], became: str, count: int) -> tuple[ReadEvents, ...]:
    """Return the account with ``count`` more events that are left out."""
    return (*account, ReadEvents(became, count)) if count else tuple(account)


def total(account: Iterable[ReadEvents], *became: str) -> int:
    """Return the number of events that became one of ``became``, by default of all events."""
    return sum(entry.count for entry in account if not became or entry.became in became)
