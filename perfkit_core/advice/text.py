"""Advice in words: numbers in their units, assumptions, and the sentences on one advice and on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perfkit_core.advice.advice import Advice, Advices, Identity, Prediction
from perfkit_core.advice.facts import Assumption
from perfkit_core.language.messages import Message, Text, mark, message, plural, render, say
from perfkit_core.language.units import SHARES, SIZES, TIMES, format_count, format_range
from perfkit_core.model.trace import Trace
from perfkit_core.replay.transforms import Number, Quantity
from perfkit_core.views.select import step_numbers

NOTHING: Final = mark("nothing was found that would save time")
_SHOWN: Final = 8
"""Items of a list that are shown; the machine formats have all."""
_RULES: Final = 4
"""Rules named for one reason; the machine formats have all."""
_SUFFIXES: Final = ("_ns", "_bytes", "_ratio", "_factor", "_left")
_SHARES: Final = ("_ratio", "_left")
_RATE: Final = "_per_ns"
_KINDS: Final = {"_ns": mark(", time"), "_bytes": mark(", size"), "_factor": mark(", factor")}
_ABBREVIATIONS: Final = {"cpu": "CPU", "gpu": "GPU", "id": "ID"}
_ASSUMPTIONS: Final[Mapping[str, str]] = {
    "batch_every_ns": mark("a batch arrives every {value}"),
    "batch_ns": mark("making a batch takes {value}"),
    "between_factor": mark("the Python between launches takes {value} its time"),
    "call_ns": mark("the call of a pinned copy takes {value}"),
    "casts_left": mark("{value} of the casts stay"),
    "communication_factor": mark("overlapped communication delays the step by {value} its time"),
    "conversions_left": mark("{value} of the conversions stay"),
    "copies_left": mark("{value} of the copies that reorder stay"),
    "copy_factor": mark("a copy from pinned memory takes {value} its time"),
    "copy_ns": mark("a copy that is waited for takes {value}"),
    "device_ns": mark("the device takes {value} for each operator"),
    "first_batch_ns": mark("the first batch of a loader still takes {value}"),
    "gap_factor": mark("the gaps take {value} their time"),
    "handover_ns": mark("a batch is handed over in {value}"),
    "kernel_factor": mark("the kernels take {value} their time"),
    "launch_ns": mark("a launch takes {value}"),
    "launches_ns": mark("the launches that are left take {value} together"),
    "longest_kernel_factor": mark("a fused kernel takes {value} the time of the longest of its chain"),
    "making_factor": mark("a worker takes {value} the recorded time to make a batch"),
    "selecting_factor": mark("selecting takes {value} its time"),
    "steps_per_epoch": mark("a loader is started every {value} steps"),
    "taken_over_ns": mark("taking over a gradient takes {value} each"),
    "turns_factor": mark("computing takes {value} its time once no thread reads ahead"),
}
_ASSUMPTIONS_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("loader-workers", "host_factor"): mark("the host's own work takes {value} its time beside workers"),
    ("per-tensor-optimizer", "host_factor"): mark("the optimizer takes {value} its time on the host"),
    ("unfused-attention", "device_factor"): mark("the fused kernel takes {value} the time of those it replaces"),
    ("zero-fill-gradients", "device_factor"): mark("adding to gradients takes {value} its time on the device"),
    ("rank-skew", "factor"): mark("the excess of the slow rank takes {value} its time"),
}
"""Names whose meaning depends on the rule."""
_ON_HOST: Final = "_on_host_ns"
_METHODS: Final = {
    "replay": mark("replayed on the recording"),
    "microbenchmark": mark("from measurements of single operations on such a device"),
    "prior": mark("from what such changes saved elsewhere, not from this recording"),
}


def step_or_recording(trace: Trace) -> str:
    """Return "step" or "recording", the unit of the predicted times."""
    return "step" if len(step_numbers(trace)) else "recording"


def several(names: Sequence[str], most: int = _SHOWN) -> str:
    """Return the first names, and the number of further ones."""
    rest = len(names) - most
    first = say(", ").join(names[:most])
    return say("{names} and {count} more", names=first, count=rest) if rest > 0 else first


def joined(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    first, last = say(", ").join(names[:-1]), "".join(names[-1:])
    return say("{names} and {last}", names=first, last=last) if first and last else first or last


def names(texts: Sequence[str]) -> list[str]:
    """Return readable names of numbers, with the unit in a word if two would be equal without it."""
    shown = [name(text) for text in texts]
    return [
        f"{one}{say(_KINDS.get(_suffix(text), ''))}" if shown.count(one) > 1 else one
        for one, text in zip(shown, texts, strict=True)
    ]


def name(text: str) -> str:
    """Return ``proposed workers`` for ``proposed_workers`` and ``loader, share`` for ``loader_ratio``: units are shown
    with the value."""
    stem = text if text.endswith(_RATE) else text.removesuffix(_suffix(text))
    shown = " ".join(_ABBREVIATIONS.get(word, word) for word in stem.split("_"))
    if not text.endswith(_SHARES):
        return shown
    return say("{what}, left", what=shown) if text.endswith("_left") else say("{what}, share", what=shown)


def _suffix(text: str) -> str:
    return next((end for end in _SUFFIXES if text.endswith(end) and text != end), "")


def value(named: str, number: Any) -> str:
    """Return a number, an uncertain number, or texts, in the unit that ``named`` ends with."""
    if number is None:
        return say("not known")
    if isinstance(number, bool):
        return say("yes") if number else say("no")
    if isinstance(number, Message):
        return render(number)
    if isinstance(number, (Quantity, int, float)):
        return likely(named, number)
    if isinstance(number, Mapping):
        return say(", ").join(f"{name(str(key))} {value(str(key), one)}" for key, one in number.items())
    return several([value(named, one) for one in number]) if isinstance(number, (list, tuple)) else str(number)


def likely(named: str, number: Number) -> str:
    """Return ``0.1–2 ms, likely 0.5 ms``; only the number if it is certain."""
    interval = span(named, number)
    if not isinstance(number, Quantity) or number.low == number.high:
        return interval
    return say("{interval}, likely {value}", interval=interval, value=span(named, number.mid))


def span(named: str, number: Number) -> str:
    """Return ``0.1–2 ms`` in the unit of ``named`` that suits the upper end; one number if both ends read alike."""
    low, high = sorted((number.low, number.high)) if isinstance(number, Quantity) else (number, number)
    if not named.endswith(_RATE):
        if named.endswith("_ns"):
            return format_range(low, high, TIMES)
        if named.endswith(_SHARES):
            return format_range(low, high, SHARES)
        if "bytes" in named.split("_"):
            return format_range(low, high, SIZES)
    unit = " ×" if named.endswith("factor") else ""
    ends = list(dict.fromkeys((format_count(low), format_count(high))))
    return f"{(say(' to ') if low < 0 else '–').join(ends)}{unit}"


def assumed(rule: str, assumption: Assumption) -> str:
    """Return an assumption in words, with its value: ``a batch is handed over in 0.1–2 ms``."""
    key, number = assumption.name, assumption.value
    is_text = isinstance(number, (str, Message))
    shown = render(number) if isinstance(number, (str, Message)) else span(key, number)
    template = _ASSUMPTIONS_OF_RULES.get((rule, key)) or _ASSUMPTIONS.get(key)
    if template is not None:
        return say(template, value=shown)
    if key.endswith(_ON_HOST):
        return say("{operator} takes {value} on the host", operator=key.removesuffix(_ON_HOST), value=shown)
    return shown if is_text else f"{name(key)} {shown}"


def sentence(text: Text) -> str:
    """Return the text with a full stop, and a capital unless it begins with a name."""
    begun = capitalized(text)
    return begun if begun.endswith((".", "!", "?", "。")) else say("{sentence}.", sentence=begun)


def capitalized(text: Text) -> str:
    """Return the text with a capital, unless it begins with a name such as ``torch.compile``."""
    shown = render(text)
    first = shown.split(" ", 1)[0].rstrip(",:;")
    return f"{first.capitalize()}{shown[len(first) :]}" if first.isalpha() and first.islower() else shown


def title(number: int, advice: Advice, asked: str | None = None) -> str:
    """Return ``1. Load data in worker processes: saves 66% of the time``; ``asked`` is the what-if question."""
    parts = [part for part in (asked, advice.title, render(saves(advice.prediction))) if part]
    return f"{number}. {say(': ').join(parts)}"


def saves(prediction: Prediction) -> Message | None:
    """Return ``saves 12% of the time``, ``may save`` if the interval includes a cost, or the cost; None without a
    number."""
    share = prediction.saving_ratio
    if share is None:
        return None
    if share == 0:
        return message("saves nothing")
    if share > 0 and (prediction.saving_p10_ns or 0) < 0:
        return message("may save {share:ratio} of the time", share=share)
    if share > 0:
        return message("saves {share:ratio} of the time", share=share)
    return message("costs {share:ratio} more time", share=-share)


def lines(advice: Advice, advices: Advices, of: str) -> Iterator[Text]:
    """Yield the finding, place, saving, certainty and order. ``of``: the unit of the times, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = [part for part in (advice.place, steps(advice)) if part]
    if where:
        yield message("Where: {where:parts}", where=where)
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield message("Confidence: {how:parts}", how=list(how_sure(advice, advices)))
    if advice.id in advices.after:
        yield message("With others: {after}", after=after(advice, advices))
    yield message("Id: {id}", id=advice.id)


