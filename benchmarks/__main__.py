"""Run the benchmarks: ``python -m benchmarks [--quick] [--only NAME] [--write docs/performance.md]``

Prints every benchmark against its targets. The figures are kept in ``results.json`` of the benchmark folder
($PERFKIT_BENCH_DIR), with date and machine; a benchmark that is run again replaces its own figures there, so that
``--write`` can put a page together of several runs.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import console, kept, markdown
from benchmarks.inputs import folder
from benchmarks.machine import Machine, machine, sentence
from benchmarks.suites import SUITES, Options


def main() -> str | None:
    """Run what is asked for; what failed, in one line, None when nothing did."""
    options = _parser().parse_args()
    chosen = options.only or list(SUITES)
    here = machine()
    console.progress(sentence(here))
    asked = Options(quick=options.quick, rounds=options.rounds or (1 if options.quick else 3), huge=options.huge)
    failed = [] if options.no_run else [name for name in chosen if not _run(name, asked, here)]
    if options.write:
        markdown.write_into(options.write, markdown.page(kept.all_of(folder(), list(SUITES))))
    return f"failed: {', '.join(failed)}" if failed else None


def _run(name: str, asked: Options, here: Machine) -> bool:
    """One benchmark; a failure of its own takes no other down."""
    try:
        section = SUITES[name](asked)
    except Exception as error:
        console.progress(f"{name} failed: {type(error).__name__}: {error}")
        return False
    if asked.quick:
        section = replace(section, checks=())  # targets are meant for the full sizes
    console.show(section)
    if asked.quick or kept.keep(folder(), name, section, here):
        return True
    console.progress(f"{name}: nothing was measured; figures that were kept stay")
    return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small inputs, one round: to try the benchmarks; not kept")
    parser.add_argument("--only", action="append", choices=list(SUITES), help="one benchmark, repeatable")
    parser.add_argument("--rounds", type=int, help="how often all take their turn (3)")
    parser.add_argument(
        "--huge", action="store_true", help="a file of 2 GB and a run of 100 M events too: needs 8 GB of disk"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the kept figures into this page")
    parser.add_argument("--no-run", action="store_true", help="run nothing, only write the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
