"""The report on the comparison of two runs, and the same content as plain data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import SIDES, mark, message, say, worded
from perfkit_core.compare import changes, comparison, explanation, headline, memory, noise
from perfkit_core.compare.align.align import align
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.attribute.causes import of_operators, unlike, waterfall
from perfkit_core.compare.gate import conditions as gate
from perfkit_core.compare.pair import CompareOptions, Pair, distinguishing, pair, work_table
from perfkit_core.compare.pieces import PHRASES
from perfkit_core.compare.statistics import SampleStatistics, StepSamples, outliers
from perfkit_core.output.report.source_facts import source
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.columns import DEVICE, HOST, Column, column, count, duration, key, share, text, words
from perfkit_core.trace.model.report_data import Chart, Fact, Report, Section, Source, declared
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.activity import has_device_work

_COMPARED: Final = (
    text("base", "Base"),
    text("other", "Other"),
    duration("difference_ns", "Difference"),
    duration("base_ns", "Base"),
    duration("other_ns", "Other"),
    duration("base_device_ns", "Base device", place=DEVICE),
    duration("other_device_ns", "Other device", place=DEVICE),
    duration("difference_device_ns", "Difference device", place=DEVICE),
    duration("base_cpu_ns", "Base CPU", place=HOST),
    duration("other_cpu_ns", "Other CPU", place=HOST),
    duration("difference_cpu_ns", "Difference CPU", place=HOST),
    count("base_calls", "Base calls"),
    count("other_calls", "Other calls"),
    count("base_steps", "Base steps"),
    count("other_steps", "Other steps"),
    count("base_captures", "Base captures"),
    count("other_captures", "Other captures"),
    duration("count_effect_ns", "Count effect", quantity=""),
    duration("per_call_effect_ns", "Per call effect", quantity=""),
    duration("time_so_far_ns", "Time so far", quantity=""),
    duration("before_difference_ns", "Before difference"),
    duration("now_difference_ns", "Now difference"),
    *(
        share(f"{run}_{what}_ratio", f"{run.capitalize()} {title}", place=place)
        for run in ("base", "other")
        for what, title, place in (("step", "step", ""), ("device", "device", DEVICE), ("cpu", "CPU", HOST))
    ),
)
COLUMNS: Final[tuple[Column, ...]] = (
    *(replace(declaration, quantity=columns.quantity(declaration)[1]) for declaration in _COMPARED),
    key("name", "Name", words=SIDES),
    key("run", "Run", words=SIDES),
    key("side", "Side", words=SIDES),
    count("captures", "Captures"),
    text("layer", "Layer"),
    words("level", "Level"),
    text("family", "Family"),
    text("operator", "Operator"),
    text("kernel", "Kernel"),
    text("shape", "Shape"),
    share("explained_ratio", "Explained so far"),
    words("statistic", "Statistic"),
    words("verdict", "Verdict"),
    text("cliffs_delta", "Cliffs delta"),
    text("probability_slower", "Probability slower"),
    duration("low_ns", "Low"),
    duration("median_ns", "Median"),
    duration("high_ns", "High"),
    text("outlying", "Outlying"),
    words("found", "Found", kind=columns.DESCRIPTION),
    text("condition", "Condition"),
    words("result", "Result"),
    share("change_ratio", "Change", quantity=columns.CHANGE),
    text("capture", "Capture"),
    key("category", "Category", words=(*PHRASES.items(), (BESIDE_MEDIAN, BESIDE_MEDIAN))),
    words("phase", "Phase"),
    words("place", "Place"),
    words("kind", "Kind"),
    Column("matrix16_tflop_per_s", "Matrix16", unit="tflop_per_s"),
    Column("float32_tflop_per_s", "Float32", unit="tflop_per_s"),
    Column("memory_gb_per_s", "Memory", unit="gb_per_s"),
    columns.size("device_memory_bytes", "Device memory", heading="complete"),
)

_SCREEN: Final = ("gate", "runs", "serving", "new_waterfall", "waterfall", "operators_device", "operators")
"""Tables of the first look."""
_MOSTLY: Final = 0.5
"""Operators are shown if they launched at least this share of the device time in both runs."""
_OF_MEMORY: Final = ("memory_categories", "memory_peak")
"""Tables of the first look if only memory was recorded."""
SHOWN_OPERATORS, SHOWN_STEPS, SHOWN_OUTLIERS = 30, 10, 10
_PLAIN = CompareOptions()
_NOTES = (
    mark("Time and calls on the host."),
    mark("Overlapping events count once in the time."),
    mark("Time and calls of the outermost operators of each name."),
)
_OF_STATISTICS = mark(
    "Difference: median step of the other run minus median step of the base run. Low and high: its 95% interval. "
    "Noise: the difference that equal runs may show. Probability slower: the probability that a step of the other run "
    "takes longer than a step of the base run; 0.5 means no effect."
)


def comparison_report(
    base: Trace | Sequence[Trace],
    other: Trace | Sequence[Trace],
    options: CompareOptions = _PLAIN,
    names: Sequence[str] = (),
    kinds: Section | None = None,
) -> Report:
    """Return the report on two runs, each given as one trace or as several captures.

    ``names`` are the labels of the runs; by default they are made from the file names. ``kinds`` is the table of the
    steps of two servers (:mod:`perfkit_core.compare.kinds_table`). Raises UsageError for options that do not apply to
    the runs.
    """
    sides = [[side] if isinstance(side, Trace) else side for side in (base, other)]
    result = pair(sides[0], sides[1], options)
    report = report_of(result, tables_of(result), names, options.by)
    if kinds is None:
        return report
    gates = [section for section in report.sections if section.name == "gate"]
    other_sections = report.sections[len(gates) :]
    return replace(report, sections=(*gates, *declared([kinds], COLUMNS), *other_sections))


def tables_of(result: Pair) -> comparison.Comparison:
    return comparison.Comparison(align(*result.traces, result.windows), result.runs)


def report_of(result: Pair, tables: comparison.Comparison, names: Sequence[str] = (), by: Sequence[str] = ()) -> Report:
    """Return the report on a compared pair and its tables. ``by`` has the groupings of the table memory_peak.

    Keys of ``data``:

    - ``step_time``: the statistics of the steps; None without steps.
    - ``matched_share``: side → level → measure → share.
    - ``attribution``: the causes, whose rows sum to the difference. ``attribution_tree``: the tree of the causes.
    - ``operators``: the rows of the :class:`~perfkit_core.compare.align.align.Alignment`.
    - ``normalised`` and ``gate``, only if they were computed.
    """
    base, other = run_names = labels(result.runs, names)
    named = changes.changes(result, tables)
    largest = explanation.largest_causes(named)
    data: dict[str, Any] = {
        "step_time": None if result.steps is None else statistics(result.steps),
        "matched_share": tables.alignment.matched_share,
        "attribution": rows(tables.causes),
        "attribution_tree": rows(tables.attribution),
        "operators": rows(tables.alignment.rows),
    }
    if result.normalised is not None:
        works = (result.normalised.base, result.normalised.other)
        data["normalised"] = {
            "per": result.normalised.name, "amounts": [float(work.amount) for work in works],
            "origins": [work.origin for work in works], "per_s": list(result.normalised.per_s),
            **statistics(result.normalised.statistics),
        }  # fmt: skip
    if result.outcomes:
        data["gate"] = gate.data(result.outcomes)
    return Report(
        say("{name} against itself", name=base)
        if base == other
        else say("{other} against {base}", other=other, base=base),
        tuple(source_of(*side) for side in zip(result.runs, SIDES, run_names, strict=True)),
        (
            *declared(_sections(result, tables, named), COLUMNS),
            *memory.sections(result.runs[0][0], result.runs[1][0], by),
        ),
        headline=headline.headline(
            result,
            tables.alignment,
            [
                *changes.sentences(result, tables),
                *([message(explanation.LARGEST, causes=largest)] if largest else []),
            ],
        ),
        warnings=headline.warnings(result),
        data=data,
    )


def _sections(result: Pair, tables: comparison.Comparison, named: pd.DataFrame) -> Iterator[Section]:
    runs = dict(zip(SIDES, result.captures, strict=True))
    if result.outcomes:
        yield gate.section(gate.table(result.outcomes))
    if not (tree := tables.attribution).empty and not headline.is_incomplete(result):
        base, other = tree[["base_ns", "other_ns"]].iloc[0].tolist()
        bars = waterfall(named, ("base", base), ("other", other), explanation.DRAWN)
        yield explanation.drawn("waterfall", say("From base to other"), bars)
    yield from step_section(runs, None if result.steps is None else result.steps.noise)
    of_ranks = any(samples.of_ranks for side in result.captures for samples in side)
    note = say("The statistics include the steps of all ranks.") if of_ranks and len(tables.step_time) else ""
    yield Section("step_time", say("Step time"), tables.step_time, note, say("steps are needed in both runs"))
    if result.steps is not None:
        note = say(_OF_STATISTICS)
        if of_ranks:
            note += " " + say("A step on several ranks is one sample.")
        steps = result.steps
        row = {
            "verdict": steps.verdict, "difference_ns": steps.difference, "low_ns": steps.low, "high_ns": steps.high,
            "noise_ns": steps.noise, "probability_slower": steps.probability_slower,
            "cliffs_delta": steps.cliffs_delta, "base_steps": steps.steps[0], "other_steps": steps.steps[1],
            "base_captures": steps.captures[0], "other_captures": steps.captures[1],
        }  # fmt: skip
        yield Section("statistics", say("Confidence in the difference"), nullable(row), note)
    if result.normalised is not None:
        note = say("Median step time per unit of work.")
        yield Section("normalised", say("For the same work"), work_table(result.normalised), note)
    if comparison.different_devices(result.traces):
        note = say("Dense peak rates from vendor data sheets; uncertain rates are missing. Matrix16: FP16 and BF16.")
        yield Section(
            "devices", say("Devices"), comparison.device_table([*zip(SIDES, result.traces, strict=True)]), note
        )

    yield from explanation.attribution_sections(tables)
    yield from explanation.alignment_sections(tables.alignment)
    of = say(explanation.PER_STEP if tables.per_step else explanation.PER_RUN)
    phases, overview, operators = (f"{say(note)} {of}" for note in _NOTES)
    none = say("no phases were recorded")
    yield Section("phases", say("Phases of the step"), tables.phases, phases, none)
    yield Section("overview", say("Overview by kind of event"), tables.overview, overview)
    on_device = dict(zip(SIDES, map(has_device_work, result.traces), strict=True))
    by_name = comparison.known_device_times(tables.operators, on_device)
    yield Section("operators", say("Operators by canonical name"), by_name, operators, limit=SHOWN_OPERATORS)
    late = outliers(runs)
    if len(late):
        note = say(
            "These steps are much longer than the other steps of their capture. All tables include them, but they "
            "hardly affect medians."
        )
        yield Section("outliers", say("Outlying steps"), late, note, limit=SHOWN_OUTLIERS)


def first_look(report: Report, lead: str = "") -> Report:
    """Return the report with its main tables, for one screen. ``lead`` is the command that shows the rest."""
    sections = {section.name: section for section in report.sections if not section.table.empty}
    names = list(_SCREEN)
    if "operators_device" in sections:
        names.remove("operators")
    elif "kernels" in sections:
        shares = of_operators(sections["causes"].table)
        if not report.data["step_time"] or unlike(shares) or (shares and min(shares) < _MOSTLY):
            names[-1] = "families" if "devices" in sections else "kernels"  # Devices of vendors have other kernels.
    shown = tuple(most_different(_of_what_limits(sections[name], sections)) for name in names if name in sections)
    shown = shown or tuple(sections[name] for name in _OF_MEMORY if name in sections)
    return replace(without_causes(report), sections=shown, next=lead)


def _of_what_limits(section: Section, sections: Mapping[str, Section]) -> Section:
    """Return the table of operators with the times of the device or of the host only, whichever takes longer."""
    parts = sections.get("step_parts")
    if section.name != "operators" or parts is None or "place" not in parts.table:
        return section
    times = parts.table[["base_ns", "other_ns"]].sum(axis=1).groupby(parts.table["place"]).sum()
    hidden = "_cpu_ns" if 2 * times.get("device", 0) > times.sum() else "_device_ns"
    return replace(section, table=section.table.loc[:, [not str(name).endswith(hidden) for name in section.table]])


def without_causes(report: Report) -> Report:
    """Return the report without the sentence on the largest causes, which the waterfall shows."""
    largest = explanation.LARGEST
    headline = tuple(text for text in report.headline if (text if isinstance(text, str) else text.template) != largest)
    return replace(report, headline=headline)


def most_different(section: Section) -> Section:
    """Return the section of operators, sorted by how much their device time differs, or their host time without one."""
    table = section.table
    for name in ("difference_device_ns", "difference_cpu_ns"):
        if name in table.columns and table[name].any():
            order = table[name].fillna(0).abs().sort_values(ascending=False, kind="stable").index
            return replace(section, table=table.loc[order].reset_index(drop=True))
    return section


def step_section(runs: Mapping[str, Sequence[StepSamples]], noise_ns: int | None) -> Iterator[Section]:
    """Yield the section "steps", with one row per step. If no run has steps, yield nothing. ``noise_ns`` is the noise
    band of the first run.

    In the table, dur_ns is the step time, averaged over the ranks. median_ns is the median over all steps and ranks.
    """
    parts = []
    for name, captures in runs.items():
        for number, samples in enumerate(captures, 1):
            if len(samples.step):
                median = int(np.median(noise.pool([capture.step_ns for capture in captures])))
                steps = {"run": name, "capture": number, "step": samples.step, "dur_ns": samples.mean_ns}
                parts.append(pd.DataFrame({**steps, "median_ns": median, "outlying": samples.outlying}))
    if not parts:
        return
    table = pd.concat(parts, ignore_index=True)
    base = next(iter(runs))
    medians = table.loc[table["run"] == base, "median_ns"].head(1).tolist()
    band = None if noise_ns is None or not medians else (medians[0] - noise_ns, medians[0] + noise_ns)
    legend = say("Each point is a step, and the vertical line is the median of the run. Outlying steps are labelled.")
    if band is not None:
        shown = worded(base, column(COLUMNS, "run"))
        legend += " " + say("The shaded band shows where the median of a run equal to {base} may lie.", base=shown)
    chart = Chart("distribution", "run", ("dur_ns", "median_ns"), band=band, note=legend)
    # The rows of the runs alternate, so that the first rows show every run.
    row_of_run = table.groupby("run", sort=False).cumcount()
    table = table.loc[row_of_run.sort_values(kind="stable").index].reset_index(drop=True)
    if not (table["capture"] > 1).any():
        table = table.drop(columns="capture")
    note = ""
    if any(samples.of_ranks for captures in runs.values() for samples in captures):
        note = say("Duration: step time, averaged over the ranks. Median: median step time of the run, over all ranks.")
    yield Section("steps", say("Every step"), table, note, limit=SHOWN_STEPS, chart=chart)


def nullable(row: Mapping[str, object]) -> pd.DataFrame:
    """Return a table of one row, in which low_ns, high_ns and noise_ns may be missing."""
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def statistics(steps: SampleStatistics) -> dict[str, Any]:
    """Return the statistics as plain data. The interval and the noise are None if there are too few steps."""
    return {
        "unit": "ns", "base": steps.base, "other": steps.other, "difference": steps.difference,
        "interval": None if steps.low is None else [steps.low, steps.high], "verdict": steps.verdict,
        "change_ratio": steps.change_ratio, "noise": steps.noise, "probability_slower": steps.probability_slower,
        "cliffs_delta": steps.cliffs_delta, "quickest": steps.quickest,
        "steps": list(steps.steps), "captures": list(steps.captures),
    }  # fmt: skip


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def labels(sides: Sequence[Sequence[Trace]], names: Sequence[str] = ()) -> Sequence[str]:
    """Return the labels of the runs: ``names`` if given, else the parts in which their paths differ."""
    paths = [Path(side[0].meta.source) for side in sides]
    names = [paths[0].name] * 2 if paths[0] == paths[1] else names or distinguishing(paths)
    return [
        say("{name} and {count} more", name=name, count=len(side) - 1) if len(side) > 1 else name
        for name, side in zip(names, sides, strict=True)
    ]


def source_of(captures: Sequence[Trace], side: str, name: str) -> Source:
    """Return the source of a run, with the facts of its first capture and the data-quality warnings of all captures."""
    sources = [source(trace) for trace in captures]
    findings = tuple(dict.fromkeys(finding for capture in sources for finding in capture.quality))
    captured = Fact(str(len(sources)), say("{count} captures", count=len(sources)))
    several = {mark("Captures"): captured} if sources[1:] else {}
    label = say("{side}: {name}", side=say(side), name=name)
    return replace(sources[0], label=label, quality=findings, facts={**sources[0].facts, **several})
