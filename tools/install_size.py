"""Measure the size of an installation of perfkit, and how long its imports take.

``python tools/install_size.py [PYTHON]`` measures the environment of PYTHON, by default its own. Only perfkit and its
dependencies should be installed there.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Final

TARGETS: Final = {"all": 420, "perfkit --help": 120, "import perfkit": 100}
"""MB without bytecode, and milliseconds on a quiet machine."""
SMALL_BYTES: Final = 5_000_000
COMMANDS: Final = {
    "python": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import perfkit": ["-c", "import perfkit"],
    "perfkit --help": ["-m", "perfkit", "--help"],
}
ROUNDS: Final = 21
TOOLS: Final = ("pip", "setuptools", "wheel")

# Runs in the measured environment: bytes of each installed distribution, without and with bytecode. A hard or symbolic
# link counts each time, as pip copies files.
_SIZES: Final = """
import importlib.metadata, json
sizes = {}
for found in importlib.metadata.distributions():
    code = data = 0
    for file in found.files or ():
        path = file.locate()
        if path.is_file():
            if path.suffix == ".pyc":
                code += path.stat().st_size
            else:
                data += path.stat().st_size
    sizes[found.metadata["Name"]] = (data, data + code)
print(json.dumps(sizes))
"""


def sizes(python: str) -> dict[str, tuple[int, int]]:
    """Return the bytes of each installed distribution, without and with its bytecode, the largest first."""
    found = json.loads(subprocess.run([python, "-c", _SIZES], check=True, capture_output=True, text=True).stdout)
    return {name: tuple(found[name]) for name in sorted(found, key=found.get, reverse=True) if name not in TOOLS}


def times(python: str) -> dict[str, list[float]]:
    """Return the seconds of each command, measured in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(ROUNDS + 1):
        for name, arguments in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run([python, *arguments], check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first round writes bytecode and fills the cache of files
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def main(python: str) -> None:
    """Print the tables of sizes and times, and which figures miss their target."""
    found = sizes(python)
    print(f"{'MB':>8} {'with bytecode':>14}")
    small = [size for size in found.values() if size[1] < SMALL_BYTES]
    shown = {name: size for name, size in found.items() if size[1] >= SMALL_BYTES}
    shown |= {f"{len(small)} others": total(small), "all": total(found.values())}
    for name, (data, whole) in shown.items():
        print(f"{data / 1e6:8.1f} {whole / 1e6:14.1f}  {name}{missed(name, data / 1e6)}")
    print(f"\n{'median':>8} {'minimum':>14}  milliseconds in {ROUNDS} rounds")
    for name, seconds in times(python).items():
        milliseconds = [second * 1e3 for second in seconds]
        fastest = min(milliseconds)
        print(f"{statistics.median(milliseconds):8.1f} {fastest:14.1f}  {name}{missed(name, fastest)}")


def total(values: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sums of both sizes."""
    data, whole = zip(*values, strict=True)
    return sum(data), sum(whole)


def missed(name: str, value: float) -> str:
    """Return a remark if a figure is above its target."""
    return f" (above the target of {TARGETS[name]})" if value > TARGETS.get(name, value) else ""


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
