"""Evaluation of all rules on a recording, with predictions, remedies, and the combined saving of several advice.
Savings are not added up, because overlapping savings count once: the transforms are replayed together. Waiting shrinks
with its cause, so one change may use up the saving of another, or enable it. That is reported only if it differs much
from the saving alone, and the number of replays is bounded."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from perfkit_core.advice import place, remedies
from perfkit_core.advice.advice import Advice, Advices, After, Prediction, Severity
from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, Reason
from perfkit_core.advice.predict import identity, noise, predict, step_ns, step_times
from perfkit_core.advice.thresholds import Thresholds, overridden
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.language.messages import Text, message, say
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.replay import graph, transforms
from perfkit_core.system.paths import PathLike

Find = Callable[[Facts], Sequence[Candidate]]

_DIGITS: Final = 4
"""Hex digits of the hash in an advice id."""
_PROPOSED: Final = frozenset({"threads", "workers"})
"""Words of remedies that depend on the machine, not on the finding."""
REPLAYS: Final = 12
"""Most replays that determine savings after other advice is followed."""
_FOR_REASONS: Final = 4
"""The part of these replays that determines which other advice causes the difference."""
_LITTLE: Final = 0.25
"""An advice is reported if less than this share of its saving is left after others."""
_MUCH: Final = 2.0
"""An advice is reported if it saves more than this multiple of its own saving after others."""
_MOST_OF_IT: Final = 0.75
"""An advice with this share of the difference is reported as its cause."""


def advise(
    source: Trace | PathLike | Sequence[PathLike],
    *,
    rules: Iterable[str] = (),
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
) -> Advices:
    """Return the advice for a Trace, or for what :func:`perfkit_core.load` reads, the largest saving first. ``rules``:
    ids of the rules to evaluate (default: all); ``thresholds``: overrides of
    :class:`perfkit_core.advice.thresholds.Thresholds`; ``plugins``: source of rules and remedies (default: the
    installed ones). Times are integer ns per step, or of the whole recording if it has no steps. Raises UsageError for
    an unknown rule or threshold, and SourceError."""
    plugins = plugins or get_plugins()
    chosen = chosen_rules(plugins, rules)
    evaluation = Evaluation(facts_of(source, thresholds, plugins), plugins)
    facts = evaluation.facts
    ranked = sorted(
        (one for rule in chosen for one in evaluation.advice_of(rule, rule.find)),
        # the largest saving first, advice without a number last
        key=lambda one: (
            one.prediction.saving_ns is None, -(one.prediction.saving_ns or 0), f"{one.number:04}{one.id}",
        ),
    )  # fmt: skip
    with_saving, without = list[Advice](), list[Advice]()
    for one in ranked:
        p = one.prediction
        least_ns = max(round(facts.thresholds.least_saving * p.base_ns), 0)
        (with_saving if p.saving_ns is None or p.saving_ns > least_ns else without).append(one)
    advices = Advices(identity(facts), tuple(with_saving), evaluation.not_evaluable, without_saving=tuple(without))
    return replace(combined(facts, advices), noise_ns=noise_ns(facts))


def what_ifs(
    source: Trace | PathLike | Sequence[PathLike],
    questions: Sequence[tuple[str, float]],
    *,
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
) -> Advices:
    """Return a prediction for each what-if question (rule and value, such as 4 loader workers), in their order and
    independent of each other, even if the rule does not fire or nothing is saved; ``asked`` lists the questions. Raises
    UsageError for a rule without a what-if value, and SourceError."""
    plugins = plugins or get_plugins()
    asked = [(rule, value, *asked_rule(plugins, rule, value)) for rule, value in questions]
    facts = facts_of(source, thresholds, plugins)
    evaluation = Evaluation(facts, plugins)
    answers = [
        (question(name, value), replace(one, id=f"{one.id}-{value:g}"))  # the same finding may answer several questions
        for name, value, rule, find in asked
        for one in evaluation.advice_of(rule, find)
    ]
    return Advices(
        identity(facts), tuple(one for _, one in answers), evaluation.not_evaluable, noise_ns=noise_ns(facts),
        asked=tuple(text for text, _ in answers),
    )  # fmt: skip


def facts_of(
    source: Trace | PathLike | Sequence[PathLike], thresholds: Mapping[str, float] | None, plugins: Plugins
) -> Facts:
    """Return the facts of a source. Raises UsageError and SourceError."""
    numbers = overridden(thresholds or {})
    if isinstance(source, Trace):
        return Facts(source, numbers)
    from perfkit_core.readers.load import load

    named = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    return Facts(load(named, plugins=plugins), numbers)


def noise_ns(facts: Facts) -> int | None:
    """Return half the width of the interval of the recorded median; None for a single step, which has no spread."""
    if len(step_times(facts)) < 2:
        return None
    low, high = noise(facts)
    return round((high - low) / 2 * facts.step_ns)


def chosen_rules(plugins: Plugins, rules: Iterable[str]) -> list[Rule]:
    """Return the rules of these ids, all if empty. Raises UsageError for an unknown id, and if a failing plugin leaves
    no rules, since nothing could be detected then."""
    known = plugins.rules()
    if not known:
        raise UsageError(
            "no plugin provides a rule, so there is no advice to give", "perfkit plugins shows what is broken"
        )
    wanted = list(dict.fromkeys(rules)) or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"unknown rule {name!r}", spelled_like(name, known))
    return [known[name] for name in wanted]


def asked_rule(plugins: Plugins, name: str, value: float) -> tuple[Rule, Find]:
    """Return the rule, and the function that returns its candidate for ``value``. Raises UsageError for a rule without
    a what-if value, and for a value that is not finite."""
    if not math.isfinite(value):
        raise UsageError(f"{question(name, value)}: not a finite number", "as in loader-workers=4")
    (rule,) = chosen_rules(plugins, [name])
    ask = rule.what_if
    if ask is None:
        known = ", ".join(other.id for other in plugins.rules().values() if other.what_if is not None)
        raise UsageError(f"{name} takes no --what-if value", f"rules that do: {known}")
    return rule, lambda facts: [ask(facts, value)]


def question(rule: str, value: float) -> str:
    return f"{rule}={value:g}"


class Evaluation:
    """Evaluates rules on one recording; a failing rule does not stop the others, ``not_evaluable`` has its reason."""

    def __init__(self, facts: Facts, plugins: Plugins) -> None:
        trace = facts.trace
        self.facts = facts
        self.not_evaluable: dict[str, Reason] = {}
        self._remedies: Sequence[Remedy] = plugins.remedies(trace.meta.framework)
        self._mode, self._words = remedies.mode(trace), remedies.recorded_words(trace)
        self._places = place.Places(trace)

    def advice_of(self, rule: Rule, find: Find) -> list[Advice]:
        """Return the advice of one rule; if it cannot be evaluated, store the reason and return none."""
        advice: list[Advice] = []
        try:
            candidates = list(find(self.facts))
            names = ids(self.facts.trace, rule.id, candidates)
        except UsageError:  # an invalid what-if value
            raise
        except Exception as error:
            self.not_evaluable[rule.id] = why(error)
            return []
        for candidate, name in zip(candidates, names, strict=True):
            try:
                advice.append(self._advice(rule, candidate, name))
            except Exception as error:
                self.not_evaluable[rule.id] = why(error)
        return advice

    def _advice(self, rule: Rule, candidate: Candidate, name: str) -> Advice:
        facts, trace, rows, words = self.facts, self.facts.trace, candidate.rows, {**candidate.fill, **candidate.words}
        prediction = predict(facts, candidate)
        steps = trace.ints("step")[rows]
        steps = steps[steps >= 0]
        return Advice(
            id=name, rule=rule.id, number=rule.number, version=rule.version, title=say(rule.title),
            framework=trace.meta.framework or "unknown", mode=self._mode, candidate=candidate, prediction=prediction,
            severity=severity(prediction, facts.thresholds),
            steps=(int(steps.min()), int(steps.max())) if len(steps) else None,
            place=self._places.of(rows, candidate.rows_ns),
            remedy=remedies.remedied(self._remedies, rule.id, self._mode, {**self._words, **words}),
        )  # fmt: skip


def ids(trace: Trace, rule: str, candidates: Sequence[Candidate]) -> list[str]:
    """Return ``rule-1a2b`` for each candidate of a rule; indistinguishable findings are numbered. The hash covers the
    names of the events, not their times or steps, which differ from run to run."""
    found: list[str] = []
    names, is_step = trace.codes("name"), trace.rows("kind", STEP)
    for candidate in candidates:
        codes = np.unique(names.codes[candidate.rows[~is_step[candidate.rows]]])
        parts = sorted(names.values[code] for code in codes if code >= 0)
        words = {f"{key}={value}" for key, value in candidate.fill.items() if key not in _PROPOSED}
        parts += [candidate.direction or "", *sorted(words)]
        digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{rule}-{digest[:_DIGITS]}"
        same = sum(other == name or other.startswith(f"{name}-") for other in found)
        found.append(f"{name}-{same + 1}" if same else name)
    return found


def why(error: Exception) -> Reason:
    """Return the reason; for unexpected errors the type and the text in one line."""
    if isinstance(error, NotEvaluableError):
        return error.reason
    text = " ".join(str(error).split())
    return Reason(message("the rule failed ({error}: {text})", error=type(error).__name__, text=text))


def severity(prediction: Prediction, thresholds: Thresholds) -> Severity:
    """Return the severity by the saved share of the step, not by the time that the pattern takes."""
    share = prediction.saving_ratio
    if share is None:
        return "note"
    if share <= 0:
        return "none"
    if share >= thresholds.severity_high:
        return "high"
    return "medium" if share >= thresholds.severity_medium else "low"


def combined(facts: Facts, found: Advices) -> Advices:
    """Return the advice with all that do not exclude each other replayed together. If two exclude each other, or the
    second costs time together with the first, the first, which saves more, stays."""
    excluded: dict[str, Text] = {}
    kept: list[Advice] = []
    candidates: list[Advice] = []
    for one in found.advice:
        reason = _exclusion(one, candidates)
        if reason is None:
            candidates.append(one)
        else:
            excluded[one.id] = reason
    least_ns = math.inf
    for one in candidates:
        try:
            step = together_ns(facts, [*kept, one])
        except graph.CyclicGraphError:
            excluded[one.id] = message("it cannot be replayed together with the others")
            continue
        if step > least_ns:
            excluded[one.id] = message("together with the others it costs {time:ns}", time=step - least_ns)
        else:
            least_ns = step
            kept.append(one)
    if not kept:
        return replace(found, excluded=excluded)
    all_changes = tuple(transform for one in kept for transform in one.candidate.transforms)
    # the ceiling of one kind of change does not hold for changes of several kinds
    together = replace(predict(facts, Candidate("", {}, transforms=all_changes)), ceiling_ns=None)
    others = [one for one in found.without_saving if one.candidate.transforms and _exclusion(one, kept) is None]
    return replace(
        found, combined=together, together=tuple(one.id for one in kept), excluded=excluded,
        after=after(facts, kept, others),
    )  # fmt: skip


def _exclusion(one: Advice, kept: Sequence[Advice]) -> Text | None:
    if one.prediction.saving_ns is None:
        return message("the saving is unknown")
    for other in kept:
        if other.rule in one.candidate.conflicts or one.rule in other.candidate.conflicts:
            return message("replaced by {id}", id=other.id)
    if one.prediction.method != "replay":
        return message("its saving is not from a replay ({method})", method=one.prediction.method)
    return None


def together_ns(facts: Facts, advice: Sequence[Advice]) -> float:
    """Return the step time in ns with all of this advice followed. Raises CyclicGraphError."""
    if len(advice) == 1 and advice[0].prediction.p50_ns is not None:
        return advice[0].prediction.p50_ns
    return step_ns(
        facts,
        transforms.transformed(facts.replay, [transform for one in advice for transform in one.candidate.transforms]),
    )


def after(facts: Facts, together: Sequence[Advice], others: Sequence[Advice]) -> dict[str, After]:
    """Return, by id, the advice whose saving changes much once others are followed: ``together`` can be combined, the
    largest saving first; ``others`` save nothing alone."""
    replays = Replays(facts, REPLAYS - _FOR_REASONS)
    changed: list[tuple[Advice, Sequence[Advice], int]] = []
    for one in others:  # advice that saves something only after the rest
        saving, own = replays.saving_ns(one, together), one.prediction.saving_ns or 0
        if saving is not None and saving > max(facts.thresholds.least_saving * facts.step_ns, _MUCH * own):
            changed.append((one, together, saving))
    for one in together:  # advice that saves much less, or much more, after the rest
        others = [other for other in together if other is not one]
        saving, own = replays.saving_ns(one, others) if others else None, one.prediction.saving_ns or 0
        if saving is not None and not _LITTLE * own <= saving <= _MUCH * own:
            changed.append((one, others, saving))
    replays.left += _FOR_REASONS
    result = {}
    for one, rest, saving in changed:
        own = one.prediction.saving_ns or 0
        result[one.id] = After(tuple(other.id for other in rest), max(saving, 0))
        for other in rest:
            alone = replays.saving_ns(one, [other])
            if alone is None or (alone > own) != (saving > own):
                continue
            if abs(alone - own) >= _MOST_OF_IT * abs(saving - own):
                result[one.id] = After((other.id,), max(alone, 0))
                break
    return result


@dataclass(slots=True)
class Replays:
    """Step times with some advice followed, each replayed once, at most ``left`` more times."""

    facts: Facts
    left: int
    times_ns: dict[frozenset[str], float | None] = field(default_factory=dict)

    def saving_ns(self, one: Advice, rest: Sequence[Advice]) -> int | None:
        """Return what ``one`` saves once the rest is followed; None if they cannot be combined or no replay is left."""
        without, with_it = self._step_ns(rest), self._step_ns([*rest, one])
        return None if without is None or with_it is None else round(without - with_it)

    def _step_ns(self, advice: Sequence[Advice]) -> float | None:
        key = frozenset(one.id for one in advice)
        if key not in self.times_ns:
            if len(advice) > 1:  # a single one is in its prediction
                if not self.left:
                    return None
                self.left -= 1
            try:
                self.times_ns[key] = together_ns(self.facts, advice)
            except graph.CyclicGraphError:
                self.times_ns[key] = None
        return self.times_ns[key]
