"""Evaluate all rules on a recording, predict the saving of each item of advice, and combine the savings.

Two items may claim the same time, so their savings cannot be added. A replay with the transforms of all advice above an
item tells what remains of its saving. The combined saving is the sum of these."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from perfkit_core.advice import device_account, experience, place, remedies
from perfkit_core.advice.advice import Advice, Advices, After, Prediction, Severity
from perfkit_core.advice.decode_steps import of_main_kind
from perfkit_core.advice.frames import frames
from perfkit_core.advice.predict import base, floor_ns, identity, noise, played_ns, predict, step_times, unknown
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, Reason, RuleInput
from perfkit_core.advice.thresholds import Thresholds, overridden
from perfkit_core.base.language.messages import Text, message
from perfkit_core.base.system.paths import PathLike
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.measure.verify.ledger import Record
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.replay import graph
from perfkit_core.replay.transforms import Transform
from perfkit_core.trace.assembly.first_launches import warm_only
from perfkit_core.trace.assembly.lost_records import complete_only
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.inferred_steps import with_inferred_steps

Find = Callable[[RuleInput], Sequence[Candidate]]

_HASH_DIGITS: Final = 4
_PROPOSED: Final = frozenset({"threads", "workers"})
"""Placeholders of remedies whose values depend on the machine. The advice id does not depend on these values."""
_REST: Final = 0.75
"""What remains of a saving after the advice above it is reported if it is less than this share of its value."""


def advise(
    source: Trace | PathLike | Sequence[PathLike],
    *,
    rules: Iterable[str] = (),
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
    outcomes: Sequence[Record] | None = None,
) -> Advices:
    """Return the advice on a recording, the largest saving first.

    - ``source``: a Trace, or a source that :func:`perfkit_core.load` reads
    - ``rules``: ids of the rules to evaluate (default: all rules)
    - ``thresholds``: values that override those of :class:`perfkit_core.advice.thresholds.Thresholds`
    - ``plugins``: provide the rules and remedies (default: the installed plugins)
    - ``outcomes``: earlier measurements, which adjust the predictions (default: the shipped ones and the user's own)

    Times are integers in ns per step. A recording without steps counts as one step. Raises UsageError for an unknown
    rule or threshold, and SourceError if the source cannot be read."""
    plugins = plugins or get_plugins()
    chosen = chosen_rules(plugins, rules)
    evaluation = Evaluation(rule_input(source, thresholds, plugins), plugins, outcomes)
    facts = evaluation.facts
    ranked = sorted(
        (advice for rule in chosen for advice in evaluation.advice_of(rule, rule.find)),
        # the largest first; a waste whose saving is unknown counts with its time
        key=lambda advice: (-_size_ns(advice.prediction), f"{advice.number:04}{advice.id}"),
    )
    with_saving, without = list[Advice](), list[Advice]()
    for advice in ranked:
        p = advice.prediction
        least_ns = max(round(facts.thresholds.least_saving * p.base_ns), 0)
        promises = p.saving_ns is None or (p.saving_ns > least_ns and (p.saving_p10_ns or 0) >= 0)
        # the device waits for this, even if the change may also cost time
        promises |= (p.saving_ns or 0) > least_ns and device_account.wastes(facts, advice.candidate)
        (with_saving if promises else without).append(advice)
    # advice without a number comes after all other if advice with one replaces it
    replaced = {rule for advice in with_saving if advice.prediction.saving_ns for rule in advice.candidate.conflicts}
    with_saving.sort(key=lambda advice: advice.prediction.saving_ns is None and advice.rule in replaced)
    advices = Advices(
        identity(facts), tuple(with_saving), evaluation.not_evaluable, without_saving=tuple(without),
        base=base(facts), trace=facts.trace,
    )  # fmt: skip
    return replace(combined(facts, advices), noise_ns=noise_ns(facts))


def what_ifs(
    source: Trace | PathLike | Sequence[PathLike],
    questions: Sequence[tuple[str, float]],
    *,
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
) -> Advices:
    """Return the advice for each what-if question, even if the change saves nothing.

    A question consists of a rule and a value, such as ``loader-workers`` and 4. Each prediction is for its change
    alone. The field ``questions`` of the result lists the questions. Raises UsageError for a rule that takes no value,
    and SourceError if the source cannot be read."""
    plugins = plugins or get_plugins()
    rules = [(rule, value, *asked_rule(plugins, rule, value)) for rule, value in questions]
    facts = rule_input(source, thresholds, plugins)
    evaluation = Evaluation(facts, plugins)
    answers = [  # the value becomes part of the advice id, because several questions may have the same finding
        (question(name, value), replace(advice, id=f"{advice.id}-{value:g}"))
        for name, value, rule, find in rules
        for advice in evaluation.advice_of(rule, find)
    ]
    return Advices(
        identity(facts), tuple(advice for _, advice in answers), evaluation.not_evaluable, noise_ns=noise_ns(facts),
        questions=tuple(text for text, _ in answers), base=base(facts), trace=facts.trace,
    )  # fmt: skip


def rule_input(
    source: Trace | PathLike | Sequence[PathLike], thresholds: Mapping[str, float] | None, plugins: Plugins
) -> RuleInput:
    """Return the input of rules for a Trace, or for a source of :func:`perfkit_core.load`. Of an inference server, only
    the steps of the kind with the most time count. Steps in which device work was not recorded, and cold steps, do not
    count. Raises UsageError and SourceError."""
    from perfkit_core.readers.load import as_trace

    numbers = overridden(thresholds or {})  # an unknown threshold is reported before a long read
    trace = with_inferred_steps(as_trace(source, plugins))
    return RuleInput(of_main_kind(warm_only(complete_only(trace))), numbers)


def _size_ns(prediction: Prediction) -> int:
    return (prediction.ceiling_ns or 0) if prediction.saving_ns is None else prediction.saving_ns


@once
def noise_ns(facts: RuleInput) -> int | None:
    """Return the noise of the median step time in ns: half the width of its 80% interval. None for a single step."""
    if len(step_times(facts)) < 2:
        return None
    low, high = noise(facts)
    return round((high - low) / 2 * facts.training.step_ns)


def chosen_rules(plugins: Plugins, rules: Iterable[str]) -> list[Rule[RuleInput, Candidate]]:
    """Return the rules with these ids (default: all). Raises UsageError for an unknown id or if there are no rules."""
    installed = plugins.rules()
    if not installed:
        raise UsageError("no plugin provides a rule", "run perfkit plugins to see which plugin does not load")
    rule_ids = list(dict.fromkeys(rules)) or list(installed)
    for name in rule_ids:
        if name not in installed:
            raise UsageError(f"unknown rule {name!r}", spelled_like(name, installed))
    return [installed[name] for name in rule_ids]


def asked_rule(plugins: Plugins, name: str, value: float) -> tuple[Rule[RuleInput, Candidate], Find]:
    """Return the rule with this id, and a function that answers its what-if question for ``value``. Raises UsageError
    for a rule that takes no what-if value, and for a value that is not finite."""
    if not math.isfinite(value):
        raise UsageError(f"{question(name, value)}: not a finite number", "write it as in loader-workers=4")
    (rule,) = chosen_rules(plugins, [name])
    ask = rule.what_if
    if ask is None:
        with_what_if = ", ".join(other.id for other in plugins.rules().values() if other.what_if is not None)
        raise UsageError(f"{name} takes no --what-if value", f"these rules take a --what-if value: {with_what_if}")
    return rule, lambda facts: [ask(facts, value)]


def question(rule: str, value: float) -> str:
    return f"{rule}={value:g}"


class Evaluation:
    """Evaluates rules on one recording. If a rule fails, ``not_evaluable`` contains the reason."""

    def __init__(self, facts: RuleInput, plugins: Plugins, outcomes: Sequence[Record] | None = None) -> None:
        trace = facts.trace
        self.facts = facts
        self.not_evaluable: dict[str, Reason] = {}
        self._remedies: Sequence[Remedy] = plugins.framework(trace.meta.framework).remedies()
        self._mode, self._words = remedies.mode(trace), remedies.recorded_words(trace)
        self._places = place.Places(trace)
        self._outcomes = experience.outcomes() if outcomes is None else outcomes
        self._noise_ns = noise_ns(facts) or 0

    def advice_of(self, rule: Rule[RuleInput, Candidate], find: Find) -> list[Advice]:
        """Return the advice of one rule. If the rule cannot be evaluated, store the reason and return an empty list."""
        advice: list[Advice] = []
        try:
            self.facts.need_complete()
            candidates = list(find(self.facts))
            names = ids(self.facts.trace, rule.id, candidates)
        except UsageError:  # the what-if value is invalid
            raise
        except Exception as error:
            self.not_evaluable[rule.id] = why(error)
            return []
        for candidate, name in zip(candidates, names, strict=True):
            try:
                predicted = self._advice(rule, candidate, name)
                if predicted.remedy is not None or not candidate.needs_remedy:
                    advice.append(predicted)
            except Exception as error:
                self.not_evaluable[rule.id] = why(error)
        return advice

    def _advice(self, rule: Rule[RuleInput, Candidate], candidate: Candidate, name: str) -> Advice:
        facts, trace, rows, words = self.facts, self.facts.trace, candidate.rows, {**candidate.fill, **candidate.words}
        runtime: Literal["host", "device"] = "device" if facts.on_device else "host"
        learned = experience.experience(self._outcomes, rule.id, rule.version, runtime)
        prediction = predict(facts, candidate, learned)
        hidden_ns = device_account.hidden_ns(facts, candidate)
        least_ns, low_ns = facts.thresholds.least_saving * prediction.base_ns, prediction.saving_p10_ns or 0
        if prediction.saving_ns is not None and hidden_ns and prediction.saving_ns > least_ns and low_ns >= 0:
            prediction = unknown(prediction)
            candidate = replace(candidate, method="none", what=message(
                "{what} What it would save cannot be told: for {time:ns}, launched work does not start, or work whose "
                "launch was not recorded is awaited.", what=candidate.what, time=hidden_ns,
            ))  # fmt: skip
        steps = trace.ints("step")[rows]
        steps = steps[steps >= 0]
        return Advice(
            id=name, rule=rule.id, number=rule.number, version=rule.version,
            title=candidate.title or message(rule.title),
            framework=trace.meta.framework or "unknown", framework_version=trace.meta.framework_version,
            runtime=runtime, mode=self._mode, candidate=candidate, prediction=prediction,
            severity=severity(prediction, facts.thresholds, self._noise_ns),
            steps=(int(steps.min()), int(steps.max())) if len(steps) else None,
            place=candidate.place or self._line_of(candidate),
            remedy=remedies.remedied(self._remedies, rule.id, self._mode, {**self._words, **words}),
        )  # fmt: skip

    def _line_of(self, candidate: Candidate) -> str | None:
        """Return the line of code of a candidate. Frames that were recorded as events are only used if there are no
        samples, because they have the first line of their function. Stacks may be known of compiled kernels only."""
        trace = self.facts.trace
        recorded = self._places.of(candidate.rows, candidate.rows_ns)
        stack = recorded if trace.has_values("stack") else None
        return stack or frames(trace).line_of(trace, candidate.rows) or recorded


def ids(trace: Trace, rule: str, candidates: Sequence[Candidate]) -> list[str]:
    """Return an id for each candidate of a rule: ``casts-1a2b``, or ``casts-1a2b-2`` if the id occurs again. ``1a2b``
    is a hash of event names and other values. Times and steps are not hashed, because they differ between runs."""
    result: list[str] = []
    names, is_step = trace.codes("name"), trace.rows("kind", STEP)
    for candidate in candidates:
        codes = np.unique(names.codes[candidate.rows[~is_step[candidate.rows]]])
        parts = sorted(names.values[code] for code in codes if code >= 0)
        words = {f"{key}={value}" for key, value in candidate.fill.items() if key not in _PROPOSED}
        parts += [candidate.direction or "", *sorted(words)]
        digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{rule}-{digest[:_HASH_DIGITS]}"
        same = sum(other == name or other.startswith(f"{name}-") for other in result)
        result.append(f"{name}-{same + 1}" if same else name)
    return result


def why(error: Exception) -> Reason:
    """Return the reason that a rule gave for its failure, or the type and text of an unexpected error."""
    if isinstance(error, NotEvaluableError):
        return error.reason
    text = " ".join(str(error).split())
    return Reason(message("the rule failed ({error}: {text})", error=type(error).__name__, text=text))


def severity(prediction: Prediction, thresholds: Thresholds, noise_ns: int = 0) -> Severity:
    """Return the severity of a predicted saving, by its share of the step time. It is not high if the saving is smaller
    than the noise of the steps."""
    share = prediction.saving_ratio
    if share is None:
        return "note"
    if share <= 0:
        return "none"
    if share >= thresholds.severity_high and (prediction.saving_ns or 0) >= noise_ns:
        return "high"
    return "medium" if share >= thresholds.severity_medium else "low"


def combined(facts: RuleInput, advices: Advices) -> Advices:
    """Return ``advices`` with the prediction for all advice that can be combined, and with the reasons why other advice
    cannot."""
    excluded: dict[str, Text] = {}
    chosen: list[Advice] = []
    candidates: list[Advice] = []
    for advice in advices.advice:
        reason = _exclusion(advice, candidates)
        if reason is None:
            candidates.append(advice)
        else:
            excluded[advice.id] = reason
    saved_ns, remaining = 0, dict[str, After]()
    for advice in candidates:
        saving_ns = advice.prediction.saving_ns or 0
        try:
            rest_ns = _rest_ns(facts, chosen, advice) if chosen else saving_ns
        except graph.CyclicGraphError:
            excluded[advice.id] = message("it cannot be replayed together with the others")
            continue
        if rest_ns < 0:
            excluded[advice.id] = message("combined with the others, it would cost {time:ns}", time=-rest_ns)
            continue
        if rest_ns < _REST * saving_ns:  # the advice above claims a part of the same time
            remaining[advice.id] = After(tuple(other.id for other in chosen), rest_ns)
        saved_ns += rest_ns
        chosen.append(advice)
    if not chosen:
        return replace(advices, excluded=excluded)
    return replace(
        advices, combined=_together(facts, chosen, saved_ns), together=tuple(advice.id for advice in chosen),
        excluded=excluded, after=remaining,
    )  # fmt: skip


def _rest_ns(facts: RuleInput, chosen: Sequence[Advice], advice: Advice) -> int:
    """Return what ``advice`` saves after the ``chosen`` advice: its saving, times what a replay after their changes
    saves, as a share of what a replay of its own saves. Both are sums over all steps, because the step with the median
    time may be another one after each change. A saving grows only as far as the replay's does. Raises
    CyclicGraphError."""
    saving_ns, before = advice.prediction.saving_ns or 0, _changes(chosen)
    alone_ns = played_ns(facts, ()) - played_ns(facts, advice.candidate.transforms)
    left_ns = played_ns(facts, before) - played_ns(facts, (*before, *advice.candidate.transforms))
    replayed_ns = float(left_ns.mean())
    if alone_ns.sum() <= 0:
        return round(replayed_ns)
    part_ns = float(left_ns.sum() / alone_ns.sum() * saving_ns)
    return round(part_ns if part_ns <= saving_ns else max(min(part_ns, replayed_ns), saving_ns))


def _changes(chosen: Sequence[Advice]) -> tuple[Transform, ...]:
    return tuple(transform for advice in chosen for transform in advice.candidate.transforms)


def _together(facts: RuleInput, chosen: Sequence[Advice], saved_ns: int) -> Prediction:
    """Return the prediction for all chosen advice. It saves ``saved_ns``, the sum of what each item saves after those
    above it. The width of its interval comes from the replay of all changes."""
    together = Candidate("", {}, transforms=_changes(chosen))
    p = predict(facts, together)
    saving_ns = min(saved_ns, max(p.base_ns - round(floor_ns(facts, together)), 0))
    more = saving_ns - (p.saving_ns or 0)
    return replace(
        # a ceiling is defined for one kind of change, and the combined advice contains several kinds
        p, ceiling_ns=None, saving_ns=saving_ns, p50_ns=p.base_ns - saving_ns,
        p10_ns=max((p.p10_ns or 0) - more, 0), p90_ns=max((p.p90_ns or 0) - more, 0),
        saving_p10_ns=(p.saving_p10_ns or 0) + more, saving_p90_ns=min((p.saving_p90_ns or 0) + more, p.base_ns),
    )  # fmt: skip


def _exclusion(advice: Advice, chosen: Sequence[Advice]) -> Text | None:
    if advice.prediction.saving_ns is None:
        return message("the saving is unknown")
    for other in chosen:
        if other.rule in advice.candidate.conflicts or advice.rule in other.candidate.conflicts:
            return message("replaced by {id}", id=other.id)
    if advice.prediction.method != "replay":
        return message("its saving is not from a replay ({method})", method=advice.prediction.method)
    return None
