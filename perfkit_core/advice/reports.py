"""Advice as reports and sections for every renderer, and the table of replays of unchanged recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice import ledger, predict, text
from perfkit_core.advice.advice import COLUMNS, Advice, Advices, Prediction, frame, numbers, row, table
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.text import NOTHING, step_or_recording
from perfkit_core.language.messages import Message, mark, render, say
from perfkit_core.language.units import format_ratio
from perfkit_core.model.columns import share
from perfkit_core.model.columns import text as text_column
from perfkit_core.model.trace import Trace
from perfkit_core.report import facts
from perfkit_core.report.model import Chart, Report, Section, declared
from perfkit_core.system.paths import PathLike
from perfkit_core.verify.ledger import Record

FIRST: Final = 3
"""Advice that a report on a whole profile shows in words."""
_IN_SUM: Final = "in_sum"
_SELDOM: Final = ("why", "afterwards_ns", "after")
"""Columns that are left out if empty."""
_OVERVIEW: Final = (
    "id", "advice", "severity", "saving_ns", "saving_ratio", "place", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns",
    "p50_ns", "p90_ns", "floor_ns", "method",
)  # fmt: skip
_INTERVALS: Final = (
    mark("now, and its 80% interval"),
    mark("afterwards: likely, and p10 to p90"),
    mark("largest saving of the median, by itself"),
)


def report(advices: Advices, trace: Trace, records: Sequence[Record] = (), every: bool = False) -> Report:
    """Return all advice in words, with earlier measurements (``records``), the combined saving and what is unknown;
    ``every``: name all rules that could not be evaluated."""
    of, source = step_or_recording(trace), facts.source(trace)
    texts = [in_words(number, one, advices, of, records) for number, one in enumerate(advices.advice, 1)]
    more = mark("Evidence for the first advice: perfkit advise {source} --explain {id}.")
    first = [say(more, source=advices.source, id=one.id) for one in advices.advice[:1]]
    total = Section(_IN_SUM, say("In sum"), pd.DataFrame(), lines=(*first, *sentences(advices, of, every)))
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), (*texts, total), headline=tuple(text.headline(advices, of)))


def in_words(number: int, advice: Advice, advices: Advices, of: str, records: Sequence[Record] = ()) -> Section:
    remedy = advice.remedy
    lines = [*text.lines(advice, advices, of), *ledger.lines(advice, records)]
    if remedy is None:
        lines.append(say("No fix is known for {framework}.", framework=advice.framework))
    else:
        if remedy.note:
            lines.append(text.sentence(remedy.note.strip()))
        api = remedy.api + (say(", since {version}", version=remedy.since) if remedy.since else "")
        if remedy.code:
            lines.append(say("Do ({api}):", api=api) if remedy.api else say("Do:"))
        elif remedy.api:
            lines.append(say("See {api}.", api=api))
    title = text.title(number, advice, advices.asked[number - 1] if advices.asked else None)
    code = remedy.code if remedy else ""
    return Section(f"advice-{advice.id}", title, pd.DataFrame(), lines=tuple(lines), code=code)


def sentences(advices: Advices, of: str, every: bool = False) -> Iterator[Message]:
    yield from text.together(advices, of)
    yield from text.gains(advices)
    yield text.replayed(advices.identity, of)
    yield from text.without_saving(advices)
    yield from text.not_evaluable(advices, every)


def table_report(advices: Advices, trace: Trace) -> Report:
    source = facts.source(trace)
    note = " ".join(map(render, sentences(advices, step_or_recording(trace))))
    section = Section(
        "advice", say("Advice"), table(advices.advice), note=note, empty=say(NOTHING), columns=COLUMNS
    )  # fmt: skip
    return Report(say("Advice on {name}", name=source.label), (source,), (section,))


def of_page(trace: Trace) -> tuple[Section, ...]:
    """Return the sections for a page on the profile: all advice as a table, the combined saving, and the largest
    savings in words. An error here must not cost the page its other sections."""
    from perfkit_core.advice.engine import advise

    try:
        advices = advise(trace)
    except Exception as error:
        return without_advice(say("no advice could be given ({error})", error=f"{type(error).__name__}: {error}"))
    of = step_or_recording(trace)
    texts = [in_words(number, one, advices, of) for number, one in enumerate(advices.advice[:FIRST], 1)]
    total, *parts = sections(advices, of)
    whole = replace(overview(advices), lines=total.lines)
    named = (replace(part, name=f"{whole.name}-{part.name}") for part in parts)
    return declared((whole, *(replace(part, within=whole.name) for part in (*texts, *named))), COLUMNS)


def elsewhere() -> tuple[Section, ...]:
    return without_advice(say("this page reads ranks one by one; perfkit advise SOURCE reads all ranks together"))


def without_advice(why: str) -> tuple[Section, ...]:
    return (Section("advice", say("Advice"), table(()), empty=why, columns=COLUMNS),)


def overview(advices: Advices) -> Section:
    """Return all advice as a table, the largest saving first, then a row (without id) for the combined advice. Columns:
    id, advice (number, title and change, or the what-if question), severity, then as in
    :func:`perfkit_core.advice.advice.table`."""
    asked = [f"{question}: " for question in advices.asked] or [""] * len(advices.advice)
    labels = [
        with_change(f"{number}. {question}{one.title}", one.prediction)
        for number, (one, question) in enumerate(zip(advices.advice, asked, strict=True), 1)
    ]
    rows = list(map(row, advices.advice))
    count = len(advices.together)
    if advices.combined is not None and count > 1:
        label = say("Both together") if count == 2 else say("All {count} together", count=count)
        if count < sum(one.prediction.saving_ns is not None for one in advices.advice):
            label = say("The {count} that can be combined", count=count)
        labels.append(with_change(label, advices.combined))
        rows.append({"id": pd.NA, "severity": pd.NA, **numbers(advices.combined)})
    made = frame(rows).assign(advice=labels)[list(_OVERVIEW)]
    note = say("Times per step, or of the whole recording if it has no steps; savings are of the median.")
    return Section("advice", say("Advice"), made, note=note, empty=say(NOTHING), chart=intervals("advice"))


def intervals(x: str) -> Chart:
    """Return the chart of a table of predictions, with rows named by the column ``x``."""
    now, after, floor = ("step_p10_ns", "step_ns", "step_p90_ns"), ("p10_ns", "p50_ns", "p90_ns"), ("floor_ns",) * 3
    return Chart("intervals", x, (*now, *after, *floor), names=_INTERVALS)


def with_change(label: str, prediction: Prediction) -> str:
    """Return the label with the change of the time: ``1. Load data in worker processes: −34%``."""
    ratio = prediction.saving_ratio
    if ratio is None:
        return label
    return f"{label}{say(': ')}{'−' if ratio >= 0 else '+'}{format_ratio(abs(ratio))}"


def sections(advices: Advices, of: str) -> Iterator[Section]:
    """Yield the summary of all advice with its non-empty parts: what can be combined, what saves nothing alone, and the
    rules that could not be evaluated. ``of``: the unit of the times, "step" or "recording"."""
    lines = (*text.together(advices, of), *text.gains(advices), text.replayed(advices.identity, of))
    yield Section(_IN_SUM, say("In sum"), pd.DataFrame(), lines=lines)
    if len(advices.advice) > 1 and not advices.asked:
        yield Section("together", say("What can be combined"), together(advices), within=_IN_SUM)
    if advices.without_saving:
        title = say("Evaluated, without a significant saving ({count})", count=len(advices.without_saving))
        yield Section("without_saving", title, without_saving(advices), within=_IN_SUM, folded=True)
    if advices.not_evaluable:
        title = say("Rules that could not be evaluated ({count})", count=len(advices.not_evaluable))
        yield Section("not_evaluable", title, not_evaluable(advices), within=_IN_SUM, folded=True)


def together(advices: Advices) -> pd.DataFrame:
    """Return id, saving_ns (alone), combined (whether part of the combined saving), why (not), afterwards_ns (saving
    once others are followed, if that differs much), after (which others). NA if unknown."""
    return _savings(advices, advices.advice, "id", "saving_ns", "combined", "why", "afterwards_ns", "after")


def without_saving(advices: Advices) -> pd.DataFrame:
    """Return id, title, saving_ns, afterwards_ns (once others are followed, if that is much)."""
    return _savings(advices, advices.without_saving, "id", "title", "saving_ns", "afterwards_ns", "after")


def _savings(advices: Advices, advice: Sequence[Advice], *columns: str) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in advice:
        then = advices.after.get(one.id)
        rows.append({
            "id": one.id, "title": one.title, "saving_ns": one.prediction.saving_ns,
            "combined": one.id in advices.together, "why": render(advices.excluded.get(one.id)) or None,
            "afterwards_ns": None if then is None else then.saving_ns,
            "after": None if then is None else ", ".join(then.once),
        })  # fmt: skip
    made = pd.DataFrame(rows)[list(columns)].astype({"saving_ns": "Int64", "afterwards_ns": "Int64"})
    return made.drop(columns=[name for name in _SELDOM if name in made and made[name].isna().all()])


def not_evaluable(advices: Advices) -> pd.DataFrame:
    """Return rule, reason, to_record (what to record instead; NA if nothing helps)."""
    rows = [
        (rule, text.capitalized(why.reason), render(why.record) or pd.NA) for rule, why in advices.not_evaluable.items()
    ]
    return pd.DataFrame(rows, columns=["rule", "reason", "to_record"], dtype=object)


def identity_report(sources: Sequence[PathLike], partial: bool = False) -> Report:
    """Return the replay errors of the unchanged recordings. Raises SourceError."""
    made = identities(sources, partial)
    with_steps, lines = made[made["steps"].notna()], []
    if not with_steps.empty:
        median, worst = float(with_steps["error_ratio"].median()), float(with_steps["worst_error_ratio"].max())
        summary = mark("{count} of them with steps: median error {median}, worst step {worst}.")
        lines = [say(summary, count=len(with_steps), median=format_ratio(median), worst=format_ratio(worst))]
    note = say(
        "Error of the replayed step time, or of the whole recording if it has no steps; unexplained: device work "
        "that starts later than the recorded events explain, so that the replay keeps its delay."
    )
    columns = (
        text_column("source", "Source"),
        share("error_ratio", "Error"),
        share("worst_error_ratio", "Worst error"),
        share("unexplained_ratio", "Unexplained"),
    )
    title = say("Replay of unchanged recordings")
    section = Section("identity", title, made, note, lines=tuple(lines), columns=(*COLUMNS, *columns))
    return Report(say("Accuracy of the replay"), (), (section,))


def identities(sources: Sequence[PathLike], partial: bool = False) -> pd.DataFrame:
    """Return a row for each source, a profile of its own: source, events, steps (NA if none were recorded), step_ns
    (median; else of the whole recording), error_ratio, worst_error_ratio, unexplained_ratio. Raises SourceError."""
    from perfkit_core.readers.load import load

    rows = []
    for source in sources:
        trace = load(source, partial=partial)
        facts = Facts(trace)
        advices = predict.identity(facts)
        step_ns = int(np.median(facts.steps.recorded_ns)) if len(facts.steps) else None
        steps = advices.steps if facts.has_steps else None
        rows.append((str(source), len(trace), steps, step_ns, advices.error, advices.worst, advices.unexplained))
    names = ["source", "events", "steps", "step_ns", "error_ratio", "worst_error_ratio", "unexplained_ratio"]
    made = pd.DataFrame(rows, columns=names)
    return made.astype({"steps": "Int64", "step_ns": "Int64"} | dict.fromkeys(names[4:], "Float64"))
