"""The comparison of two runs as a Report, and as plain data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.compare.attribute.causes import causes
from perfkit_core.compare.comparison import Comparison, compare, device_table, different_devices, known_device_times
from perfkit_core.compare.explanation import Explained, explained, picture, sections, sentences
from perfkit_core.compare.gate import conditions as gate_table
from perfkit_core.compare.headline import headline, warnings
from perfkit_core.compare.noise import pool
from perfkit_core.compare.pair import Asked, Normalised, Pair, distinguishing, pair, work_table
from perfkit_core.compare.statistics import Capture, SampleStatistics, late, outliers
from perfkit_core.language.messages import SIDES as SIDE_WORDS
from perfkit_core.language.messages import mark, say, worded
from perfkit_core.model.columns import Column, column, count, duration, key, share, size, text, words
from perfkit_core.model.trace import Trace
from perfkit_core.report.facts import source
from perfkit_core.report.model import Chart, Report, Section, Source, declared
from perfkit_core.views.steps.activity import has_device_work

COLUMNS: Final[tuple[Column, ...]] = (
    key("name", "Name", words=SIDE_WORDS),
    key("run", "Run", words=SIDE_WORDS),
    key("side", "Side", words=SIDE_WORDS),
    text("base", "Base"),
    text("other", "Other"),
    duration("difference_ns", "Difference"),
    duration("base_ns", "Base"),
    duration("base_step_ns", "Base step"),
    duration("other_step_ns", "Other step"),
    duration("base_cpu_ns", "Base CPU"),
    duration("other_cpu_ns", "Other CPU"),
    duration("difference_cpu_ns", "Difference CPU"),
    duration("base_device_ns", "Base device"),
    duration("other_device_ns", "Other device"),
    duration("difference_device_ns", "Difference device"),
    count("base_calls", "Base calls"),
    count("other_calls", "Other calls"),
    count("base_steps", "Base steps"),
    count("other_steps", "Other steps"),
    count("base_captures", "Base captures"),
    count("other_captures", "Other captures"),
    count("captures", "Captures"),
    text("layer", "Layer"),
    words("level", "Level"),
    text("family", "Family"),
    text("operator", "Operator"),
    text("kernel", "Kernel"),
    text("shape", "Shape"),
    duration("count_effect_ns", "Count effect"),
    duration("per_call_effect_ns", "Per call effect"),
    share("explained_ratio", "Explained"),
    duration("reached_ns", "Reached"),
    duration("time_so_far_ns", "Time so far"),
    words("statistic", "Statistic"),
    words("verdict", "Verdict"),
    text("cliffs_delta", "Cliffs delta"),
    text("probability_slower", "Probability slower"),
    duration("low_ns", "Low"),
    duration("median_ns", "Median"),
    duration("high_ns", "High"),
    share("noise_ratio", "Noise"),
    text("outlying", "Outlying"),
    words("found", "Found"),
    text("condition", "Condition"),
    text("limit", "Limit"),
    words("result", "Result"),
    share("change_ratio", "Change"),
    text("capture", "Capture"),
    words("category", "Category"),
    words("phase", "Phase"),
    words("place", "Place"),
    words("part", "Part"),
    words("kind", "Kind"),
    Column("matrix16_tflop_per_s", "Matrix16", "tflop_per_s"),
    Column("float32_tflop_per_s", "Float32", "tflop_per_s"),
    Column("memory_gb_per_s", "Memory", "gb_per_s"),
    size("device_memory_bytes", "Device memory"),
    share("unexplained_ratio", "Unexplained"),
    duration("covered_ns", "Covered"),
    duration("other_ns", "Other"),
    text("note", "Note", words="sentences"),
    text("value", "Value", words="sentences"),
    text("rank_and_step", "Rank and step"),
    text("row", "Row"),
)

SHOWN_STEPS: Final = 10
STEP_COLUMNS: Final = ("run", "capture", "step", "dur_ns", "median_ns", "outlying")


def step_table(runs: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """A row a step, in the order of runs, captures and time: run, capture (its number in the run, from 1 on), step,
    dur_ns (of several ranks their mean), median_ns (of the run), outlying (much longer than the others of its capture).
    """
    parts = [
        _step_rows(name, at, one, captures) for name, captures in runs.items() for at, one in enumerate(captures, 1)
    ]
    found = [part for part in parts if len(part)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(STEP_COLUMNS))


def _step_rows(name: str, number: int, one: Capture, captures: Sequence[Capture]) -> pd.DataFrame:
    median = int(np.median(pool([each.step_ns for each in captures]))) if len(one.step) else 0
    steps = {"run": name, "capture": number, "step": one.step, "dur_ns": one.mean_ns, "median_ns": median}
    return pd.DataFrame({**steps, "outlying": late(one)}, columns=list(STEP_COLUMNS))


def step_section(runs: Mapping[str, Sequence[Capture]], noise_ns: int | None) -> Iterator[Section]:
    """The section steps, where one of the runs has some. ``noise_ns``: what the first run and its equals differ by."""
    steps = step_table(runs)
    if steps.empty:
        return
    base = next(iter(runs))
    medians = steps.loc[steps["run"] == base, "median_ns"].head(1).tolist()
    band = None if noise_ns is None or not medians else (medians[0] - noise_ns, medians[0] + noise_ns)
    note = say("A point is a step, the upright line the median of the run; steps far out have a name.")
    if band is not None:
        shown = worded(base, column(COLUMNS, "run"))
        note += " " + say("Shaded is where the median of a run equal to {base} may lie.", base=shown)
    chart = Chart("distribution", "run", ("dur_ns", "median_ns"), band=band, note=note)
    found = _told_apart(_alternating(steps))
    yield Section("steps", say("Every step"), found, _of_ranks(runs), limit=SHOWN_STEPS, chart=chart)


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


def data(found: Pair, attribution: pd.DataFrame, operators: pd.DataFrame, matched_share: Any) -> dict[str, Any]:
    """``step_time`` (None without steps), ``matched_share`` (side → level → place → share), ``attribution`` (rows
    that sum to the difference), ``attribution_tree`` (rows without children sum to it), ``operators`` (rows of an
    :class:`~perfkit_core.compare.align.align.Alignment`); ``normalised`` and ``gate`` where asked."""
    more: dict[str, Any] = {}
    if found.normalised is not None:
        more["normalised"] = _normalised(found.normalised)
    if found.outcomes:
        more["gate"] = gate_table.data(found.outcomes)
    return {
        "step_time": None if found.steps is None else statistics(found.steps),
        "matched_share": matched_share,
        "attribution": rows(causes(attribution)),
        "attribution_tree": rows(attribution),
        "operators": rows(operators),
        **more,
    }


def statistics(found: SampleStatistics) -> dict[str, Any]:
    """Median step in ns, other less base, its 95 % interval (None: too few steps), and what that rests on."""
    return {
        "unit": "ns", "base": found.base, "other": found.other, "difference": found.difference,
        "interval": None if found.low is None else [found.low, found.high], "verdict": found.verdict,
        "change_ratio": found.change_ratio, "noise": found.noise, "probability_slower": found.probability_slower,
        "cliffs_delta": found.cliffs_delta, "quickest": found.quickest,
        "steps": list(found.steps), "captures": list(found.captures),
    }  # fmt: skip


def table(found: SampleStatistics) -> pd.DataFrame:
    """One row: verdict, difference_ns, low_ns, high_ns, noise_ns, probability_slower, cliffs_delta, and for base and
    other the number of steps and captures."""
    row = {
        "verdict": found.verdict, "difference_ns": found.difference, "low_ns": found.low, "high_ns": found.high,
        "noise_ns": found.noise, "probability_slower": found.probability_slower, "cliffs_delta": found.cliffs_delta,
        "base_steps": found.steps[0], "other_steps": found.steps[1],
        "base_captures": found.captures[0], "other_captures": found.captures[1],
    }  # fmt: skip
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping a row; unknown is None."""
    return [
        {str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _normalised(one: Normalised) -> dict[str, Any]:
    works = (one.base, one.other)
    return {
        "per": one.name, "amounts": [float(work.amount) for work in works], "origins": [work.origin for work in works],
        "per_s": list(one.per_s), **statistics(one.statistics),
    }  # fmt: skip


SHOWN_OPERATORS = 30
SHOWN_OUTLIERS = 10
_PLAIN = Asked()
SIDES = ("base", "other")
_PER_STEP = (
    mark("Mean host time and calls of a step."),
    mark("Mean covered time and calls of a step."),
    mark("Mean time and calls of a step in the outermost operators of each name."),
)
_PER_RUN = (
    mark("Host time of the run, as not both have steps."),
    mark("Covered time of the run, as not both have steps."),
    mark("Time of the run in the outermost operators of each name, as not both have steps."),
)
_OF_STATISTICS = mark(
    "The difference of the median steps, other less base, with its 95% interval; noise: what equal runs may differ by; "
    "probability slower: how likely a step of other is longer than one of base (0.5: as likely as not)."
)


def comparison_report(
    base: Trace | Sequence[Trace],
    other: Trace | Sequence[Trace],
    asked: Asked = _PLAIN,
    names: Sequence[str] = (),
) -> Report:
    """The report on two runs, each a trace or several captures; ``names``: what the two are called, else as their
    files are. Raises UsageError for what cannot be answered."""
    sides = [[one] if isinstance(one, Trace) else list(one) for one in (base, other)]
    return report_of(pair(sides[0], sides[1], asked), sides, names)


def report_of(
    found: Pair, sides: Sequence[Sequence[Trace]], names: Sequence[str] = (), why: Explained | None = None
) -> Report:
    """Sections gate, waterfall, steps, step_time, statistics, normalised, devices (each where it tells something),
    those of :func:`~perfkit_core.compare.explanation.sections`, phases, overview, operators, outliers.
    ``data`` is what :mod:`perfkit_core.compare.report` says."""
    tables = compare(*found.whole)
    why = why or reasons(found)
    return Report(
        title(sides, names),
        tuple(source_of(*one) for one in zip(sides, SIDES, labels(sides, names), strict=True)),
        declared(
            (
                *_gate(found),
                *picture(why),
                *_steps(found),
                *_verdict(found, tables),
                *_by_work(found),
                *_devices(found),
                *sections(why),
                *_tables(tables),
                *_outliers(found),
            ),
            COLUMNS,
        ),
        headline=headline(found, why.alignment.matched, sentences(why)),
        warnings=warnings(found),
        data=data(found, why.attribution, why.alignment.rows, why.alignment.matched_share),
    )


def title(sides: Sequence[Sequence[Trace]], names: Sequence[str] = ()) -> str:
    """``change against main``: what tells the runs apart."""
    base, other = labels(sides, names)
    if base == other:
        return say("{name} against itself", name=base)
    return say("{other} against {base}", other=other, base=base)


def labels(sides: Sequence[Sequence[Trace]], names: Sequence[str] = ()) -> Sequence[str]:
    """What the runs are called: by ``names``, else by what tells their files apart."""
    paths = [Path(side[0].meta.source) for side in sides]
    found = [paths[0].name] * 2 if paths[0] == paths[1] else names or distinguishing(paths)
    return [_with_more(name, len(side) - 1) for name, side in zip(found, sides, strict=True)]


def _with_more(name: str, more: int) -> str:
    return say("{name} and {count} more", name=name, count=more) if more else name


def reasons(found: Pair) -> Explained:
    """Where the difference of the medians comes from that the page compares; of whole runs without steps."""
    return explained(*found.whole, medians=None if found.steps is None else (found.steps.base, found.steps.other))


def source_of(captures: Sequence[Trace], side: str, name: str) -> Source:
    """The first capture's head; of several, their number and the findings of all."""
    found = [source(trace) for trace in captures]
    findings = tuple(dict.fromkeys(finding for one in found for finding in one.quality))
    several = {mark("Captures"): say("{count} captures", count=len(found))} if found[1:] else {}
    label = say("{side}: {name}", side=say(side), name=name)
    return replace(found[0], label=label, quality=findings, facts={**found[0].facts, **several})


def _gate(found: Pair) -> Iterator[Section]:
    if found.outcomes:
        yield gate_table.section(gate_table.table(found.outcomes))


def _steps(found: Pair) -> Iterator[Section]:
    runs = dict(zip(SIDES, found.captures, strict=True))
    yield from step_section(runs, None if found.steps is None else found.steps.noise)


def _verdict(found: Pair, tables: Comparison) -> Iterator[Section]:
    of_ranks = any(one.of_ranks for side in found.captures for one in side)
    note = say("Over the steps of all ranks.") if of_ranks and len(tables.step_time) else ""
    yield Section("step_time", say("Step time"), tables.step_time, note, say("steps are needed in both runs"))
    if found.steps is not None:
        title, note = say("How sure is the difference?"), say(_OF_STATISTICS)
        if of_ranks:
            note += " " + say("A step of several ranks is one sample.")
        yield Section("statistics", title, table(found.steps), note)


def _by_work(found: Pair) -> Iterator[Section]:
    if found.normalised is not None:
        note = say("The median step, divided by the work of a step.")
        yield Section("normalised", say("For the same work"), work_table([found.normalised]), note)


def _devices(found: Pair) -> Iterator[Section]:
    sides = tuple(zip(SIDES, found.whole, strict=True))
    if different_devices([trace for _, trace in sides]):
        note = say("Peaks by the makers' data sheets, dense, where the product is certain; matrix16: FP16 and BF16.")
        yield Section("devices", say("Devices"), device_table(sides), note)


def _tables(tables: Comparison) -> Iterator[Section]:
    phases, overview, operators = map(say, _PER_STEP if tables.per_step else _PER_RUN)
    none = say("no phases were recorded")
    yield Section("phases", say("Phases of the step"), tables.phases, phases, empty=none)
    yield Section("overview", say("Overview by kind of event"), tables.overview, overview)
    title = say("Operators by canonical name")
    on_device = dict(zip(SIDES, map(has_device_work, (tables.base, tables.other)), strict=True))
    yield Section("operators", title, known_device_times(tables.operators, on_device), operators, limit=SHOWN_OPERATORS)


def _outliers(found: Pair) -> Iterator[Section]:
    late = outliers(dict(zip(SIDES, found.captures, strict=True)))
    if len(late):
        note = say("Much longer than the other steps of their capture. They count; medians hardly move by them.")
        yield Section("outliers", say("Outlying steps"), late, note, limit=SHOWN_OUTLIERS)
