"""The change of the difference of two runs since an earlier pair, and the report on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot

import numpy as np
import pandas as pd

from perfkit_core.compare.attribute.causes import by_layer, causes, explained, largest_first, waterfall
from perfkit_core.compare.explanation import DRAWN, MEAN, SHOWN_CAUSES, drawn, named
from perfkit_core.compare.pair import Asked, Pair, pair
from perfkit_core.compare.report import COLUMNS, SIDES, labels, reasons, report_of, rows, source_of
from perfkit_core.compare.statistics import (
    FASTER,
    NO_DIFFERENCE,
    PERHAPS_FASTER,
    PERHAPS_SLOWER,
    SLOWER,
    TOO_FEW,
    Capture,
    SampleStatistics,
    of_steps,
)
from perfkit_core.language.messages import Message, mark, message, say
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Report, Section, declared


@dataclass(frozen=True, slots=True)
class Change:
    """In ns. ``before`` and ``now``: what the median step of other takes more than that of base, in the earlier pair
    and in this one. ``change`` is now less before, ``low`` to ``high`` its 95 % interval, ``noise`` what it may be
    between equal pairs (None: too few steps). ``verdict`` as of steps: slower where other has lost."""

    before: int
    now: int
    low: int | None
    high: int | None
    noise: int | None
    verdict: str

    @property
    def change(self) -> int:
        """How much longer the step of other takes than before, compared with base."""
        return self.now - self.before


def change(before: Pair, now: Pair) -> Change | None:
    """The change of the difference; None where a run has no steps."""
    if before.steps is None or now.steps is None:
        return None
    alone = _alone(before, now)
    if alone is not None:
        return Change(before.steps.difference, now.steps.difference, alone.low, alone.high, alone.noise, alone.verdict)
    return _of_both(before.steps, now.steps)


def _alone(before: Pair, now: Pair) -> SampleStatistics | None:
    """The statistics of the two runs that are left where the others are the same."""
    (base, other), (old_base, old_other) = now.captures, before.captures
    between = max(now.between, before.between)
    if _same(base, old_base):
        return of_steps(_steps(old_other), _steps(other), between)
    if _same(other, old_other):
        return of_steps(_steps(base), _steps(old_base), between)
    return None


def _same(one: Sequence[Capture], other: Sequence[Capture]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a.step_ns, b.step_ns) for a, b in zip(one, other, strict=True))


def _steps(captures: Sequence[Capture]) -> list[np.ndarray]:
    return [one.step_ns for one in captures]


def _of_both(before: SampleStatistics, now: SampleStatistics) -> Change:
    whole = now.difference - before.difference
    known = (before.low, before.high, now.low, now.high, before.noise, now.noise)
    if any(value is None for value in known):
        return Change(before.difference, now.difference, None, None, None, TOO_FEW if whole else NO_DIFFERENCE)
    b_low, b_high, n_low, n_high, b_noise, n_noise = (float(value or 0) for value in known)
    low = round(whole - hypot(now.difference - n_low, b_high - before.difference))
    high = round(whole + hypot(n_high - now.difference, before.difference - b_low))
    noise = round(hypot(b_noise, n_noise))
    beyond = not low <= 0 <= high and abs(whole) > noise
    verdict = (SLOWER if whole > 0 else FASTER) if beyond else NO_DIFFERENCE
    return Change(before.difference, now.difference, low, high, noise, verdict)


CAUSE = ("operator", "category", "place", "phase", "family")


def new_causes(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Of two trees of :func:`~perfkit_core.compare.attribute.attribute`: operator, category, place, phase, family,
    before_difference_ns, now_difference_ns (other less base, of the earlier pair and of this one), difference_ns (now
    less before), explained_ratio (of the whole change, by this row and those before it). Largest changes first; they
    sum to the change of the difference of the medians."""
    return _changed(causes(before), causes(now), CAUSE)


def new_layers(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """The same by layer, with the column layer in front. No rows where not all runs have layers."""
    first, last = by_layer(before), by_layer(now)
    if first.empty or last.empty:
        first, last = first.head(0), last.head(0)
    return _changed(first, last, ("layer",))


def changes(found: Change) -> pd.DataFrame:
    """One row: verdict, before_difference_ns, now_difference_ns, difference_ns (the change), low_ns, high_ns (its 95 %
    interval), noise_ns."""
    row = {
        "verdict": found.verdict, "before_difference_ns": found.before, "now_difference_ns": found.now,
        "difference_ns": found.change, "low_ns": found.low, "high_ns": found.high, "noise_ns": found.noise,
    }  # fmt: skip
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def _changed(before: pd.DataFrame, now: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    names = list(keys)
    sides = zip(("before", "now"), (before, now), strict=True)
    parts = [table.set_index(names)["difference_ns"].rename(f"{side}_difference_ns") for side, table in sides]
    joined = pd.concat(parts, axis=1).fillna(0).astype(np.int64).reset_index()
    joined["difference_ns"] = joined["now_difference_ns"] - joined["before_difference_ns"]
    return explained(largest_first(joined, names))


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
    found = _New(change(before, now), new_causes(*trees), new_layers(*trees), _ends(trees))
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
        yield Section("new_step_time", say("Is it real?"), changes(found.step), say(_NOTE))
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
    step = None if found.step is None else rows(changes(found.step))[0]
    return {"step_time": step, "causes": rows(found.causes), "layers": rows(found.layers)}
