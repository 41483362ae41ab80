"""How much of the step's own time is aligned, each nanosecond counted once?

The exclusive slices of the middle steps: time of an operator counts on the level on which that operator was matched.
Time outside of operators (Python, labelled ranges, the data loader, gaps) is of the level ``layer`` where both runs
have such time of the same category in the same layer and phase, and of the level ``operator`` where they have it in the
same phase: there is nothing finer to match it by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.comparison.alignment.items import Items
from perfkit_core.comparison.alignment.levels import UNMATCHED
from perfkit_core.comparison.alignment.units import units
from perfkit_core.comparison.attribution.phases import piece_phases
from perfkit_core.comparison.attribution.slices import slices
from perfkit_core.comparison.attribution.steps import Windows
from perfkit_core.schema import NO_ROW, OTHER
from perfkit_core.trace import Trace

_OUTSIDE: Final = {"layer": ["category", "phase", "layer"], "operator": ["category", "phase"]}
"""Level → what time outside of operators must have in common."""

_HOST: Final = ("framework", "launch_and_host", "idle")
"""One category here: whether Python code between operators shows as an event depends on what the framework records."""


def exclusive_times(
    trace: Trace, windows: Windows, found: Items, levels: np.ndarray, layers: Mapping[str, str]
) -> pd.DataFrame:
    """Columns level (missing outside of operators), category, phase, layer, ns: sums over the windows. ``layers``:
    common names by path."""
    pieces = slices(trace, windows.rank, windows.start_ns, windows.end_ns)
    item = np.append(found.of_event, -1)[pieces.row]
    outside = (pieces.row == NO_ROW) | (units(trace).row[pieces.row] == NO_ROW) & (item < 0) if len(trace) else item < 0
    level = np.where(outside, None, np.append(levels, UNMATCHED)[item])
    phase, module = trace.codes("phase"), trace.codes("module")
    category = np.array(pieces.categories, object)[pieces.category]
    common = [layers.get(path) for path in module.values]
    table = pd.DataFrame(
        {
            "level": level,
            "category": np.where(np.isin(category, _HOST), "host", category),
            "phase": np.array([*phase.values, OTHER], object)[piece_phases(trace, pieces)],
            "layer": _texts(module.codes, [*common, None], pieces.row),
            "ns": pieces.dur_ns,
        }
    )
    keys = ["level", "category", "phase", "layer"]
    return table.groupby(keys, sort=False, dropna=False)["ns"].sum().reset_index()


def by_level(mine: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, int]:
    """Time of ``mine`` by level; what lies outside of operators as said above."""
    level = mine["level"].astype(object)
    other = theirs[theirs["level"].isna()]
    for name, keys in _OUTSIDE.items():
        open_ones = level.isna() & mine[keys].notna().all(axis=1)
        shared = pd.MultiIndex.from_frame(other.loc[other[keys].notna().all(axis=1), keys])
        level = level.mask(open_ones & pd.MultiIndex.from_frame(mine[keys]).isin(shared), name)
    level = level.where(level.notna(), UNMATCHED)
    return {str(name): int(total) for name, total in mine["ns"].groupby(level).sum().items()}


def _texts(codes: np.ndarray, texts: list[str | None], rows: np.ndarray) -> np.ndarray:
    """Of the rows of events; the last text for none and for null."""
    values = np.empty(len(texts), object)
    values[:] = texts
    taken: np.ndarray = values[np.append(codes, -1)[rows]]
    return taken
