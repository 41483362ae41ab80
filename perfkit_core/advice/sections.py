"""Advice as a Report, and as sections of one: what every renderer can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.advice import headline, identity, measured, sentences, totals
from perfkit_core.advice import in_sum as sums
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.advice.overview import overview
from perfkit_core.advice.table import row_types, table
from perfkit_core.analyses.select import step_numbers
from perfkit_core.language import in_english, say
from perfkit_core.paths import PathLike
from perfkit_core.report import facts
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.trace import Trace
from perfkit_core.verification.ledger import Record

FIRST: Final = 3
"""Advice that a report on a whole profile shows in words."""
_MORE: Final = in_english("All that the first advice rests on: perfkit advise {source} --explain {id}.")


def report(found: Advices, trace: Trace, records: Sequence[Record] = (), every: bool = False) -> Report:
    """All advice in words, with what was measured of it before (``records``), then what it saves together and what
    could not be told; ``every``: all rules that could not be evaluated."""
    of = step_or_recording(trace)
    texts = [in_words(number, one, found, of, records) for number, one in enumerate(found.advice, 1)]
    source = facts.source(trace)
    parts = (*texts, in_sum(found, of, every))
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), parts, headline=tuple(headline.of(found, of)))


def of_page(trace: Trace) -> tuple[Section, ...]:
    """For a page on the profile: all advice as a table, what it adds up to, and what saves most in words. Whatever goes
    wrong, the page has its other sections."""
    from perfkit_core.advice.advise import advise

    try:
        found = advise(trace)
    except Exception as error:
        return _without(say("no advice could be given ({error})", error=f"{type(error).__name__}: {error}"))
    of = step_or_recording(trace)
    texts = [in_words(number, one, found, of) for number, one in enumerate(found.advice[:FIRST], 1)]
    total, *parts = totals.sections(found, of)
    whole = replace(overview(found), lines=total.lines)
    named = (replace(part, name=f"{whole.name}-{part.name}") for part in parts)
    return declared((whole, *(replace(part, within=whole.name) for part in (*texts, *named))), COLUMNS)


def elsewhere() -> tuple[Section, ...]:
    """For a page on ranks that are never in memory together."""
    return _without(say("this page reads one rank after the other; perfkit advise SOURCE reads all ranks at once"))


def _without(why: str) -> tuple[Section, ...]:
    return (Section("advice", say("Advice"), pd.DataFrame(columns=list(row_types())), empty=why, columns=COLUMNS),)


def step_or_recording(trace: Trace) -> str:
    """What the times of predictions are of."""
    return "step" if len(step_numbers(trace)) else "recording"


def in_words(number: int, advice: Advice, found: Advices, of: str, records: Sequence[Record] = ()) -> Section:
    """One advice with what was measured of it before, and its fix in code."""
    remedy = advice.remedy
    lines = [*sentences.lines(advice, found, of), *measured.lines(advice, records), *_fix(advice)]
    return Section(
        f"advice-{advice.id}",
        sentences.title(number, advice, found.asked[number - 1] if found.asked else None),
        pd.DataFrame(),
        lines=tuple(lines),
        code=remedy.code if remedy else "",
    )


def _fix(advice: Advice) -> Iterator[str]:
    remedy = advice.remedy
    if remedy is None:
        yield say("No fix is known for {framework}.", framework=advice.framework)
        return
    if remedy.note:
        yield sentences.sentence(remedy.note.strip())
    since = say(", since {version}", version=remedy.since) if remedy.since else ""
    if remedy.code:
        yield say("Do ({api}):", api=f"{remedy.api}{since}") if remedy.api else say("Do:")
    elif remedy.api:
        yield say("See {api}.", api=f"{remedy.api}{since}")


def in_sum(found: Advices, of: str, every: bool = False) -> Section:
    """What all of it comes to, and what is not known."""
    more = [say(_MORE, source=found.source, id=one.id) for one in found.advice[:1]]
    lines = (*more, *_sum(found, of, every))
    return Section("in_sum", say("In sum"), pd.DataFrame(), lines=lines)


def _sum(found: Advices, of: str, every: bool = False) -> Iterator[str]:
    yield from sums.together(found, of)
    yield from sums.gains(found)
    yield sums.replayed(found.identity, of)
    yield from sums.without_saving(found)
    yield from sums.not_evaluable(found, every)


def table_section(found: Advices, of: str) -> Section:
    """All advice, a row each."""
    note = " ".join(_sum(found, of))
    return Section("advice", say("Advice"), table(found), note=note, empty=say(headline.NOTHING), columns=COLUMNS)


def table_report(found: Advices, trace: Trace) -> Report:
    """All advice as one table, for formats that hold nothing else."""
    source = facts.source(trace)
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), (table_section(found, step_or_recording(trace)),))


def identity_report(sources: Sequence[PathLike], partial: bool = False) -> Report:
    """How well the unchanged recordings repeat themselves. Raises SourceError."""
    found = identity.table(sources, partial)
    with_steps = found[found["steps"].notna()]
    lines = [] if with_steps.empty else [_summary(with_steps)]
    note = say(
        "Error of the replayed time of a step, without steps of the whole recording; unexplained: device work that "
        "starts later than anything recorded explains, so that the replay keeps it wherever it was."
    )
    section = Section(
        "identity", say("Replay of unchanged recordings"), found, note, lines=tuple(lines), columns=COLUMNS
    )
    return Report(say("How well recordings repeat themselves"), (), (section,))


def _summary(found: pd.DataFrame) -> str:
    middle, worst = float(found["error_ratio"].median()), float(found["worst_error_ratio"].max())
    text = in_english("{count} of them with steps: median error {median}, worst step {worst}.")
    return say(text, count=len(found), median=f"{middle:.2%}", worst=f"{worst:.2%}")
