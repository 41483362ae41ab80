"""Make the recording in the folder pictures: ``python -m tests.data.record_picture [RUN]``. This needs torch.

The recording is that of the slow training of ``perfkit demo``, or of RUN if one of its recordings is given. Folders of
this machine and its name are left out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

import msgspec

from perfkit_core.readers.load import load
from perfkit_core.trace.model import frame_samples
from perfkit_core.trace.storage.store import write_trace
from perfkit_torch.record import DEMO
from tools.pictures import RECORDING

_LIBRARIES = re.compile(r"[^;]*?/(?=lib/python3)")
_FOLDERS = re.compile(r"(?:(?<=;)|^)/(?!usr/)[^;]*/")


def main(run: str | None = None) -> None:
    """Write the recording and its provenance."""
    with tempfile.TemporaryDirectory() as folder:
        if run is None:
            script = Path(folder) / "train.py"
            shutil.copyfile(DEMO.script, script)
            run = f"{folder}/run"
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
            subprocess.run([sys.executable, script, run], check=True, env=environment)
        trace = load(run)
    samples = {
        rank: msgspec.structs.replace(
            found, stacks=tuple(_FOLDERS.sub("", _LIBRARIES.sub("/usr/", stack)) for stack in found.stacks)
        )
        for rank, found in trace.frame_samples.items()
    }
    RECORDING.parent.mkdir(exist_ok=True)
    trace = trace.with_tables(frame_samples=frame_samples.to_table(samples))
    write_trace(trace.with_meta(hostname=None, source="runs/baseline"), RECORDING)
    about = {"script": "tests/data/record_picture.py", "date": date.today().isoformat(), "device": "cpu",
             "versions": {"torch": version("torch"), "python": platform.python_version()}}  # fmt: skip
    text = json.dumps(about, indent=1, sort_keys=True) + "\n"
    RECORDING.with_name("provenance.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