def expected(p: Prediction, of: str) -> Iterator[Message]:
    """Yield the time before and after, and the saving or cost, each with its interval."""
    ceiling = [] if p.ceiling_ns is None else [message("never more than {time:ns} by itself", time=p.ceiling_ns)]
    if p.p50_ns is None or p.saving_ns is None:
        unknown = message("Saving: cannot be predicted from this recording")
        yield message("{parts:parts}", parts=[unknown, *ceiling])
        return
    yield now_and_then(p, of)
    low, high = p.saving_p10_ns or 0, p.saving_p90_ns or 0
    if p.saving_ns < 0:
        yield message("Cost: {time:ns} more ({low:ns} to {high:ns})", time=-p.saving_ns, low=-high, high=-low)
    else:
        saving = message("Saving: {time:ns} ({low:ns} to {high:ns})", time=p.saving_ns, low=low, high=high)
        yield message("{parts:parts}", parts=[saving, *ceiling])


def now_and_then(p: Prediction, of: str, within: bool = False) -> Message:
    """Return the time before and after; ``within``: as part of a sentence."""
    values = {"now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if of == "step" and within:
        return message("step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if of == "step":
        return message("Step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if within:
        return message("recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    return message("Recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)


def how_sure(advice: Advice, advices: Advices) -> Iterator[Message]:
    """Yield the source of the number, the basis of its interval, and what is not counted."""
    p = advice.prediction
    saving, low, high = p.saving_ns or 0, p.saving_p10_ns or 0, p.saving_p90_ns or 0
    yield message(_METHODS[p.method])
    assumptions = [assumed(advice.rule, one) for one in advice.candidate.assumptions]
    yield message("assumed: {what:list}", what=assumptions) if assumptions else message("nothing assumed")
    if saving >= 0 > low:
        yield message("it may cost time instead: measure it")
    if saving < 0 < high:
        yield message("it may still save time: measure it")
    if advices.noise_ns and 0 < saving < advices.noise_ns:
        yield message(
            "less than the noise of these steps (±{time:ns}): measure it over many steps", time=advices.noise_ns
        )
    why = advices.excluded.get(advice.id)
    if why and p.method == "replay":
        yield message("not in the combined saving: {why}", why=why)


def after(advice: Advice, advices: Advices) -> Message:
    """Return how other advice changes the saving: ``saves nothing by itself, 12 ms once loader-workers-29c1 is
    done``."""
    own, then = advice.prediction.saving_ns or 0, advices.after[advice.id]
    others = message("{names:and}", names=then.once)
    if len(then.once) > 2 and set(then.once) == set(advices.together) - {advice.id}:
        others = message("the {count} that can be combined", count=len(then.once))
        if advice.id in advices.together:
            others = message("the other {count} that can be combined", count=len(then.once))
    values = {"others": others, "verb": "is" if len(then.once) == 1 else "are", "then": then.saving_ns}
    if 0 < then.saving_ns < own:
        return message("saves only {then:ns} once {others} {verb} done", **values)
    if then.saving_ns < own:
        return message("saves nothing once {others} {verb} done", **values)
    if own > 0:
        return message("saves {own:ns} by itself, {then:ns} once {others} {verb} done", own=own, **values)
    return message("saves nothing by itself, {then:ns} once {others} {verb} done", **values)


def steps(advice: Advice) -> Message | None:
    """Return the steps of the finding, None without steps."""
    if advice.steps is None:
        return None
    first, last = advice.steps
    if first == last:
        return message("step {number}", number=first)
    return message("steps {first} to {last}", first=first, last=last)


def replayed(identity: Identity, of: str) -> Message:
    """Return the replay error in words. ``of``: what was compared, "step" or "recording"."""
    if identity.error is None or identity.worst is None:
        return message("Nothing was replayed: the recording has no host events.")
    steps = unexplained = waits = None
    if of == "step":
        steps = plural(
            " (median of 1 step; worst {worst:ratio})", " (median of {n} steps; worst {worst:ratio})",
            identity.steps, worst=identity.worst,
        )  # fmt: skip
    if identity.unexplained is not None:
        unexplained = message(
            ". {share:ratio} of the device's work starts later than the recorded events explain",
            share=identity.unexplained,
        )
    if identity.untold_waits:
        waits = message(
            ". For {count} waits of a stream, the event waited for was not recorded: where streams overlap, a saving "
            "may be smaller, and a cost larger, than predicted",
            count=identity.untold_waits,
        )
    return message(
        "The replay of the unchanged recording has an error of {error:ratio}{steps}{unexplained}{waits}.",
        error=identity.error, steps=steps, unexplained=unexplained, waits=waits,
    )  # fmt: skip


def together(advices: Advices, of: str) -> Iterator[Message]:
    if advices.combined is None or len(advices.together) < 2:
        return
    _, *saving = expected(advices.combined, of)
    if saving:
        count, savings = len(advices.together), sum(one.prediction.saving_ns is not None for one in advices.advice)
        which = message("The {count} that can be combined", count=count)
        if count == savings:
            which = message("Both") if count == 2 else message("All {count}", count=count)
        first = now_and_then(advices.combined, of, within=True)
        yield message("{which}, replayed together: {first}. {second}.", which=which, first=first, second=saving[0])


def gains(advices: Advices) -> Iterator[Message]:
    for one in advices.without_saving:
        if one.id in advices.after:
            yield message(
                "Worth doing afterwards: {id} ({title}) {after}.", id=one.id, title=one.title, after=after(one, advices)
            )


def without_saving(advices: Advices) -> Iterator[Message]:
    """Yield what was detected but saves nothing or too little."""
    left = [one for one in advices.without_saving if one.id not in advices.after]
    none = [one.id for one in left if (one.prediction.saving_ns or 0) <= 0]
    little = [
        message("{id} ({saving:ns})", id=one.id, saving=one.prediction.saving_ns)
        for one in left
        if (one.prediction.saving_ns or 0) > 0
    ]
    if none:
        yield message("Evaluated, saves nothing: {ids:list}.", ids=none)
    if little:
        yield message("Evaluated, saves too little: {ids:list}.", ids=little)


def not_evaluable(advices: Advices, every: bool = False) -> Iterator[Message]:
    """Yield the rules that could not be evaluated, a sentence for each reason, without what to record (see machine
    formats and ``--rule``). ``every``: name all rules."""
    reasons = advices.not_evaluable
    if len(reasons) == 1:
        for rule, why in reasons.items():
            yield message("Cannot be evaluated here: {rule} ({why}).", rule=rule, why=why.text)
    elif reasons:
        by_reason: dict[Text, list[str]] = {}
        for rule, why in reasons.items():
            by_reason.setdefault(why.reason, []).append(rule)
        most = len(reasons) if every else _RULES
        cut = any(len(rules) > most for rules in by_reason.values())
        text = mark("{count} rules cannot be evaluated here. What to record: perfkit advise {source} --rule ID{more}.")
        more = message("; --format json lists all") if cut else None
        yield message(text, count=len(reasons), source=advices.source, more=more)
        for reason, rules in by_reason.items():
            yield message("{reason}: {rules}.", reason=capitalized(reason), rules=several(rules, most))


def headline(advices: Advices, of: str) -> Iterator[Text]:
    """Yield one sentence about all advice, or a sentence for each what-if question. ``of``: the unit of the times,
    "step" or "recording"."""
    whole = message("a step") if of == "step" else message("the recording")
    if advices.asked:
        for question, one in zip(advices.asked, advices.advice, strict=True):
            yield message("{question}: {answer}", question=question, answer=answer(whole, one.prediction))
        return
    savings = [one.prediction for one in advices.advice if one.prediction.saving_ns is not None]
    if not savings:
        if not advices.advice and not advices.without_saving and len(advices.not_evaluable) == 1:
            yield message("The effect cannot be predicted from this recording.")
            return
        notes = None
        if advices.advice:
            one_note = message("; see the note below")
            notes = one_note if len(advices.advice) == 1 else message("; see the notes below")
        yield sentence(message("{nothing}{notes}", nothing=message(NOTHING), notes=notes))
        return
    changes, best, which = len(savings), savings[0], None
    # a prediction that is no replay may exceed the combined saving
    if advices.combined is not None and (advices.combined.saving_ns or 0) >= (best.saving_ns or 0):
        best = advices.combined
    if changes > 1:
        which = message(" with the {count} that can be combined", count=len(advices.together))
        if len(advices.together) < 2 or best is not advices.combined:
            which = message(" with the first")
        elif len(advices.together) == changes:
            which = message(" with both") if changes == 2 else message(" with all of them")
    count = plural("One change", "{n} changes", changes)
    yield message("{question}: {answer}", question=count, answer=answer(whole, best, which))


def answer(whole: Message, p: Prediction, which: Message | None = None) -> Message:
    """Return the time before and after, with the interval; ``which``: the changes."""
    if p.p50_ns is None:
        return message("the new time of {what} cannot be predicted from this recording.", what=whole)
    values = {"what": whole, "now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if (p.saving_ns or 0) <= 0:
        return message(
            "{what} takes {now:ns} now, and would take {then:ns} ({low:ns} to {high:ns}): it does not pay off.",
            **values,
        )
    return message(
        "{what} takes {now:ns} now, and should take {then:ns} ({low:ns} to {high:ns}){which}.", which=which, **values
    )
