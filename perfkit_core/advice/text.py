"""Texts on one item of advice: numbers with their units, assumptions, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perfkit_core.advice.advice import Advice, Advices, Base, Identity, Prediction
from perfkit_core.advice.rule_input import Assumption, listed
from perfkit_core.base.language.messages import Message, Text, mark, message, plural, render, say
from perfkit_core.base.language.units import SHARES, SIZES, TIMES, format_count, format_range
from perfkit_core.replay.transforms import Number, Quantity
from perfkit_core.trace.model.timed_steps import NOTABLE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import step_numbers
from perfkit_core.views.steps.inferred_steps import with_inferred_steps

NOTHING: Final = mark("no rule has a change that would save time")
SHOWN: Final = 8
"""Maximum number of list items that are shown. The machine formats have all items."""
_BEYOND: Final = 0.05
"""A saving that exceeds the time of its pattern by a smaller share needs no explanation."""
_SUFFIXES: Final = ("_ns", "_bytes", "_ratio", "_factor", "_left")
_SHARES: Final = ("_ratio", "_left")
_RATE: Final = "_per_ns"
_KINDS: Final = {"_ns": mark(", time"), "_bytes": mark(", size"), "_factor": mark(", factor")}
_ABBREVIATIONS: Final = {"cpu": "CPU", "gpu": "GPU", "id": "ID"}
_ASSUMPTIONS: Final[Mapping[str, str]] = {
    "array_factor": mark("making a tensor from an array takes {value} the recorded time"),
    "batch_every_ns": mark("a batch arrives every {value}"),
    "batch_ns": mark("making a batch takes {value}"),
    "between_factor": mark("the Python code between launches takes {value} its recorded time"),
    "call_ns": mark("the call of a copy from pinned memory takes {value}"),
    "casts_left": mark("{value} of the casts remain"),
    "channels_last_factor": mark("with channels last, the convolutions take {value} their recorded time"),
    "communication_factor": mark("part of the communication time that still delays the step: {value}"),
    "conversions_left": mark("{value} of the conversions remain"),
    "copies_left": mark("{value} of the copies that only reorder data remain"),
    "copy_factor": mark("from pinned memory, a copy takes {value} its recorded time"),
    "copy_ns": mark("a copy takes {value}, including the wait for its end"),
    "device_ns": mark("the device takes {value} for each operator"),
    "first_batch_ns": mark("the first batch of a loader still takes {value}"),
    "handover_ns": mark("handing over a batch takes {value}"),
    "kernel_factor": mark("the kernels take {value} their recorded time"),
    "launch_ns": mark("a launch takes {value}"),
    "launches_ns": mark("the remaining launches take {value} in total"),
    "longest_kernel_factor": mark("a fused kernel takes {value} the time of the longest kernel in its chain"),
    "making_factor": mark("making a batch in a worker takes {value} the recorded time"),
    "remaining_factor": mark("this work takes {value} its recorded time"),
    "selecting_factor": mark("one unbind takes {value} the time of the selections that it replaces"),
    "single_factor": mark("in single precision, the operators take {value} their recorded time"),
    "steps_per_epoch": mark("a loader is started every {value} steps"),
    "taken_over_ns": mark("assigning a gradient takes {value}"),
    "turns_factor": mark("computation takes {value} its recorded time once no other thread loads data"),
}
_ASSUMPTIONS_OF_RULES: Final[Mapping[tuple[str, str], str]] = {
    ("elementwise-chain", "host_factor"): mark("a fused operator takes {value} the time of the chain"),
    ("loader-workers", "host_factor"): mark("other host work takes {value} its recorded time while workers run"),
    ("per-tensor-optimizer", "host_factor"): mark("the optimizer takes {value} its recorded time on the host"),
    ("unbatched-loop", "remaining_factor"): mark("without the loop, its work takes {value} the recorded time"),
    ("unfused-attention", "host_factor"): mark("a fused operator takes {value} the time of the operators it replaces"),
    ("unfused-attention", "device_factor"): mark("a fused kernel takes {value} the time of the kernels it replaces"),
    ("zero-fill-gradients", "device_factor"): mark("adding to gradients takes {value} its recorded device time"),
}
"""Assumptions whose meaning depends on the rule."""
_ON_HOST: Final = "_on_host_ns"
_METHODS: Final = {
    "replay": mark("from a replay of the recording"),
    "microbenchmark": mark("from measurements of single operations on the same type of device"),
    "prior": mark("from the savings of such changes elsewhere, not from this recording"),
}


def step_or_recording(trace: Trace) -> str:
    """Return "step" if the predicted times are step times, or "recording" without recorded and inferred steps."""
    return "step" if len(step_numbers(with_inferred_steps(trace))) else "recording"


def names(texts: Sequence[str]) -> list[str]:
    """Return a readable name for each id, such as ``gap`` for ``gap_ns``. If several ids have the same readable name,
    what each id measures is added: ``gap, time`` for ``gap_ns``, and ``gap, factor`` for ``gap_factor``."""
    shown = [name(text) for text in texts]
    return [
        f"{label}{say(_KINDS.get(_suffix(text), ''))}" if shown.count(label) > 1 else label
        for label, text in zip(shown, texts, strict=True)
    ]


def name(text: str) -> str:
    """Return a readable name: ``proposed workers`` for ``proposed_workers``, ``loader, share`` for ``loader_ratio``."""
    stem = text if text.endswith(_RATE) else text.removesuffix(_suffix(text))
    shown = " ".join(_ABBREVIATIONS.get(word, word) for word in stem.split("_"))
    if not text.endswith(_SHARES):
        return shown
    return say("{what}, remaining", what=shown) if text.endswith("_left") else say("{what}, share", what=shown)


def _suffix(text: str) -> str:
    return next((end for end in _SUFFIXES if text.endswith(end) and text != end), "")


def value(named: str, number: Any) -> str:
    """Return a number, a list or another value in words. ``named`` is its name, which ends with the unit."""
    if number is None:
        return say("unknown")
    if isinstance(number, bool):
        return say("yes") if number else say("no")
    if isinstance(number, Message):
        return render(number)
    if isinstance(number, (Quantity, int, float)):
        return likely(named, number)
    if isinstance(number, Mapping):
        return say(", ").join(f"{name(str(key))} {value(str(key), entry)}" for key, entry in number.items())
    if isinstance(number, (list, tuple)):
        return render(listed([value(named, entry) for entry in number], SHOWN))
    return str(number)


def likely(named: str, number: Number) -> str:
    """Return ``0.1–2 ms, likely 0.5 ms`` for an uncertain number, and ``0.5 ms`` for an exact number."""
    interval = span(named, number)
    if not isinstance(number, Quantity) or number.low == number.high:
        return interval
    return say("{interval}, likely {value}", interval=interval, value=span(named, number.mid))


def span(named: str, number: Number) -> str:
    """Return an interval such as ``0.1–2 ms``, or a single number if both ends are equal. ``named`` is the
    name of the number, which ends with the unit, such as ``_ns``."""
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


def assumed(rule: str, assumption: Assumption) -> Text:
    """Return an assumption in words, for example ``handing over a batch takes 0.1–2 ms``."""
    key, number = assumption.name, assumption.value
    shown = number if isinstance(number, (str, Message)) else span(key, number)
    template = _ASSUMPTIONS_OF_RULES.get((rule, key)) or _ASSUMPTIONS.get(key)
    if template is not None:
        return message(template, value=shown)
    if key.endswith(_ON_HOST):
        return message("{operator} takes {value} on the host", operator=key.removesuffix(_ON_HOST), value=shown)
    return shown if isinstance(number, (str, Message)) else f"{name(key)} {shown}"


def sentence(text: Text) -> str:
    """Return the text as a sentence with a capital letter and a full stop. See :func:`capitalized`."""
    shown = capitalized(text)
    return shown if shown.endswith((".", "!", "?", "。")) else say("{sentence}.", sentence=shown)


def capitalized(text: Text) -> str:
    """Return the text with a capital letter, unless the text begins with a name such as ``torch.compile``."""
    shown = render(text)
    first = shown.split(" ", 1)[0].rstrip(",:;")
    return f"{first.capitalize()}{shown[len(first) :]}" if first.isalpha() and first.islower() else shown


def title(number: int, advice: Advice, question: str | None = None) -> str:
    """Return a title such as ``1. Load data in worker processes: saves 66% of the time``. If ``question`` is a what-if
    question, it is inserted after the number."""
    parts = [part for part in (question, render(advice.title), render(saves(advice.prediction))) if part]
    return f"{number}. {say(': ').join(parts)}"


def saves(prediction: Prediction) -> Message | None:
    """Return the saving in words, for example ``saves 12% of the time`` or ``costs 3% more time``. If the interval
    includes a cost, return ``may save …``. If the saving is unknown, return None."""
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


def lines(advice: Advice, advices: Advices, of: str, short: bool = False) -> Iterator[Text]:
    """Yield lines on the finding, its place, the saving, the confidence, and the effect of other advice. ``of`` says
    whether the times are those of a "step" or of the "recording". If the text is ``short``, it ends with the predicted
    time."""
    yield sentence(advice.candidate.what)
    where = [part for part in (advice.place, steps(advice)) if part]
    if where:
        yield message("Where: {where:parts}", where=where)
    first, *more = expected(advice.prediction, of)
    yield first
    if not short:
        yield from more
    rest_ns = shorter_waits_ns(advice.prediction)
    if rest_ns:
        yield message("With this change, waits of {time:ns} outside of this work become shorter, too.", time=rest_ns)
    if advice.prediction.saving_ns is not None and not short:
        yield message("Confidence: {how:parts}", how=list(how_sure(advice, advices)))
    if advice.id in advices.after:
        yield message("With other changes: {after}", after=after(advice, advices))
    if short:
        return
    yield message("Id: {id}", id=advice.id)


def expected(p: Prediction, of: str) -> Iterator[Message]:
    """Yield the time before and after the change, and the saving or cost, each with its interval. The ceiling is left
    out if the interval reaches it."""
    low, high = p.saving_p10_ns or 0, p.saving_p90_ns or 0
    ceiling = [message("at most {time:ns} by itself", time=p.ceiling_ns)] if (p.ceiling_ns or 0) > high else []
    if p.p50_ns is None or p.saving_ns is None:
        if p.ceiling_ns == 0:
            yield message("Saving: none by itself")
            return
        unknown = message("Saving: cannot be predicted from this recording")
        yield message("{parts:parts}", parts=[unknown, *ceiling])
        return
    yield now_and_then(p, of)
    if p.saving_ns < 0:
        yield message("Cost: {time:ns} ({low:ns} to {high:ns})", time=-p.saving_ns, low=-high, high=-low)
    else:
        saving = message("Saving: {time:ns} ({low:ns} to {high:ns})", time=p.saving_ns, low=low, high=high)
        yield message("{parts:parts}", parts=[saving, *ceiling])


def shorter_waits_ns(p: Prediction) -> int:
    """Return how much more than the time of the pattern the replay saves, 0 if it is little. All other events take as
    long as before, so this is waiting."""
    if p.method != "replay" or p.naive_ns is None or p.replayed_ratio is None or p.saving_ns is None:
        return 0
    of_work = p.base_ns - p.naive_ns
    rest_ns = min(p.saving_ns, round(p.replayed_ratio * p.base_ns)) - of_work
    return rest_ns if rest_ns > _BEYOND * of_work else 0


def now_and_then(p: Prediction, of: str, within: bool = False) -> Message:
    """Return a message with the time before and after the change. ``within``: start the message in lower case."""
    what = message("recording") if within else message("Recording")
    if of == "step":
        what = message("step") if within else message("Step")
    template = mark("{what}: {now:ns} now, {then:ns} after the change (p10 to p90: {low:ns} to {high:ns})")
    return message(template, what=what, now=p.base_ns, then=p.p50_ns, low=p.p10_ns or 0, high=p.p90_ns or 0)


def how_sure(advice: Advice, advices: Advices) -> Iterator[Message]:
    """Yield the method of the prediction, its assumptions, and reasons to doubt the saving."""
    p = advice.prediction
    saving, low, high = p.saving_ns or 0, p.saving_p10_ns or 0, p.saving_p90_ns or 0
    yield message(_METHODS[p.method])
    assumptions = [assumed(advice.rule, assumption) for assumption in advice.candidate.assumptions]
    yield message("estimate: {what:list}", what=assumptions) if assumptions else message("no assumptions")
    if saving >= 0 > low:
        yield message("the change may also cost time: measure it")
    if saving < 0 < high:
        yield message("the change may even save time: measure it")
    if advices.noise_ns and 0 < saving < advices.noise_ns:
        noise = mark("the saving is smaller than the noise of the steps (±{time:ns}): measure it over many steps")
        yield message(noise, time=advices.noise_ns)
    why = advices.excluded.get(advice.id)
    if why and p.method == "replay":
        yield message("not in the combined saving: {why}", why=why)


def after(advice: Advice, advices: Advices) -> Message:
    """Return what remains of a saving after the advice above: ``saves only 12.0 ms once casts-1a2b is applied``."""
    then = advices.after[advice.id]
    others = message("{names:and}", names=then.once)
    if len(then.once) > 2:
        others = message("the {count} changes above", count=len(then.once))
    values = {"others": others, "verb": "is" if len(then.once) == 1 else "are", "then": then.saving_ns}
    if then.saving_ns:
        return message("saves only {then:ns} once {others} {verb} applied", **values)
    return message("saves nothing once {others} {verb} applied", **values)


def steps(advice: Advice) -> Message | None:
    if advice.steps is None:
        return None
    first, last = advice.steps
    if first == last:
        return message("step {number}", number=first)
    return message("steps {first} to {last}", first=first, last=last)


def unprofiled(base: Base | None, of: str) -> Message | None:
    """Return in words how long a step is without the profiler. None if the profiler took no time."""
    if base is None or base.recorded_ns == base.step_ns:
        return None
    values = {"recorded": base.recorded_ns, "step": base.step_ns, "measured": base.measured_ns, "error": base.error}
    if of != "step":
        return message(
            "Predictions start from {step:ns}: the recording took {recorded:ns}, and the profiler a part of it.",
            **values,
        )
    if base.measured_ns is not None:
        return message(
            "Predictions are for a training without the profiler. A step takes {measured:ns} without it (measured "
            "outside of the recorded steps), {recorded:ns} with it, and {step:ns} in the replay without it "
            "(base error {error:ratio}).",
            **values,
        )  # fmt: skip
    return message(
        "Predictions are for a training without the profiler. A step takes {recorded:ns} with it. Without it, a step "
        "was not measured and is estimated at {step:ns}: record with perfkit's schedule or callbacks to measure it.",
        **values,
    )


def less_waits(base: Base | None) -> bool:
    """Return whether predictions start from a step without the time that was lost to other processes."""
    return base is not None and base.lost > NOTABLE and base.error is not None and base.error <= NOTABLE


def profiler_time(base: Base | None, of: str) -> Message | None:
    """Return which times are without the profiler. None if predictions start from the recorded times."""
    if base is None or base.recorded_ns == base.step_ns:
        return None
    if of != "step":
        text = mark(
            "Times now and after a change are estimates without the profiler; the recording took {recorded:ns}."
        )
        return message(text, recorded=base.recorded_ns)
    lost = message(", {share:ratio} of it lost to other processes", share=base.lost) if base.lost > NOTABLE else None
    how = message("estimated") if base.error is None else message("measured")
    if less_waits(base):
        how = message("measured, without waits for a processor")
    elif base.error is not None and base.error > NOTABLE:
        how = message("replayed; {measured:ns} were measured", measured=base.measured_ns)
    return message(
        "Times now and after a change are without the profiler ({how}); a recorded step takes {recorded:ns}{lost}.",
        how=how,
        recorded=base.recorded_ns,
        lost=lost,
    )


def replayed(identity: Identity, of: str) -> Message:
    """Return the replay error in words. ``of`` is "step" or "recording"."""
    if identity.contradiction is not None:
        return message("Savings that need a replay are unknown: {why}.", why=identity.contradiction)
    if identity.error is None or identity.worst is None:
        return message("The recording cannot be replayed: it has no host events.")
    steps = unexplained = waits = None
    if of == "step":
        steps = plural(
            " (median of 1 step; largest {worst:ratio})", " (median of {n} steps; largest {worst:ratio})",
            identity.steps, worst=identity.worst,
        )  # fmt: skip
    if identity.unexplained is not None:
        unexplained = message(
            ". {share:ratio} of the device work starts later than the recorded events explain",
            share=identity.unexplained,
        )
    if identity.unrecorded_events:
        waits = plural(
            ". 1 call makes a stream wait for unknown work: if streams overlap, savings may be smaller and costs "
            "larger than predicted",
            ". {n} calls make streams wait for unknown work: if streams overlap, savings may be smaller and costs "
            "larger than predicted",
            identity.unrecorded_events,
        )
    return message(
        "The replay of the unchanged recording has an error of {error:ratio}{steps}{unexplained}{waits}.",
        error=identity.error, steps=steps, unexplained=unexplained, waits=waits,
    )  # fmt: skip
