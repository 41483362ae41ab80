"""Golden files of what a rule finds in small cases: the finding, its numbers and its prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.thresholds import overridden
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model.trace import Trace
from tests.support.golden import check_golden

Cases = Mapping[str, Trace | tuple[Trace, dict[str, float]]]
"""Title of each case → its recording, or its recording and thresholds."""


def check_rule(rule: str, cases: Cases | Callable[[str], Cases], variant: str = "") -> None:
    """Compare what a rule finds with a file in ``tests/golden/advice/rules``, which has the rule's id, and a variant. A
    function makes the cases of a framework. A case in which the rule finds the same in both frameworks is in the file
    once."""
    torch, paddle = (cases("torch"), cases("paddle")) if callable(cases) else (cases, {})
    assert paddle.keys() <= torch.keys()
    lines, printed = list[str](), set[str]()
    for title, case in torch.items():
        before = set(printed)
        found = list(outcome(rule, case, printed))
        other = list(outcome(rule, paddle[title], before)) if title in paddle else found
        lines += [f"# {title}" if found == other else f"# {title} (torch)", *found, ""]
        lines += [f"# {title} (paddle)", *other, ""] if found != other else []
    check_golden(f"advice/rules/{rule}{variant}.txt", "\n".join(lines[:-1]) + "\n")


def outcome(rule: str, case: Trace | tuple[Trace, dict[str, float]], printed: set[str]) -> Iterator[str]:
    """Yield the lines of a case. Long texts that were ``printed`` before are only counted."""
    recording, thresholds = case if isinstance(case, tuple) else (case, {})
    facts = RuleInput(recording, overridden(thresholds))
    try:
        candidates = get_plugins().rules()[rule].find(facts)
    except NotEvaluableError as error:
        yield f"not evaluable: {error}"
        return
    if not candidates:
        yield "nothing found"
    for candidate in candidates:
        yield str(candidate.what)
        yield "  evidence: " + ", ".join(f"{name} {_value(value)}" for name, value in candidate.evidence.items())
        yield from (f"  {line}" for line in _details(candidate))
        sources = [one.source for one in candidate.assumptions]
        for name, messages in (
            ("sources", sources), ("preconditions", candidate.preconditions), ("vetoes", candidate.vetoes),
            ("risks", candidate.risks),
        ):  # fmt: skip
            texts = [str(text) for text in messages]
            if texts:
                yield f"  {len(texts)} {name}" + "".join(f"\n    {text}" for text in texts if text not in printed)
            printed |= set(texts)
        yield f"  {_prediction(facts, candidate)}"


def _details(candidate: Candidate) -> Iterator[str]:
    if candidate.assumptions:
        yield "assumes: " + ", ".join(f"{one.name} {_value(one.value)}" for one in candidate.assumptions)
    words = {**candidate.fill, **candidate.words}
    if words:
        yield "words: " + ", ".join(f"{name} {value}" for name, value in words.items())
    if candidate.direction:
        yield f"moves {candidate.direction}"
    if candidate.conflicts:
        yield f"conflicts with {', '.join(candidate.conflicts)}"
    if candidate.place:
        yield f"at {candidate.place}"


def _prediction(facts: RuleInput, candidate: Candidate) -> str:
    made = predict(facts, candidate)
    most = "no ceiling" if made.ceiling_ns is None else f"saves at most {_value(made.ceiling_ns)}"
    if candidate.ceiling_ns not in (None, made.ceiling_ns):
        most += f" (by the rule {_value(candidate.ceiling_ns)})"
    most += f"; events: {len(candidate.rows)}"
    if made.p50_ns is None:
        return f"no prediction; {most}"
    after = f"{_value(made.p50_ns)} ({_value(made.p10_ns)} to {_value(made.p90_ns)})"
    return f"{made.method}: {_value(made.base_ns)} → {after}; {most}"


def _value(value: Any) -> str:
    if isinstance(value, Quantity):
        return f"{_value(value.low)}/{_value(value.mid)}/{_value(value.high)}"
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    try:
        if int(value) == value:
            return f"{int(value):,}"
        return f"{float(value):,.1f}" if abs(value) > 1000 else f"{float(value):.5g}"
    except (TypeError, ValueError):
        return str(value)
