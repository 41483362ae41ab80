"""What does each rule find in a recording, and what does the replay make of it? One that fails takes no other down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit_core.advice import naming
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Advice, Candidate, NotEvaluableError, Reason
from perfkit_core.advice.place import Places
from perfkit_core.advice.predict import predict
from perfkit_core.advice.recorded_words import recorded_words
from perfkit_core.advice.remedies import mode, remedied
from perfkit_core.advice.severity import severity
from perfkit_core.errors import UsageError
from perfkit_core.language import message, say
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.trace import IntArray


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
            names = naming.ids(self.facts.trace, rule.id, candidates)
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
