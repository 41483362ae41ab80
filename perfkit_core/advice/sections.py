"""Advice as a Report, and as sections of one: what every renderer can show.

What does each advice make of a step, and all of them together? A row each, with the picture of their intervals.

What does all advice come to, what was looked at without gain, and what could not be told? As tables.

The one sentence about all advice that a hurried reader needs; where something was asked, a sentence an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import ledger, replay_error, text
from perfkit_core.advice import text as sentences
from perfkit_core.advice import text as sums
from perfkit_core.advice.columns import COLUMNS
from perfkit_core.advice.data import frame, numbers, row, row_types, table
from perfkit_core.advice.model import Advice, Advices, Prediction
from perfkit_core.advice.text import sentence
from perfkit_core.language.messages import Message, Text, mark, message, plural, render, say
from perfkit_core.language.units import format_ratio
from perfkit_core.model.trace import Trace
from perfkit_core.report import facts
from perfkit_core.report.model import Chart, Report, Section, declared
from perfkit_core.system.paths import PathLike
from perfkit_core.verify.ledger import Record
from perfkit_core.views.select import step_numbers

NOTHING: Final = mark("nothing was found that would save time")


def headline_sentences(found: Advices, whole: str) -> Iterator[Text]:
    """``whole``: what the times are of, "step" or "recording"."""
    what = message("a step") if whole == "step" else message("the recording")
    if found.asked:
        for question, one in zip(found.asked, found.advice, strict=True):
            yield message("{question}: {answer}", question=question, answer=_answer(what, one.prediction))
        return
    savings = [one.prediction for one in found.advice if one.prediction.saving_ns is not None]
    if not savings:
        if not found.advice and not found.without_saving and len(found.not_evaluable) == 1:
            yield message("What was asked cannot be told from this recording.")
            return
        yield sentence(message("{nothing}{notes}", nothing=message(NOTHING), notes=_notes(len(found.advice))))
        return
    best = _best(found, savings)
    answer = _answer(what, best, _with(found, best, len(savings)))
    yield message("{question}: {answer}", question=_count(len(savings)), answer=answer)


def _notes(count: int) -> Message | None:
    if count < 2:
        return message("; one thing is worth knowing") if count else None
    return message("; some things are worth knowing")


def _count(changes: int) -> Message:
    return plural("One change", "{n} changes", changes)


def _best(found: Advices, savings: list[Prediction]) -> Prediction:
    """The combined prediction, unless one that is no replay saves more by itself."""
    together = found.combined
    alone = savings[0].saving_ns or 0
    return together if together is not None and (together.saving_ns or 0) >= alone else savings[0]


def _with(found: Advices, best: Prediction, changes: int) -> Message | None:
    """Which of the changes the time is with."""
    if changes == 1:
        return None
    if len(found.together) < 2 or best is not found.combined:
        return message(" with the first")
    if len(found.together) == changes:
        return message(" with both") if changes == 2 else message(" with all of them")
    return message(" with the {count} that can be combined", count=len(found.together))


def _answer(what: Message, p: Prediction, which: Message | None = None) -> Message:
    """Now and afterwards, with the interval."""
    if p.p50_ns is None:
        return message("what {what} would take cannot be told from this recording.", what=what)
    values = {"what": what, "now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if (p.saving_ns or 0) <= 0:
        return message(
            "{what} takes {now:ns} now, and would take {then:ns} ({low:ns} to {high:ns}): it does not pay.", **values
        )
    return message(
        "{what} takes {now:ns} now, and should take {then:ns} ({low:ns} to {high:ns}){which}.", which=which, **values
    )


_NAME: Final = "in_sum"
_SELDOM: Final = ("why", "afterwards_ns", "after")
"""Columns that are left out where they hold nothing: there is nothing to tell."""


def sections(found: Advices, of: str) -> Iterator[Section]:
    """In sum, with its parts as far as there is something to say: what can be combined, what saves nothing by itself,
    and the rules that could not be evaluated. ``of``: what the times are of, "step" or "recording"."""
    lines = (*text.together(found, of), *text.gains(found), text.replayed(found.identity, of))
    yield Section(_NAME, say("In sum"), pd.DataFrame(), lines=lines)
    if len(found.advice) > 1 and not found.asked:
        yield Section("together", say("What can be combined"), together(found), within=_NAME)
    if found.without_saving:
        title = say("Looked at, without a saving to speak of ({count})", count=len(found.without_saving))
        yield Section("without_saving", title, without_saving(found), within=_NAME, folded=True)
    if found.not_evaluable:
        title = say("Rules that could not be evaluated ({count})", count=len(found.not_evaluable))
        yield Section("not_evaluable", title, not_evaluable(found), within=_NAME, folded=True)


def together(found: Advices) -> pd.DataFrame:
    """id, saving_ns (by itself), combined (whether it is part of the combined saving), why (not), afterwards_ns (what
    it saves once others are followed, where that differs much), after (which others). NA where unknown."""
    return _typed([_savings(one, found) | _combined(one, found) for one in found.advice])


def without_saving(found: Advices) -> pd.DataFrame:
    """id, title, saving_ns, afterwards_ns (once others are followed, where that is much)."""
    return _typed([_savings(one, found) | {"title": one.title} for one in found.without_saving])


def not_evaluable(found: Advices) -> pd.DataFrame:
    """rule, reason, to_record (what the reason asks for; NA where it asks for nothing)."""
    rows = [
        (rule, text.capitalized(why.reason), render(why.record) or pd.NA) for rule, why in found.not_evaluable.items()
    ]
    return pd.DataFrame(rows, columns=["rule", "reason", "to_record"], dtype=object)


def _savings(one: Advice, found: Advices) -> dict[str, Any]:
    then = found.after.get(one.id)
    return {
        "id": one.id,
        "saving_ns": one.prediction.saving_ns,
        "afterwards_ns": None if then is None else then.saving_ns,
        "after": None if then is None else ", ".join(then.once),
    }


def _combined(one: Advice, found: Advices) -> dict[str, Any]:
    return {"combined": one.id in found.together, "why": render(found.excluded.get(one.id)) or None}


def _typed(rows: list[dict[str, Any]]) -> pd.DataFrame:
    names = ["id", "title", "saving_ns", "combined", "why", "afterwards_ns", "after"]
    made = pd.DataFrame(rows)
    made = made[[name for name in names if name in made]]
    made = made.astype({"saving_ns": "Int64", "afterwards_ns": "Int64"})
    return made.drop(columns=[name for name in _SELDOM if name in made and made[name].isna().all()])


_NAMES: Final = (
    mark("now, and its 80% interval"),
    mark("afterwards: likely, and p10 to p90"),
    mark("the median at best, by itself"),
)
_COLUMNS: Final = (
    "id", "advice", "severity", "saving_ns", "saving_ratio", "place", "step_ns", "step_p10_ns", "step_p90_ns", "p10_ns",
    "p50_ns", "p90_ns", "floor_ns", "method",
)  # fmt: skip


def overview(found: Advices) -> Section:
    """All advice, the largest saving first, then what can be combined as one more row (without an id).

    Columns: id, advice (number, title and change; the question where one was asked), severity, then as in
    :func:`perfkit_core.advice.data.table`.
    """
    made = frame([*map(row, found.advice), *_together(found)])
    made.insert(1, "advice", [*_labels(found), *(one["title"] for one in _together(found))])
    return Section(
        "advice",
        say("Advice"),
        made[list(_COLUMNS)],
        note=say("Times of a step, of the whole recording where no steps were recorded; savings are of the median."),
        empty=say("nothing was found that would save time"),
        chart=intervals("advice"),
    )


def intervals(x: str) -> Chart:
    """The picture of a table with the columns of predictions, each row called by its column ``x``."""
    now, after, floor = ("step_p10_ns", "step_ns", "step_p90_ns"), ("p10_ns", "p50_ns", "p90_ns"), ("floor_ns",) * 3
    return Chart("intervals", x, (*now, *after, *floor), names=_NAMES)


def _labels(found: Advices) -> Iterator[str]:
    for number, one in enumerate(found.advice, 1):
        asked = f"{found.asked[number - 1]}: " if found.asked else ""
        yield _changed(f"{number}. {asked}{one.title}", one.prediction)


def _changed(text: str, prediction: Prediction) -> str:
    """With what becomes of the time: ``1. Load data in worker processes: −34%``."""
    if prediction.saving_ns is None:
        return text
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    return f"{text}{say(': ')}{'−' if share >= 0 else '+'}{format_ratio(abs(share))}"


def _together(found: Advices) -> list[dict[str, Any]]:
    if found.combined is None or len(found.together) < 2:
        return []
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    title = _changed(_called(count, savings), found.combined)
    return [{"id": pd.NA, "title": title, "severity": pd.NA, **numbers(found.combined)}]


def _called(count: int, savings: int) -> str:
    if count < savings:
        return say("The {count} that can be combined", count=count)
    return say("Both together") if count == 2 else say("All {count} together", count=count)


FIRST: Final = 3
"""Advice that a report on a whole profile shows in words."""
_MORE: Final = mark("All that the first advice rests on: perfkit advise {source} --explain {id}.")


def report(found: Advices, trace: Trace, records: Sequence[Record] = (), every: bool = False) -> Report:
    """All advice in words, with what was measured of it before (``records``), then what it saves together and what
    could not be told; ``every``: all rules that could not be evaluated."""
    of = step_or_recording(trace)
    texts = [in_words(number, one, found, of, records) for number, one in enumerate(found.advice, 1)]
    source = facts.source(trace)
    parts = (*texts, in_sum(found, of, every))
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), parts, headline=tuple(headline_sentences(found, of)))


def of_page(trace: Trace) -> tuple[Section, ...]:
    """For a page on the profile: all advice as a table, what it adds up to, and what saves most in words. Whatever goes
    wrong, the page has its other sections."""
    from perfkit_core.advice.engine import advise

    try:
        found = advise(trace)
    except Exception as error:
        return _without(say("no advice could be given ({error})", error=f"{type(error).__name__}: {error}"))
    of = step_or_recording(trace)
    texts = [in_words(number, one, found, of) for number, one in enumerate(found.advice[:FIRST], 1)]
    total, *parts = sections(found, of)
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
    lines = [*sentences.lines(advice, found, of), *ledger.lines(advice, records), *_fix(advice)]
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
    lines: tuple[Text, ...] = (*more, *_sum(found, of, every))
    return Section("in_sum", say("In sum"), pd.DataFrame(), lines=lines)


def _sum(found: Advices, of: str, every: bool = False) -> Iterator[Message]:
    yield from sums.together(found, of)
    yield from sums.gains(found)
    yield sums.replayed(found.identity, of)
    yield from sums.without_saving(found)
    yield from sums.not_evaluable(found, every)


def table_section(found: Advices, of: str) -> Section:
    """All advice, a row each."""
    note = " ".join(map(render, _sum(found, of)))
    return Section("advice", say("Advice"), table(found), note=note, empty=say(NOTHING), columns=COLUMNS)


def table_report(found: Advices, trace: Trace) -> Report:
    """All advice as one table, for formats that hold nothing else."""
    source = facts.source(trace)
    title = say("Advice on {name}", name=source.label)
    return Report(title, (source,), (table_section(found, step_or_recording(trace)),))


def identity_report(sources: Sequence[PathLike], partial: bool = False) -> Report:
    """How well the unchanged recordings repeat themselves. Raises SourceError."""
    found = replay_error.table(sources, partial)
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
    text = mark("{count} of them with steps: median error {median}, worst step {worst}.")
    return say(text, count=len(found), median=format_ratio(middle), worst=format_ratio(worst))
