"""The report on what is new in the difference of two runs, and below it on the difference itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from perfkit_core.comparison.against import tables
from perfkit_core.comparison.against.change import Change, change
from perfkit_core.comparison.as_data import rows
from perfkit_core.comparison.attribution.causes import waterfall
from perfkit_core.comparison.attribution.sections import DRAWN, MEAN, SHOWN_CAUSES, drawn, named
from perfkit_core.comparison.columns import COLUMNS
from perfkit_core.comparison.pair import Asked, pair
from perfkit_core.comparison.report import SIDES, labels, reasons, report_of, source_of
from perfkit_core.comparison.samples.statistics import (
    FASTER,
    NO_DIFFERENCE,
    PERHAPS_FASTER,
    PERHAPS_SLOWER,
    SLOWER,
    TOO_FEW,
)
from perfkit_core.comparison.sentences import signed
from perfkit_core.language import in_english, say
from perfkit_core.report.headline import duration
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.trace import Trace

Side = Sequence[Trace]
NAMED_LAYERS = 3
_NOTE = in_english(
    "Before: what the median step of other took more than that of base in the earlier pair; now: in this one. The "
    "difference of the two is new: what both pairs have in common cancels out."
)
_NO_LAYERS = in_english("layers are needed in all four runs")
_VERDICTS = {
    SLOWER: in_english("New: other has lost {change} against base since the earlier pair{interval}{noise}."),
    FASTER: in_english("New: other has gained {change} on base since the earlier pair{interval}{noise}."),
    PERHAPS_SLOWER: in_english(
        "Perhaps new, but not told from noise of the machine: other has lost {change} against base since the earlier "
        "pair{interval}{noise}; record three of each."
    ),
    PERHAPS_FASTER: in_english(
        "Perhaps new, but not told from noise of the machine: other has gained {change} on base since the earlier "
        "pair{interval}{noise}; record three of each."
    ),
    NO_DIFFERENCE: in_english("Nothing new beyond noise: the difference has changed by {change}{interval}{noise}."),
    TOO_FEW: in_english("Too few steps to tell what is new: the difference has changed by {change}{interval}{noise}."),
}


@dataclass(frozen=True, slots=True)
class _New:
    """What has changed: of the step (None without steps), by cause and by layer."""

    step: Change | None
    causes: pd.DataFrame
    layers: pd.DataFrame
    ends: tuple[int, int]


def against_report(sides: tuple[Side, Side], earlier: tuple[Side, Side], asked: Asked, names: Sequence[str]) -> Report:
    """The report of :func:`~perfkit_core.comparison.report.comparison_report` on two runs, and before it sections
    new_waterfall, new_step_time, new_causes and new_layers; ``data["new"]`` is what they tell.

    Raises UsageError for what cannot be answered."""
    now, before = pair(*sides, asked), pair(*earlier, replace(asked, conditions=()))
    why, old = reasons(now), reasons(before)
    trees = old.attribution, why.attribution
    found = _New(change(before, now), tables.new_causes(*trees), tables.new_layers(*trees), _ends(trees))
    report = report_of(now, sides, names, why)
    old_names = [say("earlier {side}", side=say(side)) for side in SIDES]
    old_sources = (source_of(*one) for one in zip(earlier, old_names, labels(earlier), strict=True))
    return replace(
        report,
        sources=(*report.sources, *old_sources),
        headline=(*_sentences(found), *report.headline),
        sections=(*declared(_sections(found), COLUMNS), *report.sections),
        data={**report.data, "new": _data(found)},
    )


def _ends(trees: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[int, int]:
    first, last = (0 if tree.empty else int(tree["difference_ns"].iloc[0]) for tree in trees)
    return first, last


def _sections(found: _New) -> Iterator[Section]:
    ends = (say("difference before"), found.ends[0]), (say("difference now"), found.ends[1])
    stepped = found.step is not None
    yield drawn("new_waterfall", say("What is new"), waterfall(found.causes, *ends, DRAWN), of_medians=stepped)
    if found.step is not None:
        yield Section("new_step_time", say("Is it real?"), tables.changes(found.step), say(_NOTE))
    mean = say(MEAN) if stepped else ""
    yield Section("new_causes", say("What is new, by cause"), found.causes, mean, limit=SHOWN_CAUSES)
    none, note = say(_NO_LAYERS), mean if len(found.layers) else ""
    yield Section("new_layers", say("What is new, by layer"), found.layers, note, empty=none, limit=SHOWN_CAUSES)


def _sentences(found: _New) -> Iterator[str]:
    if found.step is not None:
        yield _verdict(found.step)
    if largest := named(found.causes):
        yield say("The largest new causes: {causes}.", causes=largest)
    layers = found.layers[found.layers["difference_ns"] != 0].head(NAMED_LAYERS)
    if len(layers):
        told = (f"{row['layer']} {signed(int(row['difference_ns']))}" for row in layers.to_dict("records"))
        yield say("By layer: {layers}.", layers="; ".join(told))


def _verdict(step: Change) -> str:
    size = signed(step.change) if step.verdict in (NO_DIFFERENCE, TOO_FEW) else duration(abs(step.change))
    interval = noise = ""
    if step.low is not None and step.high is not None:
        ends = {"low": signed(step.low), "high": signed(step.high)}
        interval = say(" (95% interval of the change {low} to {high})", **ends)
    if step.noise is not None:
        noise = say("; equal pairs may differ by {noise}", noise=duration(step.noise))
    return say(_VERDICTS[step.verdict], change=size, interval=interval, noise=noise)


def _data(found: _New) -> dict[str, object]:
    step = None if found.step is None else rows(tables.changes(found.step))[0]
    return {"step_time": step, "causes": rows(found.causes), "layers": rows(found.layers)}
