"""Read recordings of Ascend NPUs and a torch trace: ``python -m benchmarks.ascend [--size-mb N] [--rounds N]``

A real recording is repeated, as text and as a database, until it has about the size of the torch trace of a GPU. The
size counts all files that perfkit reads: for the text, these are the trace, the tables of kernels and allocations, and
the settings. The ratios are of the CPU time: bytes or events per second, divided by those of the torch trace. Each
recording is read in a new process. The recordings alternate, and the numbers are medians. The last row is a lower bound
for a reader that leaves the database to SQLite.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks import ascend_inputs, console
from benchmarks.ingest import MEMORY
from benchmarks.inputs import large
from benchmarks.readers.floors import SQLITE
from benchmarks.results import Check, Section, Table, at_least, number
from benchmarks.rounds import Result, reasons, take_turns

_TORCH, _TEXT, _DATABASE = "torch trace", "Ascend, text", "Ascend, database"
SIZE_MB = 40


def section(size_mb: int, rounds: int, say: Callable[[str], None]) -> Section:
    """Return the table of the recordings, and the checks of the speed per byte and per event."""
    recordings = {
        _TORCH: large(size_mb),
        _TEXT: ascend_inputs.text(size_mb),
        _DATABASE: ascend_inputs.database(size_mb),
        SQLITE.name: ascend_inputs.database(size_mb),
    }
    contenders = [
        (name, ["-m", "benchmarks.measure", SQLITE.name if name == SQLITE.name else MEMORY, str(path)], rounds)
        for name, path in recordings.items()
    ]
    results = dict(zip(recordings, take_turns(contenders, rounds, say), strict=True))
    sizes = {name: ascend_inputs.size_bytes(path) for name, path in recordings.items()}
    columns = ("", "MB", "rows", "s", "CPU s", "speed per byte ÷ torch trace", "speed per row ÷ torch trace")
    rows = tuple(_row(name, sizes, results) for name in recordings)
    about = (__doc__ or "").partition("\n\n")[2]
    numbers = {name: result.samples or result.reason for name, result in results.items()}
    return Section(
        "Ascend NPUs",
        about,
        (Table("", columns, rows, reasons([*results.values()])),),
        _checks(sizes, results),
        numbers,
    )


def _row(name: str, sizes: dict[str, int], results: dict[str, Result]) -> tuple[str, ...]:
    result = results[name]
    values = [result.median("rows"), result.median("seconds"), result.median("cpu_seconds"),
              *_ratios(name, sizes, results)]  # fmt: skip
    return name, number(sizes[name] / 1e6), *("-" if value is None else number(value) for value in values)


def _ratios(name: str, sizes: dict[str, int], results: dict[str, Result]) -> tuple[float | None, float | None]:
    """Return the speed per byte and per row, relative to the torch trace."""
    torch, result = results[_TORCH], results[name]
    time, torch_rows, rows = torch.ratio(result, "cpu_seconds"), torch.median("rows"), result.median("rows")
    if time is None or not torch_rows or not rows:
        return None, None
    return time * sizes[name] / sizes[_TORCH], time * rows / torch_rows


def _checks(sizes: dict[str, int], results: dict[str, Result]) -> tuple[Check, ...]:
    return tuple(
        at_least(f"{name}: speed per {unit} ÷ that of a torch trace", 1, ratio)
        for name in (_TEXT, _DATABASE)
        for unit, ratio in zip(("byte", "row"), _ratios(name, sizes, results), strict=True)
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size-mb", type=int, default=SIZE_MB, help=f"size of each recording (default: {SIZE_MB})")
    arguments.add_argument("--rounds", type=int, default=3, help="number of rounds (default: 3)")
    options = arguments.parse_args()
    console.show(section(options.size_mb, options.rounds, console.progress))
