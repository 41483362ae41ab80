"""Measure one reader on one file in this process: ``python -m benchmarks.measure READER FILE`` prints one line of JSON.

- ``seconds``, ``cpu_seconds``: from the file to the result, without imports.
- ``peak_bytes``: peak memory on top of the interpreter and the imports.
- ``again_seconds``: a second read in the same process.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import process
from benchmarks.readers import reader
from benchmarks.readers.contract import Outcome, Reader


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. ``result_bytes`` is the size of the result in memory, or on disk if the result is a file."""

    seconds: float
    cpu_seconds: float
    again_seconds: float
    peak_bytes: int
    result_bytes: int
    rows: int


def measure(one: Reader, file: Path) -> Sample:
    """Read the file in this process, twice unless the reader is slow."""
    for module in one.modules:
        importlib.import_module(module)
    process.reset_peak()
    base, cpu = process.resident_bytes(), process.cpu_seconds()
    seconds, outcome = _once(one, file)
    used, peak = process.cpu_seconds() - cpu, process.peak_bytes() - base
    rows, result_bytes = outcome.rows, outcome.bytes
    del outcome
    again = seconds if one.slow else _once(one, file)[0]
    return Sample(seconds, used, again, peak, result_bytes, rows)


def _once(one: Reader, file: Path) -> tuple[float, Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        outcome = one.read(file, Path(folder))
        return time.perf_counter() - start, outcome


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(asdict(measure(reader(sys.argv[1]), Path(sys.argv[2])))))
