"""Comparison of more than two runs in tables with one column per run. The first run is the base of all others. The
times by category sum to the median step. The times of phases and operators are means over the same steps, those nearest
to the median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import SIDES, mark, message, say
from perfkit_core.compare import comparison, explanation, report
from perfkit_core.compare.align.align import items
from perfkit_core.compare.align.composites import composed
from perfkit_core.compare.align.operator_owner import Owners
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.gate import conditions as gate
from perfkit_core.compare.headline import same_recording, step_sentence
from perfkit_core.compare.pair import CompareOptions, Pair, pair_on_clock
from perfkit_core.compare.pieces import CATEGORIES, PHRASES, pieces, shared_out
from perfkit_core.compare.statistics import pooled
from perfkit_core.compare.windows import Windows, middle_steps, on_one_clock, whole_run
from perfkit_core.output.report import source_facts
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.columns import duration, key
from perfkit_core.trace.model.report_data import Report, Section, declared
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import step_phases, step_rows
from perfkit_core.views.tables import rounded_division

SHOWN_OPERATORS: Final = 20


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its label and its captures, at least one."""

    name: str
    captures: tuple[Trace, ...]


def multi_run_report(runs: Sequence[Run], options: CompareOptions) -> Report:
    """Return the report on several runs, with the key "runs" in ``data``. Raises UsageError for unsuitable options."""
    captures_of_runs = on_one_clock([run.captures for run in runs])
    runs = [replace(run, captures=tuple(captures)) for run, captures in zip(runs, captures_of_runs, strict=True)]
    pairs = []
    for index, run in enumerate(runs):
        amounts = (options.amounts[0], options.amounts[index]) if options.amounts else ()
        pairs.append(pair_on_clock(runs[0].captures, run.captures, replace(options, amounts=amounts)))
    traces = {run.name: pooled(run.captures) for run in runs}
    times = (0 if result.steps is None else result.steps.other for result in pairs)
    medians = dict(zip(traces, times, strict=True))

    named = list(zip(runs, pairs, strict=True))
    headline, gates, other_devices = [], [], []
    for run, result in named[1:]:
        sentence = message("the run or the base has no steps.")
        if result.steps is not None:
            sentence = step_sentence(result.steps, result.between)
        for line in (sentence, *same_recording(result)):
            headline.append(message("{run}: {sentence}", run=run.name, sentence=line))
        if result.outcomes:
            gates.append(gate.table(result.outcomes))
            gates[-1].insert(0, "run", run.name)
        if comparison.different_devices([traces[runs[0].name], traces[run.name]]):
            other_devices.append(run.name)
    devices = ", ".join(comparison.device_names(traces[runs[0].name]))
    text = mark("The base ran on {devices}. These runs used other devices: {runs}.")
    warning = say(text, devices=devices, runs=", ".join(other_devices))

    base = pairs[0].steps
    captures = {run.name: result.captures[1] for run, result in named}
    rows = pd.DataFrame([_row(run, result, is_base=run is runs[0]) for run, result in named])
    text = mark("The base is {name}. Low and high: the 95% interval of the difference between the median steps.")
    sections = [
        *([gate.section(pd.concat(gates, ignore_index=True))] if gates else []),
        Section("runs", say("Runs"), rows, say(text, name=runs[0].name)),
        *report.step_section(captures, None if base is None else base.noise),
        *_wide_sections(traces, medians),
    ]
    return Report(
        say("{count} runs compared", count=len(runs)),
        tuple(replace(source_facts.source(run.captures[0]), label=run.name) for run in runs),
        declared(sections, report.COLUMNS),
        headline=tuple(headline),
        warnings=(warning,) if other_devices else (),
        data={
            "runs": [
                {
                    "name": run.name, "sources": [trace.meta.source for trace in run.captures],
                    "step_time": result.steps and report.statistics(result.steps), "gate": gate.data(result.outcomes),
                }
                for run, result in named
            ]
        },
    )  # fmt: skip


def _row(run: Run, result: Pair, is_base: bool) -> dict[str, object]:
    meta, steps = run.captures[0].meta, result.steps
    row: dict[str, object] = {
        "run": run.name, "framework": source_facts.framework(meta) or pd.NA,
        "devices": source_facts.devices(meta.devices) or pd.NA, "captures": len(run.captures),
        "steps": sum(len(samples.step) for samples in result.captures[1]),
    }  # fmt: skip
    if steps is None:
        return row
    row["median_step_ns"] = steps.other
    if result.normalised is not None:
        row[f"per_{result.normalised.unit}_ns"] = result.normalised.statistics.other
    row["difference_ns"] = steps.difference
    bounds = {"change_ratio": steps.change_ratio, "low_ns": steps.low, "high_ns": steps.high, "noise_ns": steps.noise}
    row |= {name: pd.NA if value is None else value for name, value in bounds.items()}
    return {**row, "verdict": "base" if is_base else steps.verdict}


