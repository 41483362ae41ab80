"""Rows and columns of the table of communication and computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from perfkit_core.analyses.tables import ratio

PARTS: Final = ("step", "communication", "computation", "overlap", "exposed_communication")


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one rank, by part: calls on the host and on the device, and time; bytes of the communication."""

    host_calls: Mapping[str, int]
    device_calls: Mapping[str, int]
    time_ns: Mapping[str, int]
    bytes: int | None

    @property
    def communicates(self) -> bool:
        """Whether there is any communication."""
        return bool(self.host_calls["communication"] or self.device_calls["communication"])


def total(ranks: Sequence[Measured]) -> Measured:
    """The ranks added up."""
    known = [rank.bytes for rank in ranks if rank.bytes is not None]
    return Measured(
        _added([rank.host_calls for rank in ranks]),
        _added([rank.device_calls for rank in ranks]),
        _added([rank.time_ns for rank in ranks]),
        sum(known) if known else None,
    )


def part_table(ranks: Mapping[int | None, Measured], by_rank: bool) -> pd.DataFrame:
    """[rank (null where unknown),] part, host_calls, device_calls, time_ns, ratio, bytes."""
    rows = [
        {
            "rank": None if rank == -1 else rank,
            "part": part,
            "host_calls": one.host_calls.get(part),
            "device_calls": one.device_calls.get(part),
            "time_ns": one.time_ns[part],
            "ratio": float(ratio(one.time_ns[part], one.time_ns["step"])),
            "bytes": one.bytes if part == "communication" else None,
        }
        for rank, one in ranks.items()
        for part in PARTS
    ]
    table = pd.DataFrame(rows, columns=["rank", "part", *_TYPES]).astype({"rank": "Int64", **_TYPES})
    return table if by_rank else table.drop(columns="rank")


_TYPES: Final = {"host_calls": "Int64", "device_calls": "Int64", "time_ns": "Int64", "ratio": "Float64",
                 "bytes": "Int64"}  # fmt: skip


def _added(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of each part the sum over the ranks that know it: computation is counted on the host or on the device."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
