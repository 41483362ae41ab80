"""Comparison of two pairs of runs, an earlier pair and this pair: how the difference within a pair changed.

If the pairs share a run, the interval and the noise band of the change come from a comparison of the other two runs.
Otherwise the pairs are assumed to be independent. Their intervals are combined by the method of variance estimates
recovery (Zou and Donner 2008), and their noise bands by the root of the sum of squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import SIDES, Message, mark, message, say
from perfkit_core.compare import explanation, statistics
from perfkit_core.compare.attribute.causes import by_layer, causes, explained, grouped, largest_first, waterfall
from perfkit_core.compare.pair import CompareOptions, Pair, pair_on_clock
from perfkit_core.compare.report import COLUMNS, labels, nullable, report_of, rows, source_of, tables_of
from perfkit_core.compare.windows import on_one_clock
from perfkit_core.trace.model.report_data import Report, Section, declared
from perfkit_core.trace.model.trace import Trace

Sides = tuple[Sequence[Trace], Sequence[Trace]]
CAUSE: Final = ("operator", "category", "place", "phase", "family")
NAMED_LAYERS: Final = 3
_NOTE = mark(
    "Before: the median step of the other run minus the median step of the base run, in the earlier pair. Now: the "
    "same difference in this pair. Difference: now minus before."
)
_VERDICTS: Final = {
    statistics.SLOWER: mark("New slowdown"),
    statistics.FASTER: mark("New improvement"),
    statistics.PERHAPS_SLOWER: mark("A new slowdown or machine noise"),
    statistics.PERHAPS_FASTER: mark("A new improvement or machine noise"),
    statistics.NO_DIFFERENCE: mark("Nothing new beyond noise"),
    statistics.TOO_FEW: mark("Too few steps for a verdict"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """Comparison of an earlier pair of runs with this pair. All times are in ns. The difference of a pair is the median
    step of its other run minus the median step of its base run. The change is ``now - before``. If there are too few
    steps, ``low``, ``high`` and ``noise`` are None."""

    before: int  # The difference of the earlier pair.
    now: int  # The difference of this pair.
    low: int | None  # Lower end of the 95% interval of the change.
    high: int | None  # Upper end of the 95% interval of the change.
    noise: int | None  # The largest change that chance may cause.
    verdict: str  # For example "slower": the difference has risen, beyond noise.

    @property
    def change(self) -> int:
        """``now - before``. It is positive if the difference has risen since the earlier pair."""
        return self.now - self.before


def change(before: Pair, now: Pair) -> Change | None:
    """Return the change of the difference (other minus base) from pair ``before`` to ``now``; None without steps."""
    if before.steps is None or now.steps is None:
        return None
    (base, other), (old_base, old_other) = now.captures, before.captures
    between = max(now.between.ratio, before.between.ratio)
    changed = (old_other, other) if _same(base, old_base) else (base, old_base) if _same(other, old_other) else ()
    samples = [[capture.step_ns for capture in side] for side in changed]
    alone = statistics.of_steps(samples[0], samples[1], between) if samples else None
    if alone is not None:
        return Change(before.steps.difference, now.steps.difference, alone.low, alone.high, alone.noise, alone.verdict)
    first, last = before.steps, now.steps
    total = last.difference - first.difference
    bounds = (first.low, first.high, last.low, last.high, first.noise, last.noise)
    if any(value is None for value in bounds):
        verdict = statistics.TOO_FEW if total else statistics.NO_DIFFERENCE
        return Change(first.difference, last.difference, None, None, None, verdict)
    first_low, first_high, last_low, last_high, *noises = (float(value or 0) for value in bounds)
    low = round(total - hypot(last.difference - last_low, first_high - first.difference))
    high = round(total + hypot(last_high - last.difference, first.difference - first_low))
    noise = round(hypot(*noises))
    beyond = not low <= 0 <= high and abs(total) > noise
    verdict = (statistics.SLOWER if total > 0 else statistics.FASTER) if beyond else statistics.NO_DIFFERENCE
    return Change(first.difference, last.difference, low, high, noise, verdict)


def _same(first: Sequence[statistics.StepSamples], second: Sequence[statistics.StepSamples]) -> bool:
    same_count = len(first) == len(second)
    return same_count and all(np.array_equal(a.step_ns, b.step_ns) for a, b in zip(first, second, strict=True))


def new_causes(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return the causes of the change between two pairs of runs, with the largest change first. The rows sum to the
    total change. ``before`` is the tree of :func:`~perfkit_core.compare.attribute.attribute.attribute` for the earlier
    pair, and ``now`` is the tree for this pair. Columns:

    - operator, category, place, phase, family: the cause.
    - before_difference_ns, now_difference_ns: time in the other run minus time in the base run, in each pair.
    - difference_ns: ``now_difference_ns - before_difference_ns``.
    - explained_ratio: sum of difference_ns from the first row to this row, divided by the total change.
    """
    return _changed(causes(before), causes(now), list(CAUSE))


