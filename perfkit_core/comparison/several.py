"""More than two runs: a table with one column a run. The first run is the base of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from perfkit_core.comparison import as_data, distribution, peaks
from perfkit_core.comparison.columns import COLUMNS
from perfkit_core.comparison.gate import table as gate_table
from perfkit_core.comparison.pair import Asked, Pair, pair
from perfkit_core.comparison.samples.captures import pooled
from perfkit_core.comparison.sentences import same_recording, step_sentence
from perfkit_core.comparison.several_columns import columns
from perfkit_core.language import in_english, say
from perfkit_core.report import facts
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.trace import Trace


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
            say("{run}: {sentence}", run=run.name, sentence=sentence)
            for run, found in others
            for sentence in (_sentence(found), *same_recording(found))
        ),
        warnings=tuple(_devices(runs, whole)),
        data=_data(runs, pairs),
    )


def _amounts(asked: Asked, at: int) -> tuple[int, ...]:
    return (asked.amounts[0], asked.amounts[at]) if asked.amounts else ()


def _sentence(found: Pair) -> str:
    return say("no steps to compare.") if found.steps is None else step_sentence(found.steps)


def _gate(others: Sequence[tuple[Run, Pair]]) -> list[Section]:
    tables = [gate_table.table(found.outcomes).assign(run=run.name) for run, found in others if found.outcomes]
    if not tables:
        return []
    whole = pd.concat(tables, ignore_index=True)
    whole.insert(0, "run", whole.pop("run"))
    return [gate_table.section(whole)]


def _runs(runs: Sequence[Run], pairs: Sequence[Pair]) -> Section:
    rows = [_row(run, found, run is runs[0]) for run, found in zip(runs, pairs, strict=True)]
    text = in_english("The base is {name}; low to high: 95% interval of the difference of the median steps.")
    return Section("runs", say("Runs"), pd.DataFrame(rows), say(text, name=runs[0].name))


def _steps(runs: Sequence[Run], pairs: Sequence[Pair]) -> Iterator[Section]:
    captures = {run.name: found.captures[1] for run, found in zip(runs, pairs, strict=True)}
    base = pairs[0].steps
    return distribution.section(captures, None if base is None else base.noise)


def _devices(runs: Sequence[Run], whole: Mapping[str, Trace]) -> Iterator[str]:
    """The runs whose devices are known to be others than those of the base."""
    base = whole[runs[0].name]
    others = [run.name for run in runs[1:] if peaks.different([base, whole[run.name]])]
    if others:
        names = ", ".join(peaks.products(base))
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
                "step_time": one.steps and as_data.statistics(one.steps), "gate": gate_table.data(one.outcomes),
            }
            for run, one in found
        ]
    }  # fmt: skip
