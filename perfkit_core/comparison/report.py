"""The comparison as a Report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfkit_core.analyses.step.activity import has_device_work
from perfkit_core.comparison import as_data, distribution, normalise, peaks
from perfkit_core.comparison.attribution.sections import Explained, explained, picture, sections, sentences
from perfkit_core.comparison.columns import COLUMNS
from perfkit_core.comparison.gate import table as gate_table
from perfkit_core.comparison.joined import known_device_times
from perfkit_core.comparison.labels import distinguishing
from perfkit_core.comparison.pair import Asked, Pair, pair
from perfkit_core.comparison.samples.outliers import outliers
from perfkit_core.comparison.sentences import headline, warnings
from perfkit_core.comparison.sides import Comparison, compare
from perfkit_core.language import in_english, say
from perfkit_core.report.facts import source
from perfkit_core.report.model import Report, Section, Source, declared
from perfkit_core.trace import Trace

SHOWN_OPERATORS = 30
SHOWN_OUTLIERS = 10
_PLAIN = Asked()
SIDES = ("base", "other")
_PER_STEP = (
    in_english("Mean host time and calls of a step."),
    in_english("Mean covered time and calls of a step."),
    in_english("Mean time and calls of a step in the outermost operators of each name."),
)
_PER_RUN = (
    in_english("Host time of the run, as not both have steps."),
    in_english("Covered time of the run, as not both have steps."),
    in_english("Time of the run in the outermost operators of each name, as not both have steps."),
)
_OF_STATISTICS = in_english(
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
    those of :func:`~perfkit_core.comparison.attribution.sections.sections`, phases, overview, operators, outliers.
    ``data`` is what :mod:`perfkit_core.comparison.as_data` says."""
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
        data=as_data.data(found, why.attribution, why.alignment.rows, why.alignment.matched_share),
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
    several = {in_english("Captures"): say("{count} captures", count=len(found))} if found[1:] else {}
    label = say("{side}: {name}", side=say(side), name=name)
    return replace(found[0], label=label, quality=findings, facts={**found[0].facts, **several})


def _gate(found: Pair) -> Iterator[Section]:
    if found.outcomes:
        yield gate_table.section(gate_table.table(found.outcomes))


def _steps(found: Pair) -> Iterator[Section]:
    runs = dict(zip(SIDES, found.captures, strict=True))
    yield from distribution.section(runs, None if found.steps is None else found.steps.noise)


def _verdict(found: Pair, tables: Comparison) -> Iterator[Section]:
    of_ranks = any(one.of_ranks for side in found.captures for one in side)
    note = say("Over the steps of all ranks.") if of_ranks and len(tables.step_time) else ""
    yield Section("step_time", say("Step time"), tables.step_time, note, say("steps are needed in both runs"))
    if found.steps is not None:
        title, note = say("How sure is the difference?"), say(_OF_STATISTICS)
        if of_ranks:
            note += " " + say("A step of several ranks is one sample.")
        yield Section("statistics", title, as_data.table(found.steps), note)


def _by_work(found: Pair) -> Iterator[Section]:
    if found.normalised is not None:
        note = say("The median step, divided by the work of a step.")
        yield Section("normalised", say("For the same work"), normalise.table([found.normalised]), note)


def _devices(found: Pair) -> Iterator[Section]:
    sides = tuple(zip(SIDES, found.whole, strict=True))
    if peaks.different([trace for _, trace in sides]):
        note = say("Peaks by the makers' data sheets, dense, where the product is certain; matrix16: FP16 and BF16.")
        yield Section("devices", say("Devices"), peaks.table(sides), note)


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
