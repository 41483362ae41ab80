"""What does all advice come to, what was looked at without gain, and what could not be told? As tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from perfkit_core.advice import in_sum, sentences
from perfkit_core.advice.model import Advice, Advices
from perfkit_core.language import render, say
from perfkit_core.report.model import Section

_NAME: Final = "in_sum"
_SELDOM: Final = ("why", "afterwards_ns", "after")
"""Columns that are left out where they hold nothing: there is nothing to tell."""


def sections(found: Advices, of: str) -> Iterator[Section]:
    """In sum, with its parts as far as there is something to say: what can be combined, what saves nothing by itself,
    and the rules that could not be evaluated. ``of``: what the times are of, "step" or "recording"."""
    lines = (*in_sum.together(found, of), *in_sum.gains(found), in_sum.replayed(found.identity, of))
    yield Section(_NAME, say("In sum"), pd.DataFrame(), lines=lines)
    if len(found.advice) > 1 and not found.asked:
        yield Section("together", say("What can be combined"), together(found), within=_NAME)
    if found.without_saving:
        title = say("Looked at, without a saving to speak of ({count})", count=len(found.without_saving))
        yield Section("without_saving", title, without_saving(found), within=_NAME, folded=True)
    if found.not_evaluable:
        title = say("Rules that could not be evaluated ({count})", count=len(found.not_evaluable))
        yield Section("not_evaluable", title, not_evaluable(found), within=_NAME, folded=True)


def together(found: Advices) -> pd.DataFrame:
    """id, saving_ns (by itself), combined (whether it is part of the combined saving), why (not), afterwards_ns (what
    it saves once others are followed, where that differs much), after (which others). NA where unknown."""
    return _typed([_savings(one, found) | _combined(one, found) for one in found.advice])


def without_saving(found: Advices) -> pd.DataFrame:
    """id, title, saving_ns, afterwards_ns (once others are followed, where that is much)."""
    return _typed([_savings(one, found) | {"title": one.title} for one in found.without_saving])


def not_evaluable(found: Advices) -> pd.DataFrame:
    """rule, reason, to_record (what the reason asks for; NA where it asks for nothing)."""
    rows = [
        (rule, sentences.capitalized(why.reason), render(why.record) or pd.NA)
        for rule, why in found.not_evaluable.items()
    ]
    return pd.DataFrame(rows, columns=["rule", "reason", "to_record"], dtype=object)


def _savings(one: Advice, found: Advices) -> dict[str, Any]:
    then = found.after.get(one.id)
    return {
        "id": one.id,
        "saving_ns": one.prediction.saving_ns,
        "afterwards_ns": None if then is None else then.saving_ns,
        "after": None if then is None else ", ".join(then.once),
    }


def _combined(one: Advice, found: Advices) -> dict[str, Any]:
    return {"combined": one.id in found.together, "why": render(found.excluded.get(one.id)) or None}


def _typed(rows: list[dict[str, Any]]) -> pd.DataFrame:
    names = ["id", "title", "saving_ns", "combined", "why", "afterwards_ns", "after"]
    made = pd.DataFrame(rows)
    made = made[[name for name in names if name in made]]
    made = made.astype({"saving_ns": "Int64", "afterwards_ns": "Int64"})
    return made.drop(columns=[name for name in _SELDOM if name in made and made[name].isna().all()])
