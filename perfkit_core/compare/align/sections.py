"""What a report shows of what corresponds to what, and of what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from perfkit_core.compare.align.align import Alignment
from perfkit_core.compare.align.levels import UNMATCHED
from perfkit_core.compare.sides import known_device_times
from perfkit_core.language.messages import mark, say
from perfkit_core.report.model import Section

SHOWN = 15
_ALL_MATCHED = mark("everything has a counterpart")
_ALONE_IN_STEP = mark(
    "Operators, and device work outside of them, that only one side has; mean times and calls of a step."
)
_ALONE_IN_RUN = mark("Operators, and device work outside of them, that only one side has; for the run.")
_SHARES = mark(
    "What has a counterpart on this level or one before it: of host operators and device work of all steps, and of the "
    "middle steps, each instant once."
)
_SHARES_OF_RUN = mark(
    "What has a counterpart on this level or one before it: of host operators, device work, and the whole recording, "
    "each instant once."
)


def alignment_sections(found: Alignment) -> Iterator[Section]:
    """Sections matched and unmatched."""
    note = say(_SHARES if found.per_step else _SHARES_OF_RUN)
    yield Section("matched", say("How much has a counterpart"), shares(found), note)
    alone = found.rows[found.rows["level"] == UNMATCHED].drop(columns=["level", "shape", "dtype"])
    note = say(_ALONE_IN_STEP if found.per_step else _ALONE_IN_RUN)
    on_device = {side: any(one["device"] is not None for one in levels.values())
                 for side, levels in found.matched_share.items()}  # fmt: skip
    alone, none = known_device_times(alone.reset_index(drop=True), on_device), say(_ALL_MATCHED)
    title = say("Without a counterpart")
    yield Section("unmatched", title, alone, note if len(alone) else "", empty=none, limit=SHOWN)


def shares(found: Alignment) -> pd.DataFrame:
    """Columns level, then for cpu, device and step base_…_ratio and other_…_ratio (missing: no such time)."""
    levels = list(found.matched_share["base"])
    table: dict[str, object] = {"level": levels}
    for what in ("cpu", "device", "step"):
        for side, by_level in found.matched_share.items():
            values = [by_level[level][what] for level in levels]
            table[f"{side}_{what}_ratio"] = pd.array([pd.NA if v is None else v for v in values], "Float64")
    return pd.DataFrame(table)
