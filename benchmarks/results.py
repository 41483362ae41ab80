"""What a benchmark hands over: tables for people, checks against the targets, and the numbers themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is printed: all cells are text. ``note`` is what a reader must know to read it right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A target, what was measured, and whether it holds; ``holds`` is None where it could not be measured."""

    what: str
    target: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark: ``about`` says what is measured and how; ``numbers`` is the same unrounded, for scripts."""

    title: str
    about: str
    tables: tuple[Table, ...] = ()
    checks: tuple[Check, ...] = ()
    numbers: Any = field(default=None, compare=False)


def running_text(about: str) -> str:
    """A docstring as one paragraph with Markdown's code marks."""
    return " ".join(about.replace("``", "`").split())


def at_least(what: str, target: float, measured: float | None, aside: str = "") -> Check:
    """A ratio that should be ``target`` or more; ``aside`` stands behind what was measured."""
    found = _check(what, "≥", target, measured, "×")
    return replace(found, measured=f"{found.measured}{aside}") if aside and measured is not None else found


def at_most(what: str, target: float, measured: float | None, unit: str) -> Check:
    """A figure that should be ``target`` or less."""
    return _check(what, "≤", target, measured, unit)


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _check(what: str, sign: str, target: float, measured: float | None, unit: str) -> Check:
    gap = "" if unit in ("×", "") else " "
    wanted = f"{sign} {target:g}{gap}{unit}"
    if measured is None:
        return Check(what, wanted, "not measured", None)
    holds = measured >= target if sign == "≥" else measured <= target
    return Check(what, wanted, f"{number(measured)}{gap}{unit}", holds)
