"""The results of a benchmark: tables for people, checks of targets, and unrounded numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose cells are text. ``note`` explains how to read the table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A target and the measured value. ``holds`` says whether the target is met, or is None if nothing was measured."""

    what: str
    target: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Section:
    """The results of a benchmark. ``about`` describes the measurement. ``numbers`` are unrounded, for scripts."""

    title: str
    about: str
    tables: tuple[Table, ...] = ()
    checks: tuple[Check, ...] = ()
    numbers: Any = field(default=None, compare=False)


def running_text(about: str) -> str:
    """Return the text as one paragraph of Markdown."""
    return " ".join(about.replace("``", "`").split())


def at_least(what: str, target: float, measured: float | None, aside: str = "", unit: str = "×") -> Check:
    """Return the check that a ratio is at least ``target``. The text ``aside`` follows the measured value."""
    found = _check(what, "≥", target, measured, unit)
    return replace(found, measured=f"{found.measured}{aside}") if aside and measured is not None else found


def at_most(what: str, target: float, measured: float | None, unit: str) -> Check:
    """Return the check that a value is at most ``target``."""
    return _check(what, "≤", target, measured, unit)


def number(value: float) -> str:
    """Return a number with three significant digits and without an exponent."""
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
