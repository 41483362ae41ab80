"""How long did each single step of the runs take? What their medians hide: spread, two levels, steps far out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.compare import columns
from perfkit_core.compare.noise import pool
from perfkit_core.compare.samples import Capture, late
from perfkit_core.language.columns import worded
from perfkit_core.language.messages import say
from perfkit_core.model.columns import column
from perfkit_core.report.model import Chart, Section

SHOWN: Final = 10
COLUMNS: Final = ("run", "capture", "step", "dur_ns", "median_ns", "outlying")


def table(runs: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """A row a step, in the order of runs, captures and time: run, capture (its number in the run, from 1 on), step,
    dur_ns (of several ranks their mean), median_ns (of the run), outlying (much longer than the others of its capture).
    """
    parts = [_steps(name, at, one, captures) for name, captures in runs.items() for at, one in enumerate(captures, 1)]
    found = [part for part in parts if len(part)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(COLUMNS))


def _steps(name: str, number: int, one: Capture, captures: Sequence[Capture]) -> pd.DataFrame:
    median = int(np.median(pool([each.step_ns for each in captures]))) if len(one.step) else 0
    steps = {"run": name, "capture": number, "step": one.step, "dur_ns": one.mean_ns, "median_ns": median}
    return pd.DataFrame({**steps, "outlying": late(one)}, columns=list(COLUMNS))


def section(runs: Mapping[str, Sequence[Capture]], noise_ns: int | None) -> Iterator[Section]:
    """The section steps, where one of the runs has some. ``noise_ns``: what the first run and its equals differ by."""
    steps = table(runs)
    if steps.empty:
        return
    base = next(iter(runs))
    medians = steps.loc[steps["run"] == base, "median_ns"].head(1).tolist()
    band = None if noise_ns is None or not medians else (medians[0] - noise_ns, medians[0] + noise_ns)
    note = say("A point is a step, the upright line the median of the run; steps far out have a name.")
    if band is not None:
        shown = worded(base, column(columns.COLUMNS, "run"))
        note += " " + say("Shaded is where the median of a run equal to {base} may lie.", base=shown)
    chart = Chart("distribution", "run", ("dur_ns", "median_ns"), band=band, note=note)
    found = _told_apart(_alternating(steps))
    yield Section("steps", say("Every step"), found, _of_ranks(runs), limit=SHOWN, chart=chart)


def _of_ranks(runs: Mapping[str, Sequence[Capture]]) -> str:
    """Over what the times are, where a step has several."""
    if not any(one.of_ranks for captures in runs.values() for one in captures):
        return ""
    return say("The duration of a step is the mean over its ranks; the median is over the steps of all ranks.")


def _alternating(steps: pd.DataFrame) -> pd.DataFrame:
    """The first steps of all runs before the second ones, so that the first rows are of each run."""
    place = steps.groupby("run", sort=False).cumcount()
    return steps.loc[place.sort_values(kind="stable").index].reset_index(drop=True)


def _told_apart(steps: pd.DataFrame) -> pd.DataFrame:
    """Without the number of the capture where each run has one only."""
    return steps if (steps["capture"] > 1).any() else steps.drop(columns="capture")
