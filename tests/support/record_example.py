"""Runs a script of examples/compare several times in one process: as it is, and with each regression.

python record_example.py SCRIPT FOLDER PLANT…  leaves a run folder FOLDER/PLANT for each; PLANT "base" plants nothing.
"""

from __future__ import annotations

import gc
import runpy
import sys
import warnings
from pathlib import Path


def main(script: str, folder: str, plants: list[str]) -> None:
    sys.path.insert(0, str(Path(script).parent))
    warnings.simplefilter("ignore")  # the frameworks' own
    for plant in plants:
        planted = [] if plant == "base" else ["--plant", plant]
        sys.argv = [script, "--annotate", "--record", str(Path(folder) / plant), *planted]
        runpy.run_path(script, run_name="__main__")
        gc.collect()  # Paddle allows one profiler in a process


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
