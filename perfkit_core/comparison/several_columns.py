"""What a step is spent on in each of several runs: tables with one column a run.

Parts are those of the median step, as where two runs are compared; phases and operators are means over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.step import partition
from perfkit_core.analyses.step.activity import has_device_work
from perfkit_core.analyses.step.model import table as phases
from perfkit_core.analyses.step.step_rows import step_rows
from perfkit_core.analyses.tables import rounded_division
from perfkit_core.comparison.attribution.attribute import BESIDE_MEDIAN
from perfkit_core.comparison.attribution.effects import shared_out
from perfkit_core.comparison.attribution.steps import middle_rows
from perfkit_core.comparison.canonical import operator_time
from perfkit_core.language import in_english, say
from perfkit_core.language.columns import SIDES
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.report.model import Section
from perfkit_core.table_columns import duration, key
from perfkit_core.trace import BoolArray, Trace

_OF_PARTS = in_english("The median step as the mean of the middle steps, each instant once.")
SHOWN: Final = 20
"""Operators that people are shown first."""
Times = Callable[[Trace, BoolArray], "pd.Series[int]"]


def columns(whole: Mapping[str, Trace], medians: Mapping[str, int]) -> list[Section]:
    """Sections step_parts, phases, operators and operators_device of the runs, by their names; ``medians``: of the
    steps of each run that has some."""
    stepped = _base_has_steps(whole)
    per = say("Mean time of a step") if stepped else say("Time of the whole recording")
    parts = _wide({name: _median_step(trace, medians[name]) if stepped else _parts(trace)
                   for name, trace in whole.items()}, keep_order=True)  # fmt: skip
    of_phases = _wide(_means(whole, _phases), keep_order=True)
    host, device = (_wide(_means(whole, _operators(time))) for time in ("cpu_ns", "device_ns"))
    of_parts = say(_OF_PARTS) if stepped else say("{per}, each instant once.", per=per)
    sections = [
        Section("step_parts", say("What the steps are spent on"), parts, of_parts, say("no run has steps")),
        Section("phases", say("Phases"), of_phases, say("{per} on the host.", per=per), say("no phases were recorded")),
        Section("operators", say("Operators on the host"), host, say("{per} in the outermost.", per=per),
                say("no operators recorded"), SHOWN),
        Section("operators_device", say("Operators on devices"), device, say("{sentence}.", sentence=per),
                say("no device work was recorded"), SHOWN),
    ]  # fmt: skip
    of_runs = (
        key("name", "Name", words=SIDES),
        *(duration(f"{name}_ns", name, quantity="run", proper=True) for name in whole),
    )
    return [replace(section, columns=of_runs) for section in sections]


def _wide(times: Mapping[str, pd.Series[int]], keep_order: bool = False) -> pd.DataFrame:
    """Column name, and ``{run}_ns`` for each run. A run without a row has 0 there, one without any rows NA."""
    found = {f"{name}_ns": column for name, column in times.items()}
    index = pd.Index(dict.fromkeys(row for column in found.values() for row in column.index), dtype=object)
    table = pd.DataFrame({name: column.astype("Int64").reindex(index) for name, column in found.items()}, index)
    recorded = [name for name, column in found.items() if len(column)]
    table[recorded] = table[recorded].fillna(0)
    table = table[(table.fillna(0) != 0).any(axis=1)]
    if not keep_order:
        table = table.loc[table.max(axis=1).sort_values(ascending=False, kind="stable").index]
    return table.rename_axis("name").reset_index()


def _base_has_steps(whole: Mapping[str, Trace]) -> bool:
    return bool(len(step_rows(next(iter(whole.values())))))


def _means(whole: Mapping[str, Trace], times: Times) -> dict[str, pd.Series[int]]:
    """For a step where the base has steps, else for the recording; none of a run that lacks the steps."""
    stepped = _base_has_steps(whole)
    return {name: _per_step(trace, times, stepped) for name, trace in whole.items()}


def _per_step(trace: Trace, times: Times, stepped: bool) -> pd.Series[int]:
    rows = step_rows(trace)
    if stepped and not len(rows):
        return pd.Series(dtype=np.int64)
    inside = np.isin(trace.ints("step"), np.unique(trace.ints("step")[rows])) if stepped else np.ones(len(trace), bool)
    total = times(trace, inside)
    divided = rounded_division(total.to_numpy(np.int64), len(rows) if stepped else 1)
    return pd.Series(divided, total.index)


def _median_step(trace: Trace, median_ns: int) -> pd.Series[int]:
    """The parts of the middle steps, and what the median lies beside their mean: they sum to the median."""
    rows = middle_rows(trace)
    if not len(rows):
        return pd.Series(dtype=np.int64)
    names = partition.ON_DEVICE if has_device_work(trace) else partition.ON_HOST
    means = shared_out(partition.partition(trace, rows).sum(axis=0), len(rows))
    return pd.Series([*means, median_ns - means.sum()], [*names, BESIDE_MEDIAN], np.int64)


def _parts(trace: Trace) -> pd.Series[int]:
    table = partition.VIEW.table(trace, ViewRequest())
    return pd.Series(table["total_ns"].to_numpy(np.int64), table["category"].astype(str))


def _phases(trace: Trace, inside: BoolArray) -> pd.Series[int]:
    table = phases(trace, ViewRequest())
    return pd.Series(table["total_cpu_ns"].fillna(0).to_numpy(np.int64), table["phase"].astype(str))


def _operators(measure: str) -> Times:
    def times(trace: Trace, inside: BoolArray) -> pd.Series[int]:
        table = operator_time(trace, inside)
        return table.groupby("name", sort=False)[measure].sum()

    return times
