"""What the options of ``perfkit compare`` ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfkit_core.errors import UsageError
from perfkit_core.language.units import SHARES, parse_quantity

if TYPE_CHECKING:
    from perfkit_core.comparison.pair import Asked


def asked(given: Mapping[str, Any], runs: int) -> Asked:
    """Normalisation, gate and noise, from the values of the options. Raises UsageError."""
    from perfkit_core.comparison.gate.conditions import parsed
    from perfkit_core.comparison.pair import Asked

    per = given["per"]
    if given["tokens"] and per != "token":
        raise UsageError("--tokens is for --per token", "--per token --tokens A,B")
    if given["samples"] and per not in (None, "sample"):
        raise UsageError("--samples is for --per sample", "--per sample --samples A,B")
    name = "--tokens" if per == "token" else "--samples"
    amounts = _amounts(given["tokens"] if per == "token" else given["samples"], runs, name)
    return Asked(per, amounts, tuple(map(parsed, given["conditions"])), _share(given["noise"]))


def _amounts(text: str | None, runs: int, name: str) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,17}", part) for part in parts) or len(parts) not in (1, runs):
        raise UsageError(f"{name} {text!r} is not a whole number for each of the {runs} runs", f"{name} 32,64")
    numbers = [int(part) for part in parts]
    return tuple(numbers * runs if len(numbers) == 1 else numbers)


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    hint = "write it in percent, as in --noise 2%"
    try:
        share = parse_quantity(text, SHARES, needs_unit=True)
    except UsageError as error:
        raise UsageError(f"--noise {error.message}", hint) from None
    if not 0 <= share <= 1:
        raise UsageError(f"--noise {text!r} is not between 0% and 100%", hint)
    return share
