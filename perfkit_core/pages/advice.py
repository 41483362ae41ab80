"""All advice as a page to send on: each with its interval, what it rests on, what to write and how to measure it.

The parts are the sections that ``--explain`` shows, of every advice; the page only puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.advice import explain, reports, text
from perfkit_core.advice import ledger as outcomes
from perfkit_core.advice.advice import Advice, Advices
from perfkit_core.advice.reports import intervals, overview
from perfkit_core.advice.text import step_or_recording
from perfkit_core.language.messages import say
from perfkit_core.model.trace import Trace
from perfkit_core.report import facts
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.verify.ledger import Record

_ORDER: Final = ("action", "outcome", "evidence", "trust", "risks", "transform")
"""Parts of an advice, in the order in which they are needed."""
_FOLDED: Final = ("transform",)


def report(found: Advices, trace: Trace, records: Sequence[Record] | None = None) -> Report:
    """Every advice whole, what it comes to, and what could not be told. ``records``: the outcomes that were measured
    of these rules (None: nobody looked)."""
    of = step_or_recording(trace)
    source = facts.source(trace)
    each = (part for number, _ in enumerate(found.advice) for part in _one(number, found, trace, records))
    ledger = () if records is None else outcomes.sections(records)
    parts = (overview(found), *each, *reports.sections(found, of), *ledger)
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), declared(parts, outcomes.COLUMNS), headline=tuple(text.headline(found, of)))


def explained(one: Advice, found: Advices, trace: Trace, records: Sequence[Record] | None = None) -> Report:
    """One advice alone, also one that saves nothing."""
    ledger = () if records is None else outcomes.sections(records)
    parts = (*_whole(one, one.title, found, trace, records or ()), *ledger)
    return Report(f"{one.id}: {one.title}", (facts.source(trace),), declared(parts, outcomes.COLUMNS))


def _one(number: int, found: Advices, trace: Trace, records: Sequence[Record] | None) -> Iterator[Section]:
    one = found.advice[number]
    title = text.title(number + 1, one, found.asked[number] if found.asked else None)
    return _whole(one, title, found, trace, records or ())


def _whole(one: Advice, title: str, found: Advices, trace: Trace, records: Sequence[Record]) -> Iterator[Section]:
    """What was found and what it saves, then the parts of it."""
    told = {section.name: section for section in explain.report(one, found, trace, records).sections}
    what, prediction = told["what"], told["prediction"]
    name = f"advice-{one.id}"
    yield replace(_drawn(prediction), name=name, title=title, lines=(*what.lines, *prediction.lines))
    for part in _ORDER:
        section = told[part] if part != "outcome" else _with_records(told[part], one, records)
        yield replace(section, name=f"{name}-{part}", within=name, folded=part in _FOLDED)


def _drawn(prediction: Section) -> Section:
    """With its picture, without a table where there is no number."""
    if prediction.table["p50_ns"].isna().all():
        return replace(prediction, table=pd.DataFrame())
    return replace(prediction, chart=intervals("method"))


def _with_records(outcome: Section, one: Advice, records: Sequence[Record]) -> Section:
    """With the measurements of this advice, else of others of its rule."""
    own = outcomes.of_advice(one, records) or outcomes.of_rule(one, records)
    return replace(outcome, table=outcomes.table(own), chart=outcomes.CHART) if own else outcome
