"""An advice in the words of people: short, with numbers, and with how sure they are.

What does a prediction take for granted, in words? One table; the machine formats keep the names.

What does all advice of a recording come to, and what is not known? In sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.model import Advice, Advices, After, Assumption, Identity, Prediction
from perfkit_core.language.messages import Message, Text, mark, message, plural, render, say

_TEXTS: Final[Mapping[str, str]] = {
    "batch_every_ns": mark("a batch arrives every {value}"),
    "batch_ns": mark("making a batch takes {value}"),
    "between_factor": mark("the Python between launches takes {value} its time"),
    "call_ns": mark("the call of a pinned copy takes {value}"),
    "casts_left": mark("{value} of the casts stay"),
    "communication_factor": mark("overlapped, communication holds the step up for {value} its time"),
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
    "steps_per_epoch": mark("a loader is begun every {value} steps"),
    "taken_over_ns": mark("taking over a gradient takes {value} each"),
    "turns_factor": mark("computing takes {value} its time once no thread reads ahead"),
}
_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("loader-workers", "host_factor"): mark("the host's own work takes {value} its time beside workers"),
    ("per-tensor-optimizer", "host_factor"): mark("the optimizer takes {value} its time on the host"),
    ("unfused-attention", "device_factor"): mark("the fused kernel takes {value} the time of those it replaces"),
    ("zero-fill-gradients", "device_factor"): mark("adding to gradients takes {value} its time on the device"),
    ("rank-skew", "factor"): mark("what is more on the slow rank takes {value} its time"),
}
"""Where a name means something else in each rule."""
_MOVED: Final = "_on_host_ns"


def told(rule: str, one: Assumption) -> str:
    """One assumption in words, with its value: ``a batch is handed over in 0.1–2 ms``."""
    shown = render(one.value) if isinstance(one.value, (str, Message)) else wording.span(one.name, one.value)
    text = _OF_RULES.get((rule, one.name)) or _TEXTS.get(one.name)
    if text is not None:
        return say(text, value=shown)
    if one.name.endswith(_MOVED):
        return say("{operator} takes {value} on the host", operator=one.name.removesuffix(_MOVED), value=shown)
    return shown if isinstance(one.value, (str, Message)) else f"{wording.name(one.name)} {shown}"


_HOW: Final = {
    "replay": mark("replayed on the recording"),
    "microbenchmark": mark("from measurements of single operations on such a device"),
    "prior": mark("from what such changes saved elsewhere, not from this recording"),
}
"""Where a number comes from, by method."""


def title(number: int, advice: Advice, asked: str | None = None) -> str:
    """Return ``1. Load data in worker processes: saves 66% of the time``.

    ``asked``: the question that this answers (``loader-workers=4``)."""
    parts = [part for part in (asked, advice.title, render(saves(advice.prediction))) if part]
    return f"{number}. {say(': ').join(parts)}"


def saves(prediction: Prediction) -> Message | None:
    """Return ``saves 12% of the time``, or what it costs; ``may save`` where its interval includes a cost; None where
    no number is known."""
    if prediction.saving_ns is None:
        return None
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    if share == 0:
        return message("saves nothing")
    if share > 0 and (prediction.saving_p10_ns or 0) < 0:
        return message("may save {share:ratio} of the time", share=share)
    if share > 0:
        return message("saves {share:ratio} of the time", share=share)
    return message("costs {share:ratio} more time", share=-share)


def lines(advice: Advice, found: Advices, of: str) -> Iterator[Text]:
    """What, where, how much, how sure, after what. ``of``: what the times are of, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = [part for part in (advice.place, steps(advice)) if part]
    if where:
        yield message("Where: {where:parts}", where=where)
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield message("How sure: {how:parts}", how=list(how_sure(advice, found)))
    if advice.id in found.after:
        yield message("With others: {after}", after=after(advice, found))
    yield message("Id: {id}", id=advice.id)


