"""Run scripts of examples/compare in one process, unchanged and with each regression.

Usage: ``python record_example.py FOLDER_OF_SCRIPTS FOLDER ROUNDS STEPS MODEL:VARIANT…`` writes the run folders
FOLDER/MODEL-VARIANT-ROUND. The variant "base" has no regression. The variant "plain" has no regression and no layer
labels. Any other variant is the name of a regression.
"""

from __future__ import annotations

import gc
import runpy
import sys
import warnings
from pathlib import Path

_OPTIONS = {"plain": [], "base": ["--annotate"]}


def main(scripts: str, folder: str, rounds: str, steps: str, *variants: str) -> None:
    sys.path.insert(0, scripts)
    warnings.simplefilter("ignore")  # hides warnings of the frameworks
    for number in range(int(rounds)):
        for model, variant in (pair.split(":") for pair in variants):
            script, run = str(Path(scripts, f"{model}.py")), Path(folder, f"{model}-{variant}-{number}")
            options = _OPTIONS.get(variant, ["--annotate", "--plant", variant])
            sys.argv = [script, "--steps", steps, "--record", str(run), *options]
            runpy.run_path(script, run_name="__main__")
            gc.collect()  # deletes the profiler, because Paddle allows one per process


if __name__ == "__main__":
    main(*sys.argv[1:])
