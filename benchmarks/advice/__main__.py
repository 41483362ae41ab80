"""Measure how right the advice is: ``python -m benchmarks.advice``

Each pair of the proving ground that was not measured yet is measured and recorded. Then the advice on each recording is
compared with the measurements. Measuring takes one to two minutes for each pair. Nothing else may run meanwhile."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import console
from benchmarks.advice import page, score, truth
from benchmarks.advice.pairs import HERE, pairs
from perfkit_core.errors import PerfkitError
from perfkit_core.measure.verify import ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("tune", "report"), help="only this part of the pairs")
    parser.add_argument("--program", action="append", default=[], help="only this program, such as torch/char_gpt")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of four runs for each pair")
    parser.add_argument("--again", action="store_true", help="measure again what was measured")
    parser.add_argument("--record", action="store_true", help="record again, but measure only what was not measured")
    parser.add_argument("--predict", action="store_true", help="measure nothing, and use what was recorded")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="write the outcomes into this file")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/advice-accuracy.md")
    parser.add_argument("--recordings", type=Path, default=HERE / "recordings", help="folder of the recordings")
    options = parser.parse_args()
    chosen, known = pairs(options.part, options.program), truth.known()
    for pair in chosen:
        if options.predict:
            break
        measured = known.get(pair.program)
        try:
            if options.again or measured is None or measured.hash != pair.hash:
                truth.measure(pair, options.rounds, options.recordings, console.progress)
            elif options.record or not truth.recording(pair, "change", options.recordings).exists():
                for side in ("base", "change"):
                    truth.record(pair, side, options.recordings, console.progress)
        except PerfkitError as error:
            console.progress(f"{pair.program}: {error}")
    found = score.scores(chosen, options.recordings, console.progress)
    for row in sorted(map(score.line, found), key=lambda row: row[3]):
        print(f"{row[0]:32}{row[1]:>24} {row[2]:7}{row[3]:>26} {row[4]:>26}{row[5]:>7}{row[6]:>6}{row[7]:>5}")
    if options.ledger:
        options.ledger.unlink(missing_ok=True)
        for outcome in filter(None, map(score.record, found)):
            ledger.append(options.ledger, outcome)
    if options.write:
        page.write({part: [one for one in found if one.pair.part == part] for part in ("report", "tune")})
    if found:
        print()
        for what, value, wanted in score.table(found):
            print(f"{what:75}{value:>24}  {wanted}")


if __name__ == "__main__":
    main()
