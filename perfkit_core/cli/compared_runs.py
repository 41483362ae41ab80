"""Which runs does ``perfkit compare`` compare? What its arguments name, and what each is called."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from perfkit_core.comparison.labels import distinguishing
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.paths import as_path, exists, is_remote


@dataclass(frozen=True, slots=True)
class Named:
    """One run: a short name and the places of its captures."""

    name: str
    places: tuple[Path, ...]


def named_runs(given: Sequence[str], baseline: Sequence[str]) -> list[Named]:
    """The runs in their order, those of ``--baseline`` first, as captures of one run. An argument may name several
    captures: separated by commas, or by a pattern that the shell left alone. Of many places, those that hold no profile
    are left out, and told. Raises UsageError and SourceError."""
    base = tuple(place for text in baseline for place in _captures(text))
    others = [tuple(_captures(text)) for text in given]
    without = [one for one in others if not set(one) <= set(base)]  # DIR/* names the baseline once more
    runs = [base, *(without or others)] if base else others
    runs = _profiles(runs) if len(runs) > 2 else runs
    if len(runs) < 2:
        raise UsageError("one run cannot be compared", "name two or more: perfkit compare A B, or DIR/*")
    labels = distinguishing([places[0] for places in runs])
    return [Named(name, places) for name, places in zip(labels, runs, strict=True)]


def earlier_pair(given: Sequence[str], runs: int) -> list[Named]:
    """The two runs of ``--against``, each of one capture or more. Raises UsageError and SourceError."""
    if runs != 2:
        raise UsageError(f"--against is for two runs, not {runs}", "perfkit compare A B --against OLD_A OLD_B")
    return [Named(text, tuple(_captures(text))) for text in given]


def _captures(text: str) -> Iterator[Path]:
    """The places that one argument means."""
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if not parts:
        raise UsageError(f"{text!r} names no run", "captures of one run are separated by commas: A1,A2")
    whole = as_path(text)
    if is_remote(whole) or exists(whole):
        yield whole
        return
    for part in parts:
        found = sorted(glob.glob(part)) if glob.has_magic(part) else [part]  # noqa: PTH207 (it may be absolute)
        if not found:
            raise SourceError(f"{part}: nothing has such a name", "check the pattern")
        yield from map(as_path, found)


def _profiles(runs: list[tuple[Path, ...]]) -> list[tuple[Path, ...]]:
    """Those that a reader knows: a folder of runs holds pages and tables, too. A single missing one is an error."""
    from perfkit_core.runs import recognised

    known = [places for places in runs if len(places) > 1 or not exists(places[0]) or recognised(places[0])]
    left = [str(places[0]) for places in runs if places not in known]
    if left:
        more = f" and {len(left) - 3} more" if left[3:] else ""
        click.echo(f"left out, as no profile: {', '.join(left[:3])}{more}", err=True)
    return known
