"""Store the recordings of this folder as run folders in the present format: ``python tests/data/store_runs.py NAME``.

Every later version must read the folders in ``runs``. Run this script once for each change of the format, before it is
changed again: tests read all folders. ``assembled`` has a cycle with step times beside it, ``streamed`` has the events
of a trace file as they were recorded."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pyarrow

from perfkit_core.readers.load import load, stream
from perfkit_core.trace.model import schema, timed_steps
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.storage import store

DATA = Path(__file__).parent
RECORDINGS = ("torch-mlp.json.gz", "paddle-mlp.json.gz")
TIMES = {"0": TimedSteps((TimedStep(0, False, 1_000_000, 900_000), TimedStep(1, True, 1_200_000)), cpus=2)}


def main(name: str) -> None:
    folder = DATA / "runs" / name
    for recording in RECORDINGS:
        framework = recording.partition("-")[0]
        trace = load(DATA / recording)
        meta = {"hostname": "host", "recording": "1-0", "cycle": 0}
        timed = trace.with_meta(source=recording, **meta).with_tables(step_clock=timed_steps.to_table({}))
        path = store.write_cycle(timed, folder / "assembled" / framework)
        store.write_steps(store.steps_path(path), TIMES)
        (folder / "streamed").mkdir(exist_ok=True)
        stream(DATA / recording, folder / "streamed" / f"{framework}{store.SUFFIX}")
    about = {
        "schema_version": schema.SCHEMA_VERSION,
        "script": "tests/data/store_runs.py",
        "versions": {"pyarrow": pyarrow.__version__, "python": platform.python_version()},
    }
    (folder / "provenance.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
