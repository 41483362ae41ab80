"""Runs a script of examples/compare several times in one process, in turns as it is and with each regression.

python record_example.py SCRIPT FOLDER ROUNDS STEPS VARIANT…  leaves run folders FOLDER/VARIANT-ROUND. A variant is a
regression, "base" for none, or "plain" for none and no labels of layers.
"""

from __future__ import annotations

import gc
import runpy
import sys
import warnings
from pathlib import Path

_OPTIONS = {"plain": [], "base": ["--annotate"]}


def main(script: str, folder: str, rounds: str, steps: str, *variants: str) -> None:
    sys.path.insert(0, str(Path(script).parent))
    warnings.simplefilter("ignore")  # the frameworks' own
    for number in range(int(rounds)):
        for variant in variants:
            options = _OPTIONS.get(variant, ["--annotate", "--plant", variant])
            sys.argv = [script, "--steps", steps, "--record", str(Path(folder) / f"{variant}-{number}"), *options]
            runpy.run_path(script, run_name="__main__")
            gc.collect()  # Paddle allows one profiler in a process


if __name__ == "__main__":
    main(*sys.argv[1:])
