"""The report on what is new in the difference of two runs, and below it on the difference itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from perfkit_core.compare import change as tables
from perfkit_core.compare.attribute.causes import waterfall
from perfkit_core.compare.attribute.sections import DRAWN, MEAN, SHOWN_CAUSES, drawn, named
from perfkit_core.compare.change import Change, change
from perfkit_core.compare.columns import COLUMNS
from perfkit_core.compare.pair import Asked, pair
from perfkit_core.compare.report import SIDES, labels, reasons, report_of, rows, source_of
from perfkit_core.compare.statistics import FASTER, NO_DIFFERENCE, PERHAPS_FASTER, PERHAPS_SLOWER, SLOWER, TOO_FEW
from perfkit_core.language.messages import Message, mark, message, say
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Report, Section, declared

Side = Sequence[Trace]
NAMED_LAYERS = 3
_NOTE = mark(
    "Before: what the median step of other took more than that of base in the earlier pair; now: in this one. The "
    "difference of the two is new: what both pairs have in common cancels out."
)
_NO_LAYERS = mark("layers are needed in all four runs")
_VERDICTS = {
    SLOWER: mark("New: other has lost {change:ns} against base since the earlier pair{interval}{noise}."),
    FASTER: mark("New: other has gained {change:ns} on base since the earlier pair{interval}{noise}."),
    PERHAPS_SLOWER: mark(
        "Perhaps new, but not told from noise of the machine: other has lost {change:ns} against base since the "
        "earlier pair{interval}{noise}; record three of each."
    ),
    PERHAPS_FASTER: mark(
        "Perhaps new, but not told from noise of the machine: other has gained {change:ns} on base since the earlier "
        "pair{interval}{noise}; record three of each."
    ),
    NO_DIFFERENCE: mark("Nothing new beyond noise: the difference has changed by {change:+ns}{interval}{noise}."),
    TOO_FEW: mark("Too few steps to tell what is new: the difference has changed by {change:+ns}{interval}{noise}."),
}


@dataclass(frozen=True, slots=True)
class _New:
    """What has changed: of the step (None without steps), by cause and by layer."""

    step: Change | None
    causes: pd.DataFrame
    layers: pd.DataFrame
    ends: tuple[int, int]


def against_report(sides: tuple[Side, Side], earlier: tuple[Side, Side], asked: Asked, names: Sequence[str]) -> Report:
    """The report of :func:`~perfkit_core.compare.report.comparison_report` on two runs, and before it sections
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


def _sentences(found: _New) -> Iterator[Message]:
    if found.step is not None:
        yield _verdict(found.step)
    if largest := named(found.causes):
        yield message("The largest new causes: {causes:parts}.", causes=largest)
    layers = found.layers[found.layers["difference_ns"] != 0].head(NAMED_LAYERS)
    if len(layers):
        changes = [
            message("{name} {difference:+ns}", name=layer, difference=difference)
            for layer, difference in zip(layers["layer"], layers["difference_ns"], strict=True)
        ]
        yield message("By layer: {layers:parts}.", layers=changes)


def _verdict(step: Change) -> Message:
    interval = noise = None
    if step.low is not None and step.high is not None:
        interval = message(" (95% interval of the change {low:+ns} to {high:+ns})", low=step.low, high=step.high)
    if step.noise is not None:
        noise = message("; equal pairs may differ by {noise:ns}", noise=step.noise)
    change = step.change if step.verdict in (NO_DIFFERENCE, TOO_FEW) else abs(step.change)
    return message(_VERDICTS[step.verdict], change=change, interval=interval, noise=noise)


def _data(found: _New) -> dict[str, object]:
    step = None if found.step is None else rows(tables.changes(found.step))[0]
    return {"step_time": step, "causes": rows(found.causes), "layers": rows(found.layers)}