def _wide_sections(traces: Mapping[str, Trace], medians: Mapping[str, int]) -> list[Section]:
    """Return the sections with one column per run. ``medians`` are the median step times, 0 without steps."""
    stepped = bool(len(step_rows.step_rows(next(iter(traces.values())))))
    per = say("Mean time per step") if stepped else say("Time of the whole recording")
    parts: dict[str, pd.Series[int]] = {}
    means: dict[str, dict[str, pd.Series[int]]] = {"phases": {}, "cpu_ns": {}, "device_ns": {}}
    base, *others = traces.values()
    foreign = next((trace for trace in others if trace.meta.framework != base.meta.framework), base)
    operators = {name: composed(base, trace)[1] for name, trace in traces.items()}
    operators[next(iter(traces))] = composed(base, foreign)[0]
    for name, trace in traces.items():
        windows = middle_steps(trace) if stepped else whole_run(trace)
        if not len(windows):
            for columns in (parts, *means.values()):
                columns[name] = pd.Series(dtype=np.int64)
            continue
        parts[name] = _parts(trace, windows, operators[name], medians[name] if stepped else windows.mean_ns)
        by_name = comparison.operator_times(items(trace, windows, operators[name], {}), 1).groupby("name", sort=False)
        numbers = tuple(np.unique(trace.ints("step")[windows.row]).tolist())
        phases = table_of(step_phases.VIEW, trace, ViewRequest(steps=numbers if stepped else None))
        total = phases["total_cpu_ns"].fillna(0).to_numpy(np.int64)
        mean = rounded_division(total, len(windows) if stepped else 1)
        means["phases"][name] = pd.Series(mean, phases["phase"].astype(str))
        for measure in ("cpu_ns", "device_ns"):
            means[measure][name] = by_name[measure].sum()
    by_phase = _wide(means["phases"], keep_order=True)
    host, device = _wide(means["cpu_ns"]), _wide(means["device_ns"])
    of_parts = say(explanation.OF_PARTS) if stepped else say("Wall-clock time of the whole recording.")
    sections = [
        Section("step_parts", say("Time by category"), _wide(parts, keep_order=True), of_parts,
                say("no run has steps")),
        Section("phases", say("Phases"), by_phase, say("{per} on the host.", per=per),
                say("no phases were recorded")),
        Section("operators", say("Operators on the host"), host, say("{per} in the outermost operators.", per=per),
                say("no operators were recorded"), SHOWN_OPERATORS),
        Section("operators_device", say("Operators on devices"), device, say("{sentence}.", sentence=per),
                say("no device work was recorded"), SHOWN_OPERATORS),
    ]  # fmt: skip
    times = [duration(f"{name}_ns", name, quantity="run", heading="proper") for name in traces]
    words = {"step_parts": (*PHRASES.items(), (BESIDE_MEDIAN, BESIDE_MEDIAN))}
    return [
        replace(section, columns=(key("name", "Name", words=words.get(section.name, SIDES)), *times))
        for section in sections
    ]


def _wide(times: Mapping[str, pd.Series[int]], keep_order: bool = False) -> pd.DataFrame:
    columns = {f"{name}_ns": column for name, column in times.items()}
    index = pd.Index(dict.fromkeys(row for column in columns.values() for row in column.index), dtype=object)
    table = pd.DataFrame({name: column.astype("Int64").reindex(index) for name, column in columns.items()}, index)
    recorded = [name for name, column in columns.items() if len(column)]
    table[recorded] = table[recorded].fillna(0)
    table = table[(table.fillna(0) != 0).any(axis=1)]
    if not keep_order:
        table = table.loc[table.max(axis=1).sort_values(ascending=False, kind="stable").index]
    return table.rename_axis("name").reset_index()


def _parts(trace: Trace, windows: Windows, operators: Owners, median_ns: int) -> pd.Series[int]:
    """Return the mean time of each category over the windows. A further category holds the median minus this mean, so
    all categories sum to ``median_ns``."""
    account = pieces(trace, windows, operators)
    totals = np.bincount(account.category, account.dur_ns, len(CATEGORIES)).astype(np.int64)
    means = shared_out(totals, windows.count)
    return pd.Series([*means, median_ns - means.sum()], [*CATEGORIES, BESIDE_MEDIAN], np.int64)
