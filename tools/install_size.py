"""Measure the size of an installation of perfkit, and how long its imports take.

``python tools/install_size.py [PYTHON]`` measures the environment of PYTHON, by default its own. In it, only perfkit and
its dependencies should be installed. The exit code is 1 if a figure misses its target.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Final

TARGETS: Final = {"perfkit --help": 0.12, "import perfkit": 0.1}
"""Seconds on a quiet machine."""
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


def main(python: str) -> int:
    """Print the tables of sizes and times. Return 1 if a time misses its target."""
    found = sizes(python)
    print(f"{'MB':>8} {'with bytecode':>14}")
    rest = {name: size for name, size in found.items() if size[1] < 5_000_000}
    shown = {name: size for name, size in found.items() if name not in rest}
    shown[f"{len(rest)} others"] = (sum(size[0] for size in rest.values()), sum(size[1] for size in rest.values()))
    shown["all"] = (sum(size[0] for size in found.values()), sum(size[1] for size in found.values()))
    for name, (data, whole) in shown.items():
        print(f"{data / 1e6:8.1f} {whole / 1e6:14.1f}  {name}")
    print(f"\n{'median':>8} {'minimum':>8} {'target':>8}  milliseconds, {ROUNDS} rounds")
    missed = 0
    for name, seconds in times(python).items():
        target = TARGETS.get(name)
        missed |= int(target is not None and min(seconds) > target)
        limit = "" if target is None else f"{target * 1e3:.0f}"
        print(f"{statistics.median(seconds) * 1e3:8.1f} {min(seconds) * 1e3:8.1f} {limit:>8}  {name}")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else sys.executable))
