"""Run the benchmarks: ``python -m benchmarks [--quick] [--only NAME] [--write docs/performance.md]``

The command prints the results and compares them with the targets. It saves the results, with date and machine, in
``results.json`` in the benchmark folder ($PERFKIT_BENCH_DIR). A new run of a benchmark replaces only its own saved
results, so ``--write`` can combine several runs into one page.
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
    """Run the selected benchmarks. Return a line with the names of those that failed, or None if all succeeded."""
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
    """Run one benchmark. An error in one benchmark does not stop the others."""
    try:
        section = SUITES[name](asked)
    except Exception as error:
        console.progress(f"{name} failed: {type(error).__name__}: {error}")
        return False
    if asked.quick:
        section = replace(section, checks=())  # the targets apply only to full sizes
    console.show(section)
    if asked.quick or kept.keep(folder(), name, section, here):
        return True
    console.progress(f"{name}: nothing was measured; the saved results are unchanged")
    return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use small inputs and one round, to try the benchmarks; results are not saved",
    )
    parser.add_argument("--only", action="append", choices=list(SUITES), help="run only this benchmark; repeatable")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 3)")
    parser.add_argument(
        "--huge",
        action="store_true",
        help="also use a file of 2 GB, a run of 100 M events and a job of 1000 ranks; needs 8 GB of disk",
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the saved results into this page")
    parser.add_argument("--no-run", action="store_true", help="write the page without running benchmarks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
