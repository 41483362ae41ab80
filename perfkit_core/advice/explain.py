"""Details of one item of advice: a report with the transforms in words (``--explain``), and data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice import ledger, predict, text
from perfkit_core.advice.advice import COLUMNS, Advice, Advices, table
from perfkit_core.advice.rule_input import listed
from perfkit_core.advice.text import assumed, likely, sentence, span, value
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.language.messages import Message, Text, english, mark, message, plural, render, say
from perfkit_core.base.language.shortening import cut
from perfkit_core.base.language.units import format_count
from perfkit_core.measure.verify.ledger import Record
from perfkit_core.measure.verify.prediction import one_of
from perfkit_core.output.report import source_facts
from perfkit_core.replay import transforms
from perfkit_core.trace.model.report_data import Report, Section, declared
from perfkit_core.trace.model.trace import Trace

_DIRECTIONS: Final = {"to host": mark("to host"), "to device": mark("to device")}
_CASES: Final = {
    transforms.Case.SHORT: mark("best"),
    transforms.Case.LIKELY: mark("likely"),
    transforms.Case.LONG: mark("worst"),
}
_NAME_LENGTH: Final = 80
_NAMES: Final = 2
"""Maximum number of event names that are shown. The JSON has all rows."""
_OUTCOME: Final = ("outcome", "saving_ratio", "saving_low_ratio", "saving_high_ratio", "saving_error", "step_error")


def meant(advices: Advices, prefix: str) -> Advice:
    """Return the advice whose id is or begins with ``prefix``. Raises UsageError if no or several ids match."""
    every = {advice.id: advice for advice in (*advices.advice, *advices.without_saving)}
    return every[one_of(prefix, list(every))]


def report(advice: Advice, advices: Advices, trace: Trace, records: Sequence[Record] = ()) -> Report:
    of = text.step_or_recording(trace)
    parts = (*_finding(advice, trace), *_prediction(advice, advices, of), *_action(advice, advices, records))
    return Report(f"{advice.id}: {advice.title}", (source_facts.source(trace),), declared(parts, COLUMNS))


def _finding(advice: Advice, trace: Trace) -> Iterator[Section]:
    candidate = advice.candidate
    rule = say(
        "Rule {number}, {rule}, version {version}; {framework}, {mode} mode",
        number=advice.number, rule=advice.rule, version=advice.version, framework=advice.framework, mode=advice.mode,
    )  # fmt: skip
    if candidate.direction:
        rule += say("; moved {direction}", direction=say(_DIRECTIONS.get(candidate.direction, candidate.direction)))
    parts = [part for part in (advice.place, text.steps(advice)) if part]
    where = message("{parts:parts}", parts=parts) if parts else message("no line of code was recorded")
    severity = say("Severity: {severity}. It depends only on the predicted saving.", severity=say(advice.severity))
    if advice.severity == "none":
        severity = say("No severity: the change saves nothing.")
    elif advice.severity == "note":
        severity = say("No severity: the saving is unknown.")
    what = (sentence(candidate.what), rule, say("Where: {where}", where=where), severity)
    yield Section("what", say("Finding"), pd.DataFrame(), lines=what)

    checked = [say("Confirmed: {what}", what=condition) for condition in candidate.preconditions]
    checked += [say("Excluded: {what}", what=condition) for condition in candidate.vetoes]
    if len(candidate.rows):
        template = mark("Evidence: rows {rows} of the event table")
        if len(candidate.rows) == 1:
            template = mark("Evidence: row {rows} of the event table")
        checked.append(say(template, rows=listed(list(map(str, candidate.rows.tolist())), text.SHOWN)))
    values = [value(name, number) for name, number in candidate.evidence.items()]
    numbers = pd.DataFrame({"name": text.names(list(candidate.evidence)), "value": values}, dtype=object)
    empty = say("the rule gives no numbers")
    yield Section("evidence", say("Evidence"), numbers, lines=tuple(checked), empty=empty)

    changes = tuple(transform_text(transform, trace) for transform in candidate.transforms)
    changes = changes or (say("No replay was made for this advice, so there are no changes to list."),)
    yield Section("transform", say("Changes to the recording"), pd.DataFrame(), lines=changes)


def _prediction(advice: Advice, advices: Advices, of: str) -> Iterator[Section]:
    p, candidate, assumptions = advice.prediction, advice.candidate, advice.candidate.assumptions
    now = mark("Now: the recording takes {now:ns} (80% interval: {low:ns} to {high:ns})")
    naive = mark("For comparison: the time of the recording minus the time of the detected problem is {time:ns}.")
    if of == "step":
        now = mark("Now: the median step takes {now:ns} (80% interval: {low:ns} to {high:ns})")
        naive = mark("For comparison: the step time minus the time of the detected problem is {time:ns}.")
    if candidate.base_ns is not None:
        now = mark("Now: the mean step takes {now:ns} (80% interval: {low:ns} to {high:ns})")
    low, high = p.base_p10_ns or p.base_ns, p.base_p90_ns or p.base_ns
    lines: list[Text] = [message(now, now=p.base_ns, low=low, high=high), *text.expected(p, of)]
    if advice.id in advices.after:
        lines.append(sentence(text.after(advice, advices)))
    if p.naive_ns is not None:
        lines.append(message(naive, time=p.naive_ns))
    columns = ["method", "step_ns", "p10_ns", "p50_ns", "p90_ns", "saving_ns", "saving_ratio", "ceiling_ns", "floor_ns",
               "step_p10_ns", "step_p90_ns"]  # fmt: skip
    yield Section("prediction", say("Prediction"), table([advice])[columns], lines=tuple(lines))

    noise = message(
        "No steps were recorded, so the variation between steps is unknown; ±{share:ratio} is assumed.",
        share=predict.ONE_STEP,
    )
    if advices.noise_ns is not None:
        noise = message("Noise: ±{time:ns} (80% interval of the median step time).", time=advices.noise_ns)
    elif of == "step":
        noise = message(
            "Only one step was recorded, so the variation between steps is unknown; ±{share:ratio} is assumed.",
            share=predict.ONE_STEP,
        )
    trust: list[Text] = [text.replayed(advices.identity, of), noise]
    profiler = text.unprofiled(advices.base, of)
    if profiler is not None:
        trust.append(profiler)
    if p.outcomes:
        trust.append(plural(
            "The replay alone gives a saving of {share:ratio}. {n} earlier outcome of this rule adjusted it.",
            "The replay alone gives a saving of {share:ratio}. {n} earlier outcomes of this rule adjusted it.",
            p.outcomes, share=p.replayed_ratio,
        ))  # fmt: skip
    trust += [say("Assumed: {what} ({source}).", what=assumed(advice.rule, a), source=a.source) for a in assumptions]
    if not assumptions:
        trust.append(say("No assumptions: the prediction uses only what was recorded."))
    why = advices.excluded.get(advice.id)
    if why:
        trust.append(say("Not in the combined saving: {why}.", why=why))
    yield Section("trust", say("Confidence"), pd.DataFrame(), lines=tuple(trust))

    risks = [sentence(risk) for risk in candidate.risks]
    if candidate.conflicts:
        rules = say(", ").join(candidate.conflicts)
        risks.append(say("This advice replaces or contradicts advice of {rules}.", rules=rules))
    none = (say("No risks are known."),)
    yield Section("risks", say("Risks and conflicts"), pd.DataFrame(), lines=tuple(risks) or none)


def _action(advice: Advice, advices: Advices, records: Sequence[Record]) -> Iterator[Section]:
    remedy, lines = advice.remedy, []
    if remedy is None:
        lines.append(say("No fix is known for {framework}.", framework=advice.framework))
    else:
        since = say(", since version {version}", version=remedy.since) if remedy.since else ""
        if remedy.api:
            lines.append(say("API: {api}", api=f"{remedy.api}{since}"))
        if remedy.note:
            lines.append(sentence(render(remedy.note).strip()))
    code = remedy.code if remedy else ""
    yield Section("action", say("What to do"), pd.DataFrame(), lines=tuple(lines), code=code)

    measured: list[Text] = [*ledger.lines(advice, records)] or [say("The saving was not measured.")]
    record = ledger.latest(records, advice.id)
    if record is not None and record.saving_error is not None:
        difference = mark("The predicted saving differed from the measured saving by {error:+ratio}.")
        measured.append(message(difference, error=record.saving_error))
    measured.append(say("To measure the saving with your own commands and keep the outcome in a ledger:"))
    verify = remedy.verify if remedy else "perfkit verify --base COMMAND --change COMMAND"
    code = f"perfkit advise {advices.source} -o advice.json\n"
    code += f"{verify} --advice advice.json:{advice.id} --ledger ledger.jsonl"
    yield Section("outcome", say("Outcome"), pd.DataFrame(), lines=tuple(measured), code=code)


def transform_text(transform: Any, trace: Trace) -> str:
    """Return a transform in words: the changed events, then the change. Example: ``6 × aten::copy_: are removed``."""
    events = changed_events(transform, trace)
    return f"{events}{say(': ') if events else ''}{change(transform)}"


def changed_events(transform: Any, trace: Trace) -> str:
    """Return the number and names of the changed events, for example ``6 × aten::copy_``; "" if there are none."""
    rows = getattr(transform.change if isinstance(transform, transforms.InCases) else transform, "rows", None)
    if rows is None or not len(rows):
        return ""
    names = trace.codes("name")
    codes, counts = np.unique(names.codes[rows], return_counts=True)
    most = np.argsort(-counts, kind="stable")
    called = [cut(names.values[code], _NAME_LENGTH) if code >= 0 else say("unnamed") for code in codes]
    first = say(", ").join(f"{format_count(counts[at])} × {called[at]}" for at in most[:_NAMES])
    rest = int(counts[most[_NAMES:]].sum())
    return say("{names} and {count} events with other names", names=first, count=format_count(rest)) if rest else first


def change(transform: Any) -> str:
    """Return the change that a transform makes, in words. For an unknown transform, return its name and its numbers."""
    match transform:
        case transforms.Scale():
            places = {(True, False): say(" on the host"), (False, True): say(" on the device")}
            where, time = places.get((transform.host, transform.device), ""), _their_time(transform.factor)
            inside = say(", including all events inside them") if transform.below else ""
            return say("take {time}{where}", time=time, where=where) + inside
        case transforms.Remove():
            return say("are removed, including all events inside them") if transform.below else say("are removed")
        case transforms.Insert():
            times = []
            if isinstance(transform.host_ns, np.ndarray):
                total = value("_ns", int(transform.host_ns.sum()))
                times.append(say("{time} longer on the host, in total", time=total))
            elif transform.host_ns != 0:
                times.append(say("{time} longer on the host", time=likely("_ns", transform.host_ns)))
            if transform.device_ns != 0:
                times.append(say("{time} longer on the device", time=likely("_ns", transform.device_ns)))
            return say("take {times:and}", times=times) if times else say("take as long as before")
        case transforms.Load():
            batch_time = ""
            if transform.batch_ns is not None:
                batch_time = say(", which make a batch in {time}", time=likely("_ns", transform.batch_ns))
            template = mark(
                "get batches from {workers} worker processes{made}; handing over a batch takes {time}; each worker "
                "works up to {ahead} batches ahead"
            )
            workers, time = likely("workers", transform.workers), likely("_ns", transform.handover_ns)
            return say(template, workers=workers, made=batch_time, time=time, ahead=transform.ahead)
        case transforms.Overlap():
            return say("run in another thread and take {time}", time=_their_time(transform.factor))
        case transforms.Batch():
            launches = 1 if transform.group is None else len(np.unique(transform.group))
            template = mark("become {count} launches; each takes {time}, and its device work has gaps of at most {gap}")
            if launches == 1:
                template = mark("become {count} launch, which takes {time}; its device work has gaps of at most {gap}")
            count, time = value("launches", launches), likely("_ns", transform.host_ns)
            return say(template, count=count, time=time, gap=likely("_ns", transform.gap_ns))
        case transforms.Shorten():
            return say(
                "{count} gaps in the work of the host lasted {total} in total; after the change, the gaps take {time}",
                count=format_count(sum(len(gaps[0]) for gaps in transform.gaps.values())),
                total=value("_ns", sum(map(intervals.length, transform.gaps.values()))),
                time=_their_time(transform.factor),
            )
        case transforms.Move():
            launch = likely("_ns", transform.host_ns)
            parts = [say("run on the host and take {time} each", time=launch)]
            if not transform.to_host:
                template = mark("run on the device: each takes {launch} on the host and {work} on the device")
                parts = [say(template, launch=launch, work=likely("_ns", transform.device_ns))]
            if transform.copies_gone is not None and len(transform.copies_gone):
                parts.append(say("{count} copy and wait calls are removed", count=len(transform.copies_gone)))
            if transform.copies_added:
                template = mark(
                    "before each operator, {count} copies between host and device are added, and each copy blocks the "
                    "host for {time}"
                )
                parts.append(say(template, count=transform.copies_added, time=likely("_ns", transform.copy_ns)))
            return say("; ").join(parts)
        case transforms.Unblock():
            if transform.most_ns is None:
                return say("no longer wait for device work")
            return say("no longer wait for device work, and take at most {time}", time=likely("_ns", transform.most_ns))
        case transforms.InCases():
            cases = [say(_CASES[case]) for case in transform.cases]
            if len(transform.cases) > 1:
                return say("{change} (only in the {cases:and} cases)", change=change(transform.change), cases=cases)
            return say("{change} (only in the {case} case)", change=change(transform.change), case=cases[0])
    parts = [type(transform).__name__]
    if is_dataclass(transform):
        numbers = {field.name: getattr(transform, field.name) for field in fields(transform)}
        parts += [f"{text.name(key)} {value(key, number)}" for key, number in numbers.items() if key != "rows"]
    return say(", ").join(parts)


def _their_time(factor: transforms.Number) -> str:
    interval = span("_factor", factor)
    if not isinstance(factor, transforms.Quantity) or factor.low == factor.high:
        return say("{factor} their time", factor=interval)
    return say("{factor} their time (likely {likely})", factor=interval, likely=value("", factor.mid))


def document(advices: Advices, trace: Trace, records: Sequence[Record] = ()) -> dict[str, Any]:
    """Return all advice as data for JSON. Times are integers in ns, and unknown values are null. ``rows`` are row
    numbers of the event table. ``records`` are earlier measurements."""
    combined = None
    if advices.combined is not None:
        combined = {"advice": list(advices.together), "prediction": asdict(advices.combined)}
    identity = asdict(advices.identity)
    identity["unrecorded_waits"] = identity.pop("unrecorded_events")
    if identity.pop("contradiction") is not None:
        identity["contradiction"] = english(advices.identity.contradiction)
    return {
        "source": trace.meta.source,
        "framework": trace.meta.framework,
        "quality": [{"code": finding.code, "message": english(finding.text)} for finding in trace.quality],
        "identity": identity,
        "base": None if advices.base is None else asdict(advices.base),
        "noise_ns": advices.noise_ns,
        "advice": [advice_data(advice, advices, records) for advice in advices.advice],
        "combined": combined,
        "without_saving": [advice_data(advice, advices, records) for advice in advices.without_saving],
        "not_evaluable": [{"rule": rule, "why": english(why.text)} for rule, why in advices.not_evaluable.items()],
    }


def advice_data(advice: Advice, advices: Advices, records: Sequence[Record] = ()) -> dict[str, Any]:
    candidate, then, record = advice.candidate, advices.after.get(advice.id), ledger.latest(records, advice.id)
    remedy = None if advice.remedy is None else asdict(advice.remedy) | {"note": english(advice.remedy.note)}
    outcome = {"outcome": "predicted", "saving_ratio": None, "saving_error": None, "step_error": None}
    if record is not None:
        outcome = {name: getattr(record, name) for name in _OUTCOME}
    assumptions = [
        {"name": a.name, "value": plain(a.value), "source": english(a.source), "text": english(assumed(advice.rule, a))}
        for a in candidate.assumptions
    ]
    return {
        "id": advice.id, "rule": advice.rule, "number": advice.number, "version": advice.version,
        "title": english(advice.title), "what": english(candidate.what), "severity": advice.severity,
        "framework": advice.framework, "framework_version": advice.framework_version, "runtime": advice.runtime,
        "mode": advice.mode, "direction": candidate.direction, "evidence": plain(candidate.evidence),
        "rows": candidate.rows.tolist(), "steps": list(advice.steps) if advice.steps else None, "place": advice.place,
        "preconditions": list(map(english, candidate.preconditions)), "vetoes": list(map(english, candidate.vetoes)),
        "transform": [plain(transform) for transform in candidate.transforms], "prediction": asdict(advice.prediction),
        "trust": {
            "assumptions": assumptions, "identity_error": advices.identity.error, "noise_ns": advices.noise_ns,
        },
        "risks": list(map(english, candidate.risks)), "conflicts": list(candidate.conflicts),
        "excluded_because": english(advices.excluded.get(advice.id)) or None,
        "after": None if then is None else {"once": list(then.once), "saving_ns": then.saving_ns},
        "what_if": advices.questions[advices.advice.index(advice)] if advices.questions else None,
        "remedy": remedy, "outcome": outcome,
    }  # fmt: skip


def plain(number: Any) -> Any:
    """Return a transform, or one of its values, as plain data for JSON. A transform becomes its class name and its
    fields. An uncertain number becomes its percentiles."""
    if isinstance(number, transforms.Quantity):
        return {"p10": number.low, "p50": number.mid, "p90": number.high, "source": english(number.source)}
    if isinstance(number, Message):
        return english(number)
    if isinstance(number, np.ndarray):
        return number.tolist()
    if is_dataclass(number) and not isinstance(number, type):
        named = {field.name: plain(getattr(number, field.name)) for field in fields(number)}
        return {"transform": type(number).__name__} | named
    if isinstance(number, Mapping):
        return {str(key): plain(item) for key, item in number.items()}
    return [plain(item) for item in number] if isinstance(number, (list, tuple)) else number
