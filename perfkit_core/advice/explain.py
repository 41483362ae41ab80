"""Everything about one advice: what it was seen by, what is changed in the recording, what the number rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from perfkit_core.advice import ledger, transform_text, wording
from perfkit_core.advice import text as assumptions
from perfkit_core.advice import text as in_sum
from perfkit_core.advice import text as sentences
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.advice.data import table
from perfkit_core.advice.ledger import latest
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.advice.predict import ONE_STEP
from perfkit_core.advice.sections import step_or_recording
from perfkit_core.advice.thresholds import WORDS as SEVERITIES
from perfkit_core.language.messages import Message, Text, mark, message, say
from perfkit_core.model.trace import Trace
from perfkit_core.report import facts
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.verify.ledger import Record
from perfkit_core.verify.prediction import one_of

_NO_TABLE: Final = pd.DataFrame()
_DIRECTIONS: Final = {"to host": mark("to host"), "to device": mark("to device")}


def meant(found: Advices, wanted: str) -> Advice:
    """The advice of an id, or of the beginning of one, also one that saves nothing. Raises UsageError."""
    every = {one.id: one for one in (*found.advice, *found.without_saving)}
    return every[one_of(wanted, list(every))]


def report(one: Advice, found: Advices, trace: Trace, records: Sequence[Record] = ()) -> Report:
    """The whole contract of one advice, with what was measured of it before."""
    of = step_or_recording(trace)
    seen = (_what(one), _evidence(one), _transform(one, trace))
    told = (
        _prediction(one, found, of),
        _trust(one, found, of),
        _risks(one),
        _action(one),
        _outcome(one, found, records),
    )
    return Report(f"{one.id}: {one.title}", (facts.source(trace),), declared((*seen, *told), COLUMNS))


def _what(one: Advice) -> Section:
    lines = [
        sentences.sentence(one.candidate.what),
        _rule(one),
        say("Where: {where}", where=_where(one)),
        _severity(one),
    ]
    return Section("what", say("What was found"), _NO_TABLE, lines=tuple(lines))


def _rule(one: Advice) -> str:
    text = say(
        "Rule {number}, {rule}, version {version}; {framework}, {mode} mode",
        number=one.number, rule=one.rule, version=one.version, framework=one.framework, mode=one.mode,
    )  # fmt: skip
    direction = one.candidate.direction
    return text + (
        say("; moved {direction}", direction=say(_DIRECTIONS.get(direction, direction))) if direction else ""
    )


def _where(one: Advice) -> Message:
    known = [part for part in (one.place, sentences.steps(one)) if part]
    return message("{parts:parts}", parts=known) if known else message("no line of code was recorded")


def _severity(one: Advice) -> str:
    if one.severity == "none":
        return say("No severity: it saves nothing.")
    if one.severity == "note":
        return say("No severity: how much it saves is not known.")
    return say("Severity: {severity}, by the predicted saving alone.", severity=say(SEVERITIES[one.severity]))


def _evidence(one: Advice) -> Section:
    it = one.candidate
    values = [wording.value(name, value) for name, value in it.evidence.items()]
    rows = zip(wording.names(list(it.evidence)), values, strict=True)
    lines = [say("Holds: {what}", what=text) for text in it.preconditions]
    lines += [say("Looked for, not there: {what}", what=text) for text in it.vetoes]
    lines += [_rows(it.rows.tolist())] if len(it.rows) else []
    found = pd.DataFrame(rows, columns=["name", "value"], dtype=object)
    empty = say("the rule gives no numbers")
    return Section("evidence", say("Evidence"), found, lines=tuple(lines), empty=empty)


def _rows(rows: list[int]) -> str:
    some = wording.some(list(map(str, rows)))
    one = mark("Shown by row {rows} of the event table")
    return say(one if len(rows) == 1 else mark("Shown by rows {rows} of the event table"), rows=some)


def _transform(one: Advice, trace: Trace) -> Section:
    lines = tuple(transform_text.said(edit, trace) for edit in one.candidate.edits)
    return Section(
        "transform",
        say("What is changed in the recording"),
        _NO_TABLE,
        lines=lines or (say("Nothing: the number is not from a replay."),),
    )


def _prediction(one: Advice, found: Advices, of: str) -> Section:
    lines: list[Text] = [_now(one, of), *sentences.expected(one.prediction, of)]
    lines += [sentences.sentence(sentences.after(one, found))] if one.id in found.after else []
    if one.prediction.naive_ns is not None:
        text = mark("Subtracting its share of the time would suggest a recording of {time:ns}; the replay does not.")
        if of == "step":
            text = mark("Subtracting its share of the time would suggest a step of {time:ns}; the replay does not.")
        lines.append(message(text, time=one.prediction.naive_ns))
    chosen = Advices(found.identity, (one,), {})
    columns = ["method", "step_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "saving_ratio", "ceiling_ns", "floor_ns",
               "step_p10_ns", "step_p90_ns"]  # fmt: skip
    return Section("prediction", say("Prediction"), table(chosen)[columns], lines=tuple(lines))


def _now(one: Advice, of: str) -> Message:
    p = one.prediction
    text = mark("Now: {now:ns}, the median recording; its 80% interval is {low:ns} to {high:ns}")
    if of == "step":
        text = mark("Now: {now:ns}, the median step; its 80% interval is {low:ns} to {high:ns}")
    if one.candidate.base_ns is not None:
        text = mark("Now: {now:ns}, the mean step; its 80% interval is {low:ns} to {high:ns}")
    return message(text, now=p.base_ns, low=p.base_p10_ns or p.base_ns, high=p.base_p90_ns or p.base_ns)


def _trust(one: Advice, found: Advices, of: str) -> Section:
    it = one.candidate
    lines: list[Text] = [in_sum.replayed(found.identity, of), _noise(found, of)]
    lines += [
        say("Assumed: {what} ({source}).", what=assumptions.told(one.rule, a), source=a.source) for a in it.assumptions
    ]
    lines += [] if it.assumptions else [say("Nothing else is assumed: the number rests on the recording alone.")]
    why = found.excluded.get(one.id)
    lines += [say("Not in the combined saving: {why}.", why=why)] if why else []
    return Section("trust", say("How sure it is"), _NO_TABLE, lines=tuple(lines))


def _noise(found: Advices, of: str) -> Message:
    if found.noise_ns is not None:
        return message(
            "Noise of the run: the median of the steps is known to ±{time:ns} (80% interval).", time=found.noise_ns
        )
    if of == "step":
        return message(
            "Only one step was recorded, so nothing shows how steps differ: the interval is {share:ratio} wider each "
            "way.",
            share=ONE_STEP,
        )
    return message(
        "No steps were recorded, so nothing shows how steps differ: the interval is {share:ratio} wider each way.",
        share=ONE_STEP,
    )


def _risks(one: Advice) -> Section:
    it = one.candidate
    lines = [sentences.sentence(text) for text in it.risks]
    rules = say(", ").join(it.conflicts)
    lines += [say("Takes the place of, or hinders: {rules}.", rules=rules)] if rules else []
    return Section("risks", say("Risks and conflicts"), _NO_TABLE, lines=tuple(lines) or (say("None known."),))


def _action(one: Advice) -> Section:
    remedy = one.remedy
    if remedy is None:
        nothing = say("No fix is known for {framework}.", framework=one.framework)
        return Section("action", say("What to do"), _NO_TABLE, lines=(nothing,))
    since = say(", since version {version}", version=remedy.since) if remedy.since else ""
    lines = [say("API: {api}", api=f"{remedy.api}{since}")] if remedy.api else []
    lines += [sentences.sentence(remedy.note.strip())] if remedy.note else []
    return Section("action", say("What to do"), _NO_TABLE, lines=tuple(lines), code=remedy.code)


def _outcome(one: Advice, found: Advices, records: Sequence[Record]) -> Section:
    """The remedy knows what to compare; the ledger shows how far the prediction was off."""
    verify = one.remedy.verify if one.remedy else "perfkit verify --base COMMAND --change COMMAND"
    lines: list[Text] = [*ledger.lines(one, records)] or [say("Predicted, not measured.")]
    lines += _off(latest(records, one.id))
    lines.append(say("This measures it with your commands, and keeps the outcome in a ledger:"))
    code = f"perfkit advise {found.source} -o advice.json\n{verify} --advice advice.json:{one.id} --ledger ledger.jsonl"
    return Section("outcome", say("Outcome"), _NO_TABLE, lines=tuple(lines), code=code)


def _off(record: Record | None) -> Iterator[Message]:
    if record is not None and record.saving_error is not None:
        yield message("The prediction of the saving was {error:+ratio} off.", error=record.saving_error)
