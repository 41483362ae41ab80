"""Facts about collectives in two side tables: one row for each event that describes a collective, and one for each
collective of which the device recorded a wait for another rank."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import TEXT
from perfkit_core.trace.model.schema import Column
from perfkit_core.trace.model.side_table import ROW, SideTable

HOST: Final = "host"
DEVICE: Final = "device"


class Collective(msgspec.Struct, frozen=True, omit_defaults=True):
    """Description of a collective. A field is None if the framework does not record it. :data:`TABLE` has the
    meanings."""

    name: str
    group: str | None = None
    members: str | None = None
    group_size: int | None = None
    elements: int | None = None
    dtype: str | None = None
    sequence: int | None = None
    on: str = DEVICE
    peer: int | None = None
    tag: int | None = None
    received: int | None = None
    received_rows: int | None = None
    sent: int | None = None


TABLE: Final = SideTable(
    "collectives",
    "what events describe collectives, and how",
    (
        ROW,
        Column("name", TEXT, False, "canonical name, such as all_reduce"),
        Column("group", TEXT, True, "name of the process group"),
        Column("members", TEXT, True, "distinguishes groups with the same name"),
        Column("group_size", pa.int64(), True, "number of ranks in the group"),
        Column("elements", pa.int64(), True, "number of elements in the message"),
        Column("dtype", TEXT, True, "type of the elements"),
        Column("sequence", pa.int64(), True, "number in the group, the same on all its ranks"),
        Column("on", TEXT, False, "host if the event itself communicates, device if the work that it launches does"),
        Column("peer", pa.int64(), True, "send and recv: the other rank"),
        Column("tag", pa.int64(), True, "send and recv: messages with different tags may overtake each other"),
        Column("received", pa.int64(), True, "all_to_all: number of elements that the rank receives"),
        Column("received_rows", pa.int64(), True, "all_to_all: size of their first dimension, such as the tokens"),
        Column("sent", pa.int64(), True, "all_to_all: number of elements that the rank sends"),
    ),
    words={"on": frozenset({HOST, DEVICE})},
)

AWAITED: Final = SideTable(
    "awaited_ranks",
    "which rank each collective on a device waits for last before it transfers data, as the device recorded it",
    (
        ROW,
        Column("awaited", pa.int64(), False, "rank whose arrival ends the wait"),
        Column("after_ns", pa.int64(), False, "time from the start of the collective to the start of the wait"),
        Column("wait_ns", pa.int64(), False, "duration of the wait"),
    ),
    not_negative=frozenset({"awaited", "after_ns", "wait_ns"}),
)
