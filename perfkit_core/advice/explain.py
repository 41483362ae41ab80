"""Everything about one advice: what it was seen by, what is changed in the recording, what the number rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from perfkit_core.advice import assumptions, edit_words, in_sum, measured, sentences, words
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.advice.naming import one_of
from perfkit_core.advice.outcomes import latest
from perfkit_core.advice.predict import ONE_STEP
from perfkit_core.advice.sections import step_or_recording
from perfkit_core.advice.severity import WORDS as SEVERITIES
from perfkit_core.advice.table import table
from perfkit_core.language import in_english, retold, say
from perfkit_core.report import facts
from perfkit_core.report.headline import duration
from perfkit_core.report.model import Report, Section, declared
from perfkit_core.trace import Trace
from perfkit_core.verification.ledger import Record

_NO_TABLE: Final = pd.DataFrame()
_DIRECTIONS: Final = {"to host": in_english("to host"), "to device": in_english("to device")}


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


def _where(one: Advice) -> str:
    known = [part for part in (one.place, sentences.steps(one)) if part]
    return say("; ").join(known) or say("no line of code was recorded")


def _severity(one: Advice) -> str:
    if one.severity == "none":
        return say("No severity: it saves nothing.")
    if one.severity == "note":
        return say("No severity: how much it saves is not known.")
    return say("Severity: {severity}, by the predicted saving alone.", severity=say(SEVERITIES[one.severity]))


def _evidence(one: Advice) -> Section:
    it = one.candidate
    values = [words.value(name, value) for name, value in it.evidence.items()]
    rows = zip(words.names(list(it.evidence)), values, strict=True)
    lines = [say("Holds: {what}", what=text) for text in it.preconditions]
    lines += [say("Looked for, not there: {what}", what=text) for text in it.vetoes]
    lines += [_rows(it.rows.tolist())] if len(it.rows) else []
    found = pd.DataFrame(rows, columns=["name", "value"], dtype=object)
    empty = say("the rule gives no numbers")
    return Section("evidence", say("Evidence"), found, lines=tuple(lines), empty=empty)


def _rows(rows: list[int]) -> str:
    some = words.some(list(map(str, rows)))
    one = in_english("Shown by row {rows} of the event table")
    return say(one if len(rows) == 1 else in_english("Shown by rows {rows} of the event table"), rows=some)


def _transform(one: Advice, trace: Trace) -> Section:
    lines = tuple(edit_words.said(edit, trace) for edit in one.candidate.edits)
    return Section(
        "transform",
        say("What is changed in the recording"),
        _NO_TABLE,
        lines=lines or (say("Nothing: the number is not from a replay."),),
    )


def _prediction(one: Advice, found: Advices, of: str) -> Section:
    lines = [_now(one, of), *sentences.expected(one.prediction, of)]
    lines += [sentences.sentence(sentences.after(one, found))] if one.id in found.after else []
    if one.prediction.naive_ns is not None:
        text = in_english(
            "Whoever takes its share of the time for the saving expects a recording of {time}; the replay does not."
        )
        if of == "step":
            text = in_english(
                "Whoever takes its share of the time for the saving expects a step of {time}; the replay does not."
            )
        lines.append(say(text, time=duration(one.prediction.naive_ns)))
    chosen = Advices(found.identity, (one,), {})
    columns = ["method", "step_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "saving_ratio", "ceiling_ns", "floor_ns",
               "step_p10_ns", "step_p90_ns"]  # fmt: skip
    return Section("prediction", say("Prediction"), table(chosen)[columns], lines=tuple(lines))


def _now(one: Advice, of: str) -> str:
    p = one.prediction
    low, high = duration(p.base_p10_ns or p.base_ns), duration(p.base_p90_ns or p.base_ns)
    text = in_english("Now: {now}, the median recording; its 80% interval is {low} to {high}")
    if of == "step":
        text = in_english("Now: {now}, the median step; its 80% interval is {low} to {high}")
    if one.candidate.base_ns is not None:
        text = in_english("Now: {now}, the mean step; its 80% interval is {low} to {high}")
    return say(text, now=duration(p.base_ns), low=low, high=high)


def _trust(one: Advice, found: Advices, of: str) -> Section:
    it = one.candidate
    lines = [in_sum.replayed(found.identity, of), _noise(found, of)]
    lines += [
        say("Assumed: {what} ({source}).", what=assumptions.told(one.rule, a), source=retold(a.source))
        for a in it.assumptions
    ]
    lines += [] if it.assumptions else [say("Nothing else is assumed: the number rests on the recording alone.")]
    why = found.excluded.get(one.id)
    lines += [say("Not in the combined saving: {why}.", why=why)] if why else []
    return Section("trust", say("How sure it is"), _NO_TABLE, lines=tuple(lines))


def _noise(found: Advices, of: str) -> str:
    if found.noise_ns is None:
        text = in_english(
            "No steps were recorded, so nothing shows how steps differ: the interval is {share} wider each way."
        )
        if of == "step":
            text = in_english(
                "Only one step was recorded, so nothing shows how steps differ: the interval is {share} wider each way."
            )
        return say(text, share=f"{ONE_STEP:.0%}")
    text = in_english("Noise of the run: the median of the steps is known to ±{time} (80% interval).")
    return say(text, time=duration(found.noise_ns))


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
    lines = [*measured.lines(one, records)] or [say("Predicted, not measured.")]
    lines += _off(latest(records, one.id))
    lines.append(say("This measures it with your commands, and keeps the outcome in a ledger:"))
    code = f"perfkit advise {found.source} -o advice.json\n{verify} --advice advice.json:{one.id} --ledger ledger.jsonl"
    return Section("outcome", say("Outcome"), _NO_TABLE, lines=tuple(lines), code=code)


def _off(record: Record | None) -> Iterator[str]:
    if record is not None and record.saving_error is not None:
        yield say("The prediction of the saving was {error} off.", error=f"{record.saving_error:+.0%}")
