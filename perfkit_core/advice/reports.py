"""Reports and sections on all advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import ledger, text
from perfkit_core.advice.advice import COLUMNS, Advice, Advices, Prediction, frame, numbers, row, table
from perfkit_core.advice.rule_input import listed
from perfkit_core.advice.text import NOTHING, step_or_recording
from perfkit_core.base.language.messages import Message, Sentence, Text, mark, message, plural, render, say
from perfkit_core.base.language.units import format_ratio
from perfkit_core.measure.verify.ledger import Record
from perfkit_core.output.report import source_facts
from perfkit_core.output.report.headline import work_between
from perfkit_core.output.report.verdict import VIEWS, verdict
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.assembly.lost_records import is_measured
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import may_lack_work
from perfkit_core.trace.model.report_data import Chart, Report, Section, declared
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of

SHOWN: Final = 3
"""Default maximum number of items of advice in text."""
_IN_WORDS: Final = 3
"""Maximum number of items of advice that the page of a profile shows in words."""
_RULES: Final = 4
"""Maximum number of rule ids in a sentence on rules that could not be evaluated. Machine formats list all rules."""
IN_SUM: Final = "in_sum"
_SELDOM: Final = ("why", "afterwards_ns", "after")
"""Columns that are left out if they are empty."""
_OVERVIEW: Final = (
    "id", "advice", "severity", "saving_ns", "saving_ratio", "place", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns",
    "p50_ns", "p90_ns", "floor_ns", "method",
)  # fmt: skip
_INTERVALS: Final = (
    mark("time now, 80% interval"),
    mark("predicted time, p10 to p90"),
    mark("shortest possible time"),
)


def report(advices: Advices, trace: Trace, records: Sequence[Record] = (), every: bool = False) -> Report:
    """Return a report in words: all advice, the combined saving, and the rules that could not be evaluated. Long
    lists of these rules are cut short, except with ``every``. ``records`` are earlier measurements."""
    of, source = step_or_recording(trace), source_facts.source(trace)
    texts = [in_words(number, advice, advices, of, records) for number, advice in enumerate(advices.advice, 1)]
    more = mark("Evidence for the first advice: perfkit advise {source} --explain {id}.")
    first = [say(more, source=advices.source, id=advice.id) for advice in advices.advice[:1]]
    total = Section(IN_SUM, say("In sum"), pd.DataFrame(), lines=(*first, *sentences(advices, of, every)))
    title = say("Advice on {name}", name=source.label)
    lines = (*first_lines(advices, of), *work_between(trace.quality))
    return Report(title, (source,), (*texts, total), headline=lines)


def brief(advices: Advices, trace: Trace, records: Sequence[Record] = (), most: int = SHOWN) -> Report:
    """Return a report that fits one screen: what to change, where, the predicted time and the fix of the first ``most``
    items of advice, and one line each on the other advice and on the rules that could not be evaluated."""
    of, source = step_or_recording(trace), source_facts.source(trace)
    shown, rest = advices.advice[:most], advices.advice[most:]
    texts = [in_words(number, advice, advices, of, records, short=True) for number, advice in enumerate(shown, 1)]
    lines: list[Text] = []
    if rest:
        other_advice = [
            message("{title} ({share:ratio})", title=advice.title, share=advice.prediction.saving_ratio)
            if advice.prediction.saving_ratio is not None
            else message("{title} (no saving)", title=advice.title) if advice.prediction.ceiling_ns == 0
            else message("{title} (saving unknown)", title=advice.title)
            for advice in rest[:most]
        ]  # fmt: skip
        if len(rest) > most:
            other_advice.append(message("{count} more", count=len(rest) - most))
        lines.append(message("More advice (--limit 0): {others:list}.", others=other_advice))
    promises = advices.questions or any(advice.prediction.saving_ns is not None for advice in shown)
    unsure = [] if promises else uncertain(advices)
    lines += uncertain_in_words(unsure)
    lines += filter(None, [text.profiler_time(advices.base, of)])
    if advices.not_evaluable:
        count = plural(
            "1 rule could not be evaluated on this recording (--limit 0 lists it, with what it needs).",
            "{n} rules could not be evaluated on this recording (--limit 0 lists them, with what they need).",
            len(advices.not_evaluable),
        )
        lines.append(count)
    total = (Section(IN_SUM, "", pd.DataFrame(), lines=tuple(lines)),) if lines else ()
    lead = f"perfkit report {advices.source} -o report.html"
    if shown or unsure:
        lead = f"perfkit advise {advices.source} --explain {(shown or unsure)[0].id}"
    title = say("Advice on {name}", name=source.label)
    first = (*first_lines(advices, of), *work_between(trace.quality))
    return Report(title, (source,), (*texts, *total), headline=first, next=lead)


def in_words(
    number: int, advice: Advice, advices: Advices, of: str, records: Sequence[Record] = (), short: bool = False
) -> Section:
    """Return an item of advice in words. If it is ``short``, it leaves out the assumptions and the notes."""
    remedy = advice.remedy
    lines = [*text.lines(advice, advices, of, short), *ledger.lines(advice, records)]
    if remedy is None:
        lines.append(say("No fix is known for {framework}.", framework=advice.framework))
    else:
        if remedy.note and not short:
            lines.append(text.sentence(render(remedy.note).strip()))
        api = remedy.api + (say(", since {version}", version=remedy.since) if remedy.since else "")
        if remedy.code:
            lines.append(say("Do ({api}):", api=api) if remedy.api else say("Do:"))
        elif remedy.api:
            lines.append(say("See {api}.", api=api))
    title = text.title(number, advice, advices.questions[number - 1] if advices.questions else None)
    code = remedy.code if remedy else ""
    return Section(f"advice-{advice.id}", title, pd.DataFrame(), lines=tuple(lines), code=code)


def sentences(advices: Advices, of: str, every: bool = False) -> Iterator[Message]:
    yield from combined_in_words(advices, of)
    yield text.replayed(advices.identity, of)
    profiler = text.unprofiled(advices.base, of)
    if profiler is not None:
        yield profiler
    yield from without_saving_in_words(advices)
    yield from not_evaluable_in_words(advices, every)


def combined_in_words(advices: Advices, of: str) -> Iterator[Message]:
    if advices.combined is None or len(advices.together) < 2:
        return
    _, *saving = text.expected(advices.combined, of)
    if saving:
        count, savings = len(advices.together), sum(item.prediction.saving_ns is not None for item in advices.advice)
        changes = message("The {count} changes that can be combined", count=count)
        if count == savings:
            changes = message("Both changes") if count == 2 else message("All {count} changes", count=count)
        first = text.now_and_then(advices.combined, of, within=True)
        yield message("{which} together: {first}. {second}.", which=changes, first=first, second=saving[0])


def without_saving_in_words(advices: Advices) -> Iterator[Message]:
    rest = advices.without_saving
    none = [item.id for item in rest if (item.prediction.saving_ns or 0) <= 0]
    saving = [item for item in rest if item.id not in none]
    little = [_with_saving(item) for item in saving if (item.prediction.saving_p10_ns or 0) >= 0]
    if none:
        yield message("Detected problems whose changes save nothing: {ids:list}.", ids=none)
    if little:
        yield message("Detected problems whose changes save too little: {ids:list}.", ids=little)
    yield from uncertain_in_words(uncertain(advices))


def uncertain(advices: Advices) -> list[Advice]:
    """Return the advice whose change is expected to save time, but may also cost time."""
    rest = advices.without_saving
    return [item for item in rest if (item.prediction.saving_ns or 0) > 0 > (item.prediction.saving_p10_ns or 0)]


def uncertain_in_words(unsure: Sequence[Advice]) -> Iterator[Message]:
    if unsure:
        ids = [_with_saving(advice) for advice in unsure]
        yield message("Detected problems whose changes may also cost time: {ids:list}.", ids=ids)


def _with_saving(advice: Advice) -> Message:
    return message("{id} ({saving:ns})", id=advice.id, saving=advice.prediction.saving_ns)


def not_evaluable_in_words(advices: Advices, every: bool = False) -> Iterator[Message]:
    """Yield sentences on the rules that could not be evaluated, one sentence for each reason. Each sentence names
    at most ``_RULES`` rules, or all rules if ``every`` is true."""
    reasons = advices.not_evaluable
    if len(reasons) == 1:
        for rule, why in reasons.items():
            yield message("Not evaluated on this recording: {rule} ({why}).", rule=rule, why=why.text)
    elif reasons:
        by_reason: dict[Text, list[str]] = {}
        for rule, why in reasons.items():
            by_reason.setdefault(why.reason, []).append(rule)
        most = len(reasons) if every else _RULES
        more = message("; --format json lists all rules") if max(map(len, by_reason.values())) > most else None
        template = mark(
            "{count} rules could not be evaluated on this recording. To see what a rule needs: "
            "perfkit advise {source} --rule ID{more}."
        )
        yield message(template, count=len(reasons), source=advices.source, more=more)
        for reason, rules in by_reason.items():
            yield message("{reason}: {rules}.", reason=text.capitalized(reason), rules=listed(rules, most))


def first_lines(advices: Advices, of: str) -> Iterator[Text]:
    """Yield what limits the steps, in the words of the summary, and the sentences of :func:`headline`. For what-if
    questions, yield only their answers."""
    trace = advices.trace
    if trace is not None and not advices.questions:
        views = get_plugins().views()
        tables: dict[str, pd.DataFrame] = {
            name: table_of(views[name], trace, ViewRequest()) for name in VIEWS if name in views
        }
        yield from islice(verdict(tables, trace.quality), 1)
    yield from headline(advices, of)


def headline(advices: Advices, of: str) -> Iterator[Text]:
    """Yield one sentence about all advice, or one answer to each what-if question. ``of`` is "step" or "recording"."""
    unit = subject(of)
    if text.less_waits(advices.base):
        unit = message("without waits for a processor, {what}", what=unit)
    if advices.questions:
        for question, advice in zip(advices.questions, advices.advice, strict=True):
            yield message("{question}: {answer}", question=question, answer=answer(unit, advice.prediction))
        return
    savings = [advice.prediction for advice in advices.advice if advice.prediction.saving_ns is not None]
    if not savings:
        if advices.trace is not None and not is_measured(advices.trace):
            yield message("No saving can be predicted, because device work was not recorded completely.")
            return
        if advices.trace is not None and (lacks := may_lack_work(advices.trace.quality)) is not None:
            yield message("No saving can be predicted: {why}.", why=lacks)
            return
        if not advices.advice and not advices.without_saving and len(advices.not_evaluable) == 1:
            yield message("The effect of the change cannot be predicted from this recording.")
            return
        if advices.identity.contradiction is not None:
            yield text.replayed(advices.identity, of)
            return
        unknown = message("The saving of the advice below is unknown.")
        yield unknown if advices.advice else text.sentence(message(NOTHING))
        return
    changes, best, applied = len(savings), savings[0], None
    # the largest single saving may exceed the combined saving, if it does not come from a replay
    if advices.combined is not None and (advices.combined.saving_ns or 0) >= (best.saving_ns or 0):
        best = advices.combined
    if changes > 1:
        applied = message(" with the {count} changes that can be combined", count=len(advices.together))
        if len(advices.together) < 2 or best is not advices.combined:
            applied = message(" with the first change")
        elif len(advices.together) == changes:
            applied = message(" with both changes") if changes == 2 else message(" with all changes")
    count = plural("One change", "{n} changes", changes)
    if changes < len(advices.advice):
        count = plural("One change with a known saving", "{n} changes with a known saving", changes)
    yield message("{question}: {answer}", question=count, answer=answer(unit, best, applied))


def subject(of: str) -> Message:
    """Return what takes the predicted time. ``of`` is "step" or "recording"."""
    return message("a step") if of == "step" else message("the recording")


def answer(unit: Message, p: Prediction, applied: Message | None = None) -> Message:
    """Return the time of the ``unit`` before and after the changes, with interval. ``applied`` names the changes."""
    if p.p50_ns is None:
        return message("the new time of {what} cannot be predicted from this recording.", what=unit)
    values = {"what": unit, "now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if (p.saving_ns or 0) <= 0:
        template = mark("{what} takes {now:ns} now, and would take {then:ns} ({low:ns} to {high:ns}): no saving.")
        return message(template, **values)
    template = mark("{what} takes {now:ns} now, and should take {then:ns} ({low:ns} to {high:ns}){which}.")
    return message(template, which=applied, **values)


def table_report(advices: Advices, trace: Trace) -> Report:
    source = source_facts.source(trace)
    note = " ".join(map(render, sentences(advices, step_or_recording(trace))))
    section = Section("advice", say("Advice"), table(advices.advice), note=note, empty=say(NOTHING), columns=COLUMNS)
    return Report(say("Advice on {name}", name=source.label), (source,), (section,))


@once
def of_trace(trace: Trace) -> Advices:
    """Return all advice on a trace, for the parts of a page."""
    from perfkit_core.advice.engine import advise

    return advise(trace)


def of_page(trace: Trace) -> tuple[Section, ...]:
    """Return the sections on advice for the page of a profile: a table of all advice, the combined saving, and the
    largest savings in words. If an error occurs, return a section with the error."""
    try:
        advices = of_trace(trace)
    except Exception as error:
        return without_advice(say("no advice could be given ({error})", error=f"{type(error).__name__}: {error}"))
    of = step_or_recording(trace)
    texts = [in_words(number, advice, advices, of) for number, advice in enumerate(advices.advice[:_IN_WORDS], 1)]
    total, *parts = sections(advices, of)
    summary = replace(overview(advices), lines=total.lines)
    named = (replace(part, name=f"{summary.name}-{part.name}") for part in parts)
    return declared((summary, *(replace(part, within=summary.name) for part in (*texts, *named))), COLUMNS)


def elsewhere() -> tuple[Section, ...]:
    return without_advice(say("this page reads ranks one by one; for advice on all ranks run perfkit advise SOURCE"))


def without_advice(why: str) -> tuple[Section, ...]:
    return (Section("advice", say("Advice"), table(()), empty=why, columns=COLUMNS),)


def overview(advices: Advices) -> Section:
    """Return a table of all advice, the largest saving first, with columns of :func:`perfkit_core.advice.advice.table`.

    The column ``advice`` is a text such as ``1. Load data in worker processes: −34%``. If several changes can be
    combined, the last row predicts all of them together. It has no id."""
    prefixes = [f"{question}: " for question in advices.questions] or [""] * len(advices.advice)
    labels = [
        with_change(f"{number}. {question}{advice.title}", advice.prediction)
        for number, (advice, question) in enumerate(zip(advices.advice, prefixes, strict=True), 1)
    ]
    rows = list(map(row, advices.advice))
    count = len(advices.together)
    if advices.combined is not None and count > 1:
        label = say("Both changes") if count == 2 else say("All {count} changes", count=count)
        if count < sum(advice.prediction.saving_ns is not None for advice in advices.advice):
            label = say("The {count} changes that can be combined", count=count)
        labels.append(with_change(label, advices.combined))
        rows.append({"id": pd.NA, "severity": pd.NA, **numbers(advices.combined)})
    all_advice = frame(rows).assign(advice=labels)[list(_OVERVIEW)]
    note = say("Times are per step, or for the whole recording if it has no steps. Savings refer to the median step.")
    return Section("advice", say("Advice"), all_advice, note=note, empty=say(NOTHING), chart=intervals("advice"))


def intervals(x: str) -> Chart:
    now, after, floor = ("step_p10_ns", "step_ns", "step_p90_ns"), ("p10_ns", "p50_ns", "p90_ns"), ("floor_ns",) * 3
    return Chart("intervals", x, (*now, *after, *floor), names=_INTERVALS)


def with_change(label: str, prediction: Prediction) -> str:
    """Return the label and the relative change of the time: ``1. Load data in worker processes: −34%``."""
    ratio = prediction.saving_ratio
    if ratio is None:
        return label
    return f"{label}{say(': ')}{'−' if ratio >= 0 else '+'}{format_ratio(abs(ratio))}"


def sections(advices: Advices, of: str) -> Iterator[Section]:
    """Yield the summary of all advice. Then yield tables of the advice that can be combined, the advice without a
    significant saving, and the rules that could not be evaluated. Empty tables are left out."""
    lines = (*combined_in_words(advices, of), text.replayed(advices.identity, of))
    yield Section(IN_SUM, say("In sum"), pd.DataFrame(), lines=lines)
    if len(advices.advice) > 1 and not advices.questions:
        yield Section("together", say("What can be combined"), together(advices), within=IN_SUM)
    if advices.without_saving:
        title = say("Detected, but without a significant saving ({count})", count=len(advices.without_saving))
        yield Section("without_saving", title, without_saving(advices), within=IN_SUM, folded=True)
    if advices.not_evaluable:
        title = say("Rules that could not be evaluated ({count})", count=len(advices.not_evaluable))
        yield Section("not_evaluable", title, not_evaluable(advices), within=IN_SUM, folded=True)


def together(advices: Advices) -> pd.DataFrame:
    """Return one row per item of advice (NA: unknown). Each of the last three columns is left out if it is empty.

    - ``id``: of the advice
    - ``saving_ns``: saving of this advice alone
    - ``combined``: whether the combined saving includes this advice
    - ``why``: why the combined saving does not include it
    - ``afterwards_ns``: saving if other advice is followed first; NA if it is similar to ``saving_ns``
    - ``after``: ids of the advice that is followed first"""
    return _savings(advices, advices.advice, "id", "saving_ns", "combined", "why", "afterwards_ns", "after")


def without_saving(advices: Advices) -> pd.DataFrame:
    """Return a table with one row per item of advice that saves nothing or too little by itself. The columns are
    ``id``, ``title``, ``saving_ns``, ``afterwards_ns`` and ``after``. See :func:`together` for their meaning."""
    return _savings(advices, advices.without_saving, "id", "title", "saving_ns", "afterwards_ns", "after")


def _savings(advices: Advices, advice: Sequence[Advice], *columns: str) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for item in advice:
        then = advices.after.get(item.id)
        rows.append({
            "id": item.id, "title": Sentence(item.title), "saving_ns": item.prediction.saving_ns,
            "combined": item.id in advices.together, "why": render(advices.excluded.get(item.id)) or None,
            "afterwards_ns": None if then is None else then.saving_ns,
            "after": None if then is None else ", ".join(then.once),
        })  # fmt: skip
    savings = pd.DataFrame(rows)[list(columns)].astype({"saving_ns": "Int64", "afterwards_ns": "Int64"})
    return savings.drop(columns=[name for name in _SELDOM if name in savings and savings[name].isna().all()])


def not_evaluable(advices: Advices) -> pd.DataFrame:
    """Return a table with one row per rule that could not be evaluated. Columns are ``rule``, ``reason`` and
    ``to_record``: what to record instead (NA if no recording helps)."""
    rows = [
        (rule, text.capitalized(why.reason), render(why.record) or pd.NA) for rule, why in advices.not_evaluable.items()
    ]
    return pd.DataFrame(rows, columns=["rule", "reason", "to_record"], dtype=object)
