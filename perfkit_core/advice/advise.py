"""What to change in a training, what it should save, and how sure that is: all rules, predictions and remedies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perfkit_core.advice import asking, combine
from perfkit_core.advice.asking import chosen
from perfkit_core.advice.evaluate import Evaluation
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.identity import identity
from perfkit_core.advice.model import Advice, Advices, Reason
from perfkit_core.advice.predict import noise, step_times
from perfkit_core.advice.severity import worth_saying
from perfkit_core.advice.thresholds import overridden
from perfkit_core.paths import PathLike
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.trace import Trace


def advise(
    source: Trace | PathLike | Sequence[PathLike],
    *,
    rules: Iterable[str] = (),
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
) -> Advices:
    """Advice for a Trace, or for what :func:`perfkit_core.load` reads, the largest saving first.

    ``rules``: ids of the rules to ask (all when empty); ``thresholds``: numbers that replace those of
    :class:`perfkit_core.advice.thresholds.Thresholds`; ``plugins``: whose rules and remedies, the installed ones when
    None. Times are integer ns of a step, of the whole recording where no steps were recorded.
    Raises UsageError for an unknown rule or threshold, and SourceError.
    """
    plugins = plugins or get_plugins()
    asked = chosen(plugins, rules)
    facts = facts_of(source, thresholds, plugins)
    evaluation = Evaluation(facts, plugins.remedies(facts.trace.meta.framework))
    return _result(facts, evaluation.all_of(asked), evaluation.not_evaluable)


def what_ifs(
    source: Trace | PathLike | Sequence[PathLike],
    questions: Sequence[tuple[str, float]],
    *,
    thresholds: Mapping[str, float] | None = None,
    plugins: Plugins | None = None,
) -> Advices:
    """A prediction for each question (rule and value, for example 4 loader workers), in their order, each by itself,
    whether or not the rule fires, and whatever it saves; ``asked`` says which is which.

    Raises UsageError for a rule that has nothing to ask, and SourceError.
    """
    plugins = plugins or get_plugins()
    asked = [(value, asking.question(rule, value), *asking.asked(plugins, rule, value)) for rule, value in questions]
    facts = facts_of(source, thresholds, plugins)
    evaluation = Evaluation(facts, plugins.remedies(facts.trace.meta.framework))
    answers = [(value, said, one) for value, said, rule, find in asked for one in evaluation.found_by(rule, find)]
    found = tuple(replace(one, id=f"{one.id}-{value:g}") for value, _, one in answers)  # one finding, several answers
    said = tuple(said for _, said, _ in answers)
    return Advices(identity(facts), found, evaluation.not_evaluable, noise_ns=noise_ns(facts), asked=said)


def facts_of(
    source: Trace | PathLike | Sequence[PathLike], thresholds: Mapping[str, float] | None, plugins: Plugins
) -> Facts:
    """What rules ask of a source. Raises UsageError and SourceError."""
    numbers = overridden(thresholds or {})
    if isinstance(source, Trace):
        return Facts(source, numbers)
    from perfkit_core.loading import load

    named = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    return Facts(load(named, plugins=plugins), numbers)


def noise_ns(facts: Facts) -> int | None:
    """Half the width of the interval of the recorded median of the steps; None where one step shows no spread."""
    if len(step_times(facts)) < 2:
        return None
    low, high = noise(facts)
    return round((high - low) / 2 * facts.step_ns)


def _result(facts: Facts, found: Iterable[Advice], not_evaluable: Mapping[str, Reason]) -> Advices:
    ranked = sorted(found, key=_rank)
    said = [one for one in ranked if worth_saying(one.prediction, facts.thresholds)]
    without = tuple(one for one in ranked if one not in said)
    both = combine.combined(facts, said, without)
    known = identity(facts), tuple(said), dict(not_evaluable)
    return Advices(*known, both.prediction, both.together, both.excluded, without, noise_ns(facts), both.after)


def _rank(advice: Advice) -> tuple[int, int, str]:
    """The largest saving first, what has no number last."""
    saving = advice.prediction.saving_ns
    return (0 if saving is not None else 1, -(saving or 0), f"{advice.number:04}{advice.id}")
