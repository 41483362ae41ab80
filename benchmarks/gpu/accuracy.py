"""Compare the advice on the pairs of a GPU with their measurements: ``python -m benchmarks.gpu.accuracy OUT``

OUT is the folder of ``benchmarks.gpu.record``, with its ``parts-N.tar`` unpacked. The tables are printed. ``--write``
also writes them into docs/advice-accuracy.md, and keeps the measurements in ``measured.jsonl``. Recordings are not
kept. All pairs judge the advice; none is in the shipped ledger."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import console, markdown
from benchmarks.advice import page, score
from benchmarks.advice.pairs import Pair
from benchmarks.advice.score import Score
from benchmarks.advice.truth import Truth
from benchmarks.results import Table
from perfkit_core.advice.engine import advise

MEASURED = Path(__file__).resolve().with_name("measured.jsonl")
FLAWS = {
    "gpu-guessed-algorithms": "the two sides share the algorithms that cuDNN keeps for a process, so they are equal",
}
"""Pairs whose measurement does not show what the fix saves, and why. They are listed, but do not count."""


def measured(out: Path) -> list[dict[str, Any]]:
    """Return the measured pairs of a run: the rows with a measurement, without the numbers of their recordings."""
    rows = map(json.loads, (out / "results.jsonl").read_text().splitlines())
    return [{name: row[name] for name in ("device", "pair", "truth")} for row in rows if "truth" in row]


def scored(row: dict[str, Any], out: Path) -> Score:
    """Return the score of a row. Raises SourceError if a side of the pair has no recording."""
    pair, truth = Pair(**row["pair"]), msgspec.convert(row["truth"], Truth)
    folder = out / "pairs" / pair.program.partition("gpu-")[2]
    return Score(pair, truth, folder / "base", advise(folder / "base"), advise(folder / "change"))


def flaw(one: Score) -> str:
    return FLAWS.get(one.pair.program.partition("/")[2], "")


def summary(found: Sequence[Score]) -> list[tuple[str, str]]:
    """Return the rows of the summary: what, and its value."""
    rows = [(what, value) for what, value, _ in score.table(found)]
    errors = [abs(one.error) for one in found if one.error is not None]
    silent = [one for one in found if one.predicted is None]
    steps = [abs(error) for one in found if (error := step_error(one)) is not None]
    identities = [one.before.identity for one in found] + [one.after.identity for one in found]
    return [
        ("pairs", str(len(found))),
        *rows,
        ("error of the predicted saving: 90th percentile of the size", f"{np.quantile(errors, 0.9):.0%}"),
        ("error of the predicted step time after the fix: median size", f"{statistics.median(steps):.0%}"),
        ("no predicted saving from the rule of the fix", f"{len(silent)} of {len(found)}"),
        ("of these, fixes that save more than 10%", str(sum(one.large for one in silent))),
        ("error of the replay of the unchanged recording: median, largest",
         f"{statistics.median(one.error or 0 for one in identities):.1%}, "
         f"{max(one.worst or 0 for one in identities):.1%}"),
    ]  # fmt: skip


def step_error(one: Score) -> float | None:
    """Return the signed error of the predicted step time after the fix. None without a predicted saving."""
    after_ns = one.advice.prediction.p50_ns if one.advice else None
    return None if after_ns is None else after_ns / (one.measured.change * 1e6) - 1


def text(found: Sequence[Score], device: str) -> str:
    """Return the section of docs/advice-accuracy.md."""
    sound = [one for one in found if not flaw(one)]
    table = Table("", ("what", "value"), tuple(summary(sound)))
    columns = ("pair", *page.COLUMNS[1:])
    rows = tuple((row[0].partition("gpu-")[2], *row[1:]) for row in map(page.row, found))
    notes = [f"Not counted: `{one.pair.program.partition('gpu-')[2]}`: {flaw(one)}." for one in found if flaw(one)]
    return "\n\n".join([
        f"{page.when_and_where(found)}, {device}.", markdown.table_of(table), *notes,
        markdown.table_of(Table("", columns, rows)),
    ]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--write", action="store_true", help="write measured.jsonl and docs/advice-accuracy.md")
    options = parser.parse_args()
    rows = measured(options.out)
    found = []
    for row in rows:
        console.progress(row["pair"]["program"])
        found.append(scored(row, options.out))
    for one in found:
        line, error, said = score.line(one), step_error(one), one.after.advice
        again = max((a.prediction.saving_ratio or 0 for a in said if a.rule == one.pair.rule), default=0)
        print(
            f"{line[0]:28}{one.measured.base:9.2f}{one.measured.change:9.2f}{line[1]:>24} {line[2]:7}{line[3]:>22}"
            f"{line[4]:>24}{line[5]:>7}{line[6]:>6}{'–' if error is None else f'{error:+.0%}':>6}{again:6.0%}"
            f" {one.before.identity.error or 0:6.2%} {flaw(one)[:20]}"
        )
    for what, value in summary([one for one in found if not flaw(one)]):
        print(f"{what:75}{value:>24}")
    if options.write:
        MEASURED.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")
        ordered = sorted(found, key=lambda one: one.pair.program)
        markdown.write_into(page.PAGE, text(ordered, rows[0]["device"]), "figures on a GPU")


if __name__ == "__main__":
    main()