def expected(prediction: Prediction, of: str) -> Iterator[Message]:
    """The time now and afterwards, and the saving, each with its interval."""
    p = prediction
    if p.p50_ns is None or p.saving_ns is None:
        yield _parts(message("Saving: cannot be told from this recording"), _ceiling(p))
        return
    yield now_and_then(p, of)
    yield _loss(p) if p.saving_ns < 0 else _saving(p)


def now_and_then(p: Prediction, of: str, within: bool = False) -> Message:
    """Return the time now and afterwards; ``within``: as part of a sentence."""
    values = {"now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if of == "step" and within:
        return message("step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if of == "step":
        return message("Step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if within:
        return message("recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    return message("Recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)


def _saving(p: Prediction) -> Message:
    saving = message(
        "Saving: {time:ns} ({low:ns} to {high:ns})",
        time=p.saving_ns or 0,
        low=p.saving_p10_ns or 0,
        high=p.saving_p90_ns or 0,
    )
    return _parts(saving, _ceiling(p))


def _loss(p: Prediction) -> Message:
    """A saving below 0 is told as a cost."""
    return message(
        "Cost: {time:ns} more ({low:ns} to {high:ns})",
        time=-(p.saving_ns or 0),
        low=-(p.saving_p90_ns or 0),
        high=-(p.saving_p10_ns or 0),
    )


def _ceiling(p: Prediction) -> Message | None:
    """What no change of this kind can save more than without others."""
    return None if p.ceiling_ns is None else message("never more than {time:ns} by itself", time=p.ceiling_ns)


def _parts(*parts: Message | None) -> Message:
    return message("{parts:parts}", parts=[part for part in parts if part is not None])


def how_sure(advice: Advice, found: Advices) -> Iterator[Message]:
    """Where the number comes from, what the interval rests on, and what is not counted on."""
    yield message(_HOW[advice.prediction.method])
    taken = [told(advice.rule, one) for one in advice.candidate.assumptions]
    yield message("assumed: {what:list}", what=taken) if taken else message("nothing assumed")
    yield from _sign(advice.prediction)
    if found.noise_ns and 0 < (advice.prediction.saving_ns or 0) < found.noise_ns:
        yield message(
            "less than these steps differ by chance (±{time:ns}): take many to measure it", time=found.noise_ns
        )
    why = found.excluded.get(advice.id)
    if why and advice.prediction.method == "replay":
        yield message("not in the combined saving: {why}", why=why)


def after(advice: Advice, found: Advices) -> Message:
    """What is left, or only comes, of a saving once other advice is followed: ``saves nothing by itself, 12 ms once
    loader-workers-29c1 is done``."""
    own, then = advice.prediction.saving_ns or 0, found.after[advice.id]
    others = {"others": _others(advice, then, found), "verb": "is" if len(then.once) == 1 else "are"}
    if 0 < then.saving_ns < own:
        return message("little is left of it ({then:ns}) once {others} {verb} done", **others, then=then.saving_ns)
    if then.saving_ns < own:
        return message("nothing is left of it once {others} {verb} done", **others)
    if own > 0:
        return message(
            "saves {own:ns} by itself, {then:ns} once {others} {verb} done", **others, own=own, then=then.saving_ns
        )
    return message("saves nothing by itself, {then:ns} once {others} {verb} done", **others, then=then.saving_ns)


def _others(advice: Advice, then: After, found: Advices) -> Message:
    """Their ids; all that can be combined are told as such."""
    if len(then.once) > 2 and set(then.once) == set(found.together) - {advice.id}:
        if advice.id in found.together:
            return message("the other {count} that can be combined", count=len(then.once))
        return message("the {count} that can be combined", count=len(then.once))
    return message("{names:and}", names=then.once)


def _sign(p: Prediction) -> Iterator[Message]:
    """What the interval leaves open."""
    if (p.saving_ns or 0) >= 0 > (p.saving_p10_ns or 0):
        yield message("it may cost time instead: measure it")
    if (p.saving_ns or 0) < 0 < (p.saving_p90_ns or 0):
        yield message("it may save time all the same: measure it")


def steps(advice: Advice) -> Message | None:
    """Return the steps in which it was found, None where it is of none."""
    if advice.steps is None:
        return None
    first, last = advice.steps
    if first == last:
        return message("step {number}", number=first)
    return message("steps {first} to {last}", first=first, last=last)


def sentence(text: Text) -> str:
    """Return the text with a full stop, and a capital unless it begins with a name."""
    begun = capitalized(text)
    return begun if begun.endswith((".", "!", "?", "。")) else say("{sentence}.", sentence=begun)


def capitalized(text: Text) -> str:
    """Return the text with a capital, unless it begins with a name such as ``torch.compile``."""
    shown = render(text)
    first = shown.split(" ", 1)[0].rstrip(",:;")
    return f"{first.capitalize()}{shown[len(first) :]}" if first.isalpha() and first.islower() else shown


_RULES: Final = 4
"""Rules that are named for one reason; the machine formats have all."""


def _which(found: Advices) -> Message:
    """``Both``, or how many of how many."""
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    if count == savings:
        return message("Both") if count == 2 else message("All {count}", count=count)
    return message("The {count} that can be combined", count=count)


def replayed(identity: Identity, of: str) -> Message:
    """How well the unchanged recording was repeated. ``of``: what was compared, "step" or "recording"."""
    if identity.error is None or identity.worst is None:
        return message("Nothing was replayed: the recording holds no events of a host.")
    steps = unexplained = waits = None
    if of == "step":
        steps = plural(
            " (median of 1 step; worst {worst:ratio})",
            " (median of {n} steps; worst {worst:ratio})",
            identity.steps,
            worst=identity.worst,
        )
    if identity.unexplained is not None:
        unexplained = message(
            ". {share:ratio} of the device's work starts later than anything recorded explains",
            share=identity.unexplained,
        )
    if identity.untold_waits:
        waits = message(
            ". For {count} times that a stream is told to wait nothing recorded says what it waits for: where several "
            "streams work at once, a saving may be smaller than said, and a cost larger",
            count=identity.untold_waits,
        )
    return message(
        "Replayed unchanged, the recording repeats itself with an error of {error:ratio}{steps}{unexplained}{waits}.",
        error=identity.error,
        steps=steps,
        unexplained=unexplained,
        waits=waits,
    )


def together(found: Advices, of: str) -> Iterator[Message]:
    """What all advice saves that does not exclude each other."""
    if found.combined is None or len(found.together) < 2:
        return
    first, *rest = expected(found.combined, of)
    if rest:
        first = now_and_then(found.combined, of, within=True)
        text = mark("{which}, replayed at once: {first}. {second}.")
        yield message(text, which=_which(found), first=first, second=rest[0])


def gains(found: Advices) -> Iterator[Message]:
    """What is no advice by itself, and becomes worth it once other advice is followed."""
    for one in found.without_saving:
        if one.id in found.after:
            yield message(
                "Worth it afterwards: {id} ({title}) {after}.", id=one.id, title=one.title, after=after(one, found)
            )


def without_saving(found: Advices) -> Iterator[Message]:
    """What was found, and is no advice."""
    none: list[str] = []
    little: list[Message] = []
    for one in found.without_saving:
        saving = one.prediction.saving_ns or 0
        if one.id not in found.after:
            if saving > 0:
                little.append(message("{id} ({saving:ns})", id=one.id, saving=saving))
            else:
                none.append(one.id)
    if none:
        yield message("Looked at, saves nothing: {ids:list}.", ids=none)
    if little:
        yield message("Looked at, saves too little to read on: {ids:list}.", ids=little)


def not_evaluable(found: Advices, every: bool = False) -> Iterator[Message]:
    """The rules that could not be evaluated, a sentence a reason. What to record is left to the machine formats and to
    ``--rule``. ``every``: name all rules."""
    reasons = found.not_evaluable
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
        more = message("; --format json names all") if cut else None
        yield message(text, count=len(reasons), source=found.source, more=more)
        for reason, rules in by_reason.items():
            yield message("{reason}: {rules}.", reason=capitalized(reason), rules=wording.several(rules, most))
