"""The comparison as a Report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfkit_core.comparison import as_data, normalise, peaks
from perfkit_core.comparison.attribution.sections import explained, sections, sentences
from perfkit_core.comparison.gate import table as gate_table
from perfkit_core.comparison.pair import Asked, Pair, pair
from perfkit_core.comparison.samples.outliers import outliers
from perfkit_core.comparison.sentences import headline
from perfkit_core.comparison.sides import Comparison, compare
from perfkit_core.report.facts import source
from perfkit_core.report.model import Report, Section, Source
from perfkit_core.trace import Trace

SHOWN_OPERATORS = 30
SHOWN_OUTLIERS = 10
_PLAIN = Asked()
_OF_STATISTICS = (
    "The difference of the median steps, other less base, with its 95% interval; noise: what equal runs may differ by; "
    "probability slower: how likely a step of other is longer than one of base (0.5: as likely as not)."
)


def comparison_report(base: Trace | Sequence[Trace], other: Trace | Sequence[Trace], asked: Asked = _PLAIN) -> Report:
    """The report on two runs, each a trace or several captures. Raises UsageError for what cannot be answered."""
    sides = [[one] if isinstance(one, Trace) else list(one) for one in (base, other)]
    return report_of(pair(sides[0], sides[1], asked), sides)


def report_of(found: Pair, sides: Sequence[Sequence[Trace]]) -> Report:
    """Sections gate, step_time, statistics, normalised, those of
    :func:`~perfkit_core.comparison.attribution.sections.sections`, devices (each where it tells something), phases,
    overview, operators, outliers. ``data`` is what :mod:`perfkit_core.comparison.as_data` says."""
    tables = compare(*found.whole)
    why = explained(*found.whole, medians=_medians(found))
    return Report(
        " and ".join(str(trace.meta.framework) for trace in found.whole) + " compared",
        tuple(_side(side, name) for side, name in zip(sides, ("base", "other"), strict=True)),
        (
            *_verdict(found, tables),
            *_by_work(found),
            *sections(why),
            *_devices(found),
            *_tables(tables),
            *_outliers(found),
        ),
        headline=headline(found, why.alignment.matched, sentences(why)),
        data=as_data.data(found, why.attribution, why.alignment.rows, why.alignment.matched_share),
    )


def _medians(found: Pair) -> tuple[int, int] | None:
    """The medians that the page compares, None without steps."""
    return None if found.steps is None else (found.steps.base, found.steps.other)


def _side(captures: Sequence[Trace], name: str) -> Source:
    """The first capture's head; of several, their number and the findings of all."""
    found = [source(trace) for trace in captures]
    findings = tuple(dict.fromkeys(finding for one in found for finding in one.quality))
    several = {"Captures": f"{len(found)} captures"} if found[1:] else {}
    return replace(found[0], label=f"{name}: {found[0].label}", quality=findings, facts={**found[0].facts, **several})


def _verdict(found: Pair, tables: Comparison) -> Iterator[Section]:
    if found.outcomes:
        note = "A condition fails where its limit is exceeded by more than noise explains."
        yield Section("gate", "Gate", gate_table.table(found.outcomes), note)
    yield Section("step_time", "Step time", tables.step_time, empty="steps are needed in both runs")
    if found.steps is not None:
        yield Section("statistics", "How sure is the difference?", as_data.table(found.steps), _OF_STATISTICS)


def _by_work(found: Pair) -> Iterator[Section]:
    if found.normalised is not None:
        note = "The median step, divided by the work of a step."
        yield Section("normalised", "For the same work", normalise.table([found.normalised]), note)


def _devices(found: Pair) -> Iterator[Section]:
    sides = tuple(zip(("base", "other"), found.whole, strict=True))
    if peaks.different([trace for _, trace in sides]):
        note = "Peaks by the makers' data sheets, dense, where the product is certain; matrix16: FP16 and BF16."
        yield Section("devices", "Devices", peaks.table(sides), note)


def _tables(tables: Comparison) -> Iterator[Section]:
    per = "for each step; calls are of all steps" if tables.per_step else "for the run, as not both have steps"
    note = f"Time in the outermost operators of each name, {per}."
    yield Section("phases", "Phases of the step", tables.phases, f"Host time {per}.", empty="no phases were recorded")
    yield Section("overview", "Overview by kind of event", tables.overview, f"Covered time {per}.")
    yield Section("operators", "Operators by canonical name", tables.operators, note, limit=SHOWN_OPERATORS)


def _outliers(found: Pair) -> Iterator[Section]:
    late = outliers({"base": found.captures[0], "other": found.captures[1]})
    if len(late):
        note = "Much longer than the other steps of their capture. They count; medians hardly move by them."
        yield Section("outliers", "Outlying steps", late, note, limit=SHOWN_OUTLIERS)
