"""Make the recordings in the folder examples: ``python -m tests.data.record_examples``. This needs torch and Paddle.

Each file is a recording of a script of examples/compare with one thread. Each script is recorded several times, and the
recording with the shortest median step is kept. ``provenance.json`` has versions and the date.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

from perfkit_core.readers.load import load
from perfkit_core.views.steps.step_rows import step_rows
from tests.support.compared_examples import FRAMEWORKS, VARIANTS, record, recorded, stored_path

ROUNDS = 8


def main() -> None:
    """Write the recordings of both frameworks, and their provenance."""
    for framework in FRAMEWORKS:
        with tempfile.TemporaryDirectory() as folder:
            record(framework, Path(folder), rounds=ROUNDS)
            for model, variant in VARIANTS:
                fastest = min(recorded(Path(folder), model, variant), key=median_step_ns)
                (file,) = fastest.glob("*.perfkit.parquet")
                stored_path(framework, model, variant).parent.mkdir(exist_ok=True)
                shutil.copyfile(file, stored_path(framework, model, variant))
    versions = {name: version(name) for name in ("torch", "paddlepaddle", "perfkit")}
    about = {"script": "tests/data/record_examples.py", "date": date.today().isoformat(), "device": "cpu",
             "cores": os.cpu_count(), "versions": versions | {"python": platform.python_version()}}  # fmt: skip
    path = stored_path("", "", "").with_name("provenance.json")
    path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")


def median_step_ns(run: Path) -> float:
    """Return the median duration of the steps of a run folder."""
    trace = load(run)
    return float(np.median(trace.ints("dur_ns")[step_rows(trace)]))


if __name__ == "__main__":
    main()
