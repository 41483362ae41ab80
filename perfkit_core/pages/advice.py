"""The page of all advice. Each item of advice has the sections of ``perfkit advise --explain``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.advice import explain, ledger, reports, text
from perfkit_core.advice.advice import Advice, Advices
from perfkit_core.base.language.messages import render, say
from perfkit_core.measure.verify.ledger import Record
from perfkit_core.output.report import source_facts
from perfkit_core.trace.model.report_data import Report, Section, declared
from perfkit_core.trace.model.trace import Trace

_ORDER: Final = ("action", "outcome", "evidence", "trust", "risks", "transform")


def report(advices: Advices, trace: Trace, records: Sequence[Record] | None = None) -> Report:
    """Return the page of all advice. ``records`` are measured outcomes of the rules; None if no ledger was read."""
    of, source = text.step_or_recording(trace), source_facts.source(trace)
    parts = [reports.overview(advices)]
    for number, advice in enumerate(advices.advice):
        title = text.title(number + 1, advice, advices.questions[number] if advices.questions else None)
        parts += _parts(advice, title, advices, trace, records or ())
    parts += reports.sections(advices, of)
    parts += () if records is None else ledger.sections(records)
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), declared(parts, ledger.COLUMNS), headline=tuple(reports.first_lines(advices, of)))


def explained(advice: Advice, advices: Advices, trace: Trace, records: Sequence[Record] | None = None) -> Report:
    """Return the page of one item of advice."""
    outcomes = () if records is None else ledger.sections(records)
    parts = (*_parts(advice, render(advice.title), advices, trace, records or ()), *outcomes)
    return Report(f"{advice.id}: {advice.title}", (source_facts.source(trace),), declared(parts, ledger.COLUMNS))


def _parts(advice: Advice, title: str, advices: Advices, trace: Trace, records: Sequence[Record]) -> Iterator[Section]:
    sections = {section.name: section for section in explain.report(advice, advices, trace, records).sections}
    prediction, name = sections["prediction"], f"advice-{advice.id}"
    if prediction.table["p50_ns"].isna().all():
        prediction = replace(prediction, table=pd.DataFrame())
    else:
        prediction = replace(prediction, chart=reports.intervals("method"))
    yield replace(prediction, name=name, title=title, lines=(*sections["what"].lines, *prediction.lines))
    measured = ledger.of_advice(advice, records) or ledger.of_rule(advice, records)
    for part in _ORDER:
        section = sections[part]
        if part == "outcome" and measured:
            section = replace(section, table=ledger.table(measured), chart=ledger.CHART)
        yield replace(section, name=f"{name}-{part}", within=name, folded=part == "transform")
