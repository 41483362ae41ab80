"""Which rules are asked, and what of them: all, some by their ids, or one for a number of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins.contracts import Rule
from perfkit_core.plugins.manager import Plugins

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


def asked(plugins: Plugins, rule: str, value: float) -> tuple[Rule, Find]:
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