def new_layers(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per layer. It is empty unless all runs have layers. Columns: layer, and the columns
    of :func:`new_causes` from before_difference_ns to explained_ratio."""
    first, last = by_layer(before), by_layer(now)
    if first.empty or last.empty:
        first, last = first.head(0), last.head(0)
    return _changed(first, last, ["layer"])


def _changed(before: pd.DataFrame, now: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    sides = zip(("before", "now"), (before, now), strict=True)
    parts = [table.set_index(keys)["difference_ns"].rename(f"{side}_difference_ns") for side, table in sides]
    joined = pd.concat(parts, axis=1).fillna(0).astype(np.int64).reset_index()
    joined["difference_ns"] = joined["now_difference_ns"] - joined["before_difference_ns"]
    return explained(largest_first(joined, keys))


def against_report(sides: Sides, earlier: Sides, options: CompareOptions, names: Sequence[str]) -> Report:
    """Return the report on two runs, preceded by the changes since an earlier pair of runs.

    Four sections are added to :func:`~perfkit_core.compare.report.comparison_report`: new_waterfall, new_step_time,
    new_causes and new_layers. ``data["new"]`` holds the last three. Raises UsageError for options that do not apply.
    """
    runs = on_one_clock([*sides, *earlier])
    now = pair_on_clock(runs[0], runs[1], options)
    before = pair_on_clock(runs[2], runs[3], replace(options, conditions=()))
    tables = tables_of(now)
    trees = tables_of(before).attribution, tables.attribution
    step, by_cause, layers = change(before, now), new_causes(*trees), new_layers(*trees)
    step_table = None
    if step is not None:
        row = {
            "verdict": step.verdict, "before_difference_ns": step.before, "now_difference_ns": step.now,
            "difference_ns": step.change, "low_ns": step.low, "high_ns": step.high, "noise_ns": step.noise,
        }  # fmt: skip
        step_table = nullable(row)
    report = report_of(now, tables, names)
    old_names = [say("earlier {side}", side=say(side)) for side in SIDES]
    old_sources = (source_of(*source) for source in zip(before.runs, old_names, labels(before.runs), strict=True))

    first, last = (0 if tree.empty else int(tree["difference_ns"].iloc[0]) for tree in trees)
    ends = (say("difference before"), first), (say("difference now"), last)
    picture = waterfall(grouped(by_cause, trees), *ends, explanation.DRAWN)
    mean, none = "" if step is None else say(explanation.MEAN), say("layers are needed in all four runs")
    sections = [explanation.drawn("new_waterfall", say("New differences"), picture)]
    if step_table is not None:
        sections.append(Section("new_step_time", say("New difference in step time"), step_table, say(_NOTE)))
    title = say("New differences by layer")
    sections += [
        Section("new_causes", say("New differences by cause"), by_cause, mean, limit=explanation.SHOWN_CAUSES),
        Section("new_layers", title, layers, mean if len(layers) else "", none, explanation.SHOWN_CAUSES),
    ]
    return replace(
        report,
        sources=(*report.sources, *old_sources),
        headline=(*_sentences(step, explanation.largest_causes(grouped(by_cause, trees)), layers), *report.headline),
        sections=(*declared(sections, COLUMNS), *report.sections),
        data={
            **report.data,
            "new": {
                "step_time": None if step_table is None else rows(step_table)[0],
                "causes": rows(by_cause),
                "layers": rows(layers),
            },
        },
    )


def _sentences(step: Change | None, largest: list[Message], layers: pd.DataFrame) -> Iterator[Message]:
    if step is not None:
        interval = noise = None
        if step.low is not None and step.high is not None:
            interval = message(" (95% interval of the change {low:+ns} to {high:+ns})", low=step.low, high=step.high)
        if step.noise is not None:
            noise = message("; noise alone can cause up to {noise:ns}", noise=step.noise)
        advice = None
        if step.verdict in statistics.PERHAPS:
            advice = message("; to find out, record three captures of each run")
        yield message(
            "{verdict}: since the earlier pair of runs, the difference in step time (other run minus base run) changed "
            "by {change:+ns}{interval}{noise}{advice}.",
            verdict=message(_VERDICTS[step.verdict]), change=step.change, interval=interval, noise=noise, advice=advice,
        )  # fmt: skip
    if largest:
        yield message("The largest new causes: {causes:parts}.", causes=largest)
    differing = layers[layers["difference_ns"] != 0].head(NAMED_LAYERS)
    if len(differing):
        changes = [
            message("{name} {difference:+ns}", name=layer, difference=difference)
            for layer, difference in zip(differing["layer"], differing["difference_ns"], strict=True)
        ]
        yield message("By layer: {layers:parts}.", layers=changes)
