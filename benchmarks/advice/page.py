"""Write docs/advice-accuracy.md from the scores of the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import markdown
from benchmarks.advice import score
from benchmarks.advice.pairs import Part
from benchmarks.advice.score import Score
from benchmarks.results import Table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "advice-accuracy.md"
COLUMNS = (
    "program", "model", "change", "measured saving", "noise", "rule", "predicted saving", "base error",
    "recorded ÷ real",
)  # fmt: skip


def write(scores: Mapping[Part, Sequence[Score]]) -> None:
    """Replace the tables of the page. Both parts must have scores."""
    markdown.write_into(PAGE, text(scores))


def text(scores: Mapping[Part, Sequence[Score]]) -> str:
    measured = f"{when_and_where([one for found in scores.values() for one in found])}."
    rows = zip(*(score.table(scores[part]) for part in ("report", "tune")), strict=True)
    summary = Table("", ("what", "wanted", "report", "tune"), tuple((a[0], a[2], a[1], b[1]) for a, b in rows))
    parts = [measured, markdown.table_of(summary)]
    for part in ("report", "tune"):
        found = sorted(scores[part], key=lambda one: one.pair.program)
        parts += [f"### The part `{part}`", markdown.table_of(Table("", COLUMNS, tuple(map(row, found))))]
    return "\n\n".join(parts) + "\n"


def when_and_where(every: Sequence[Score]) -> str:
    """Return when the pairs were measured, with which versions and on which machines."""
    dates = sorted(one.truth.date[:10] for one in every)
    versions = sorted({f"{one.pair.framework} {one.truth.version.partition('+')[0]}" for one in every})
    machines = sorted({f"{one.truth.cpu}, {one.truth.cpus} processors" for one in every})
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"Measured {when} with {' and '.join(versions)} on {' and '.join(machines)}"


def row(one: Score) -> tuple[str, ...]:
    _, measured, _, rule, predicted, error, ratio, noise = score.line(one)
    change = f"{one.pair.waste} → {one.pair.fix}"
    return one.pair.program, one.pair.model, change, measured, noise, f"`{rule}`", predicted, error, ratio
