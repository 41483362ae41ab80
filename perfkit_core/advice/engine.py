"""What to change in a training, what it should save, and how sure that is: all rules, predictions and remedies.

What does each rule find in a recording, and what does the replay make of it? One that fails takes no other down.

Which rules are asked, and what of them: all, some by their ids, or one for a number of the user's.

What is an advice called? The id of its rule, and a mark of what was found: the same finding keeps its name.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from perfkit_core.advice import combine
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Advice, Advices, Candidate, NotEvaluableError, Reason
from perfkit_core.advice.place import Places
from perfkit_core.advice.predict import noise, predict, step_times
from perfkit_core.advice.remedies import mode, recorded_words, remedied
from perfkit_core.advice.replay_error import identity
from perfkit_core.advice.thresholds import overridden, severity, worth_saying
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.language.messages import message, say
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.plugins.manager import Plugins, get_plugins
from perfkit_core.system.paths import PathLike

Find = Callable[[Facts], Sequence[Candidate]]


def chosen(plugins: Plugins, rules: Iterable[str]) -> list[Rule]:
    """The rules of these ids, all where none is named. Raises UsageError, also where a plugin that fails left none:
    without rules nothing would be found in any recording."""
    known = plugins.rules()
    if not known:
        raise UsageError("no plugin offers a rule: there is nothing to look for", "perfkit plugins says what is broken")
    wanted = list(dict.fromkeys(rules)) or list(known)
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no rule {name!r}", spelled_like(name, known))
    return [known[name] for name in wanted]


def asked_rules(plugins: Plugins, rule: str, value: float) -> tuple[Rule, Find]:
    """The rule, and what finds its one candidate for ``value``. Raises UsageError for a rule that has nothing to
    ask, and for a value that is no number."""
    if not math.isfinite(value):
        raise UsageError(f"{question(rule, value)}: not a finite number", "as in loader-workers=4")
    (one,) = chosen(plugins, [rule])
    ask = one.what_if
    if ask is None:
        known = ", ".join(other.id for other in plugins.rules().values() if other.what_if is not None)
        raise UsageError(f"{rule} has no number to ask about", f"those that have: {known}")
    return one, lambda facts: [ask(facts, value)]


def question(rule: str, value: float) -> str:
    """``loader-workers=4``."""
    return f"{rule}={value:g}"


_DIGITS: Final = 4
_PROPOSED: Final = frozenset({"threads", "workers"})
"""What remedies are filled with that depends on the machine, not on the finding."""


def ids(trace: Trace, rule: str, candidates: Sequence[Candidate]) -> list[str]:
    """``rule-1a2b`` for each candidate of a rule; findings that are alike in everything are numbered."""
    found: list[str] = []
    for candidate in candidates:
        name = f"{rule}-{_mark(trace, candidate)}"
        same = sum(other == name or other.startswith(f"{name}-") for other in found)
        found.append(f"{name}-{same + 1}" if same else name)
    return found


def _mark(trace: Trace, candidate: Candidate) -> str:
    """Of the names of the events that show it, not of their times, nor of which steps they are: those differ from run
    to run."""
    names = trace.codes("name")
    codes = np.unique(names.codes[candidate.rows[~trace.rows("kind", STEP)[candidate.rows]]])
    parts = sorted(names.values[code] for code in codes if code >= 0)
    words = {f"{key}={value}" for key, value in candidate.fill.items() if key not in _PROPOSED}
    parts += [candidate.direction or "", *sorted(words)]
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


@dataclass(slots=True)
class Evaluation:
    """Evaluates rules of one recording. ``not_evaluable`` collects the reasons, by rule."""

    facts: Facts
    remedies: Sequence[Remedy]
    not_evaluable: dict[str, Reason] = field(default_factory=dict)
    _mode: str = field(init=False)
    _places: Places = field(init=False)
    _words: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        trace = self.facts.trace
        self._mode, self._places, self._words = mode(trace), Places(trace), recorded_words(trace)

    def all_of(self, rules: Iterable[Rule]) -> list[Advice]:
        """What all rules find, with predictions."""
        return [one for rule in rules for one in self.found_by(rule, rule.find)]

    def found_by(self, rule: Rule, find: Callable[[Facts], Sequence[Candidate]]) -> list[Advice]:
        """What one rule finds; nothing, and a reason, where it cannot tell."""
        try:
            candidates = list(find(self.facts))
            names = ids(self.facts.trace, rule.id, candidates)
        except UsageError:  # a number that nobody can ask about
            raise
        except Exception as error:
            self.not_evaluable[rule.id] = why(error)
            return []
        found = (self._guarded(rule, one, name) for one, name in zip(candidates, names, strict=True))
        return [advice for advice in found if advice is not None]

    def _guarded(self, rule: Rule, candidate: Candidate, name: str) -> Advice | None:
        try:
            return self._advice(rule, candidate, name)
        except Exception as error:
            self.not_evaluable[rule.id] = why(error)
            return None

    def _advice(self, rule: Rule, candidate: Candidate, name: str) -> Advice:
        facts = self.facts
        prediction = predict(facts, candidate)
        return Advice(
            id=name,
            rule=rule.id,
            number=rule.number,
            version=rule.version,
            title=say(rule.title),
            framework=facts.trace.meta.framework or "unknown",
            mode=self._mode,
            candidate=candidate,
            prediction=prediction,
            severity=severity(prediction, facts.thresholds),
            steps=_steps(facts, candidate.rows),
            place=self._places.of(candidate.rows, candidate.rows_ns),
            remedy=remedied(self.remedies, rule.id, self._mode, {**self._words, **candidate.fill, **candidate.words}),
        )


def why(error: Exception) -> Reason:
    """Return the reason; of an error that no rule raises on purpose its kind and its text in one line."""
    if isinstance(error, NotEvaluableError):
        return Reason(error.reason, error.record)
    text = " ".join(str(error).split())
    return Reason(message("the rule failed ({error}: {text})", error=type(error).__name__, text=text))


def _steps(facts: Facts, rows: IntArray) -> tuple[int, int] | None:
    """First and last step of the rows."""
    step = facts.trace.ints("step")[rows]
    step = step[step >= 0]
    return (int(step.min()), int(step.max())) if len(step) else None


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
    asked = [(value, question(rule, value), *asked_rules(plugins, rule, value)) for rule, value in questions]
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
    from perfkit_core.readers.load import load

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
