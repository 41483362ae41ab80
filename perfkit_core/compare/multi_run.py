"""More than two runs: a table with one column a run. The first run is the base of all others.

What a step is spent on in each of several runs: tables with one column a run.

Parts are those of the median step, as where two runs are compared; phases and operators are means over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray
from perfkit_core.compare import report
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.comparison import device_names, different_devices, operator_time
from perfkit_core.compare.gate import conditions as gate_table
from perfkit_core.compare.headline import same_recording, step_sentence
from perfkit_core.compare.pair import Asked, Pair, pair
from perfkit_core.compare.report import COLUMNS
from perfkit_core.compare.slices import middle_rows, shared_out
from perfkit_core.compare.statistics import pooled
from perfkit_core.language.messages import SIDES, Message, mark, message, say
from perfkit_core.model.columns import duration, key
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.report import facts
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.views.steps import partition
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.steps.step_phases import table as phases
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

_OF_PARTS = mark("The median step as the mean of the middle steps, each instant once.")
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


@dataclass(frozen=True, slots=True)
class Run:
    """One run under a short name, of one capture or more."""

    name: str
    captures: tuple[Trace, ...]


def several_report(runs: Sequence[Run], asked: Asked) -> Report:
    """Sections gate (where asked), runs, steps, step_parts, phases, operators and operators_device; ``data``: runs.

    Raises UsageError for what cannot be answered."""
    pairs = [pair(runs[0].captures, one.captures, replace(asked, amounts=_amounts(asked, at)))
             for at, one in enumerate(runs)]  # fmt: skip
    whole = {one.name: pooled(one.captures) for one in runs}
    times = (0 if found.steps is None else found.steps.other for found in pairs)
    medians = dict(zip(whole, times, strict=True))
    others = list(zip(runs, pairs, strict=True))[1:]
    return Report(
        say("{count} runs compared", count=len(runs)),
        tuple(replace(facts.source(run.captures[0]), label=run.name) for run in runs),
        declared((*_gate(others), _runs(runs, pairs), *_steps(runs, pairs), *columns(whole, medians)), COLUMNS),
        headline=tuple(
            message("{run}: {sentence}", run=run.name, sentence=sentence)
            for run, found in others
            for sentence in (_sentence(found), *same_recording(found))
        ),
        warnings=tuple(_devices(runs, whole)),
        data=_data(runs, pairs),
    )


def _amounts(asked: Asked, at: int) -> tuple[int, ...]:
    return (asked.amounts[0], asked.amounts[at]) if asked.amounts else ()


def _sentence(found: Pair) -> Message:
    return message("no steps to compare.") if found.steps is None else step_sentence(found.steps)


def _gate(others: Sequence[tuple[Run, Pair]]) -> list[Section]:
    tables = [gate_table.table(found.outcomes).assign(run=run.name) for run, found in others if found.outcomes]
    if not tables:
        return []
    whole = pd.concat(tables, ignore_index=True)
    whole.insert(0, "run", whole.pop("run"))
    return [gate_table.section(whole)]


def _runs(runs: Sequence[Run], pairs: Sequence[Pair]) -> Section:
    rows = [_row(run, found, run is runs[0]) for run, found in zip(runs, pairs, strict=True)]
    text = mark("The base is {name}; low to high: 95% interval of the difference of the median steps.")
    return Section("runs", say("Runs"), pd.DataFrame(rows), say(text, name=runs[0].name))


def _steps(runs: Sequence[Run], pairs: Sequence[Pair]) -> Iterator[Section]:
    captures = {run.name: found.captures[1] for run, found in zip(runs, pairs, strict=True)}
    base = pairs[0].steps
    return report.step_section(captures, None if base is None else base.noise)


def _devices(runs: Sequence[Run], whole: Mapping[str, Trace]) -> Iterator[str]:
    """The runs whose devices are known to be others than those of the base."""
    base = whole[runs[0].name]
    others = [run.name for run in runs[1:] if different_devices([base, whole[run.name]])]
    if others:
        names = ", ".join(device_names(base))
        yield say("Other devices than {devices} of the base: {runs}.", devices=names, runs=", ".join(others))


def _row(run: Run, found: Pair, is_base: bool) -> dict[str, object]:
    """Head figures, and the difference to the base; unknown is NA."""
    meta, steps = run.captures[0].meta, found.steps
    head: dict[str, object] = {
        "run": run.name, "framework": facts.facts(meta).get("Framework", pd.NA),
        "devices": facts.devices(meta.devices) or pd.NA, "captures": len(run.captures),
        "steps": sum(len(one.step) for one in found.captures[1]),
    }  # fmt: skip
    if steps is None:
        return head
    by_work = {} if found.normalised is None else {f"per_{found.normalised.unit}_ns": found.normalised.statistics.other}
    return {
        **head, "median_step_ns": steps.other, **by_work, "difference_ns": steps.difference,
        "change_ratio": _na(steps.change_ratio),
        "low_ns": _na(steps.low), "high_ns": _na(steps.high), "noise_ns": _na(steps.noise),
        "verdict": "base" if is_base else steps.verdict,
    }  # fmt: skip


def _na(value: float | None) -> object:
    return pd.NA if value is None else value


def _data(runs: Sequence[Run], pairs: Sequence[Pair]) -> dict[str, object]:
    found = zip(runs, pairs, strict=True)
    return {
        "runs": [
            {
                "name": run.name, "sources": [trace.meta.source for trace in run.captures],
                "step_time": one.steps and report.statistics(one.steps), "gate": gate_table.data(one.outcomes),
            }
            for run, one in found
        ]
    }  # fmt: skip
