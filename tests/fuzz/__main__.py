"""Attack everything that perfkit reads: ``python -m tests.fuzz [--minutes 5] [--target NAME] [--seed N]``.

Each target runs in a process of its own, so that a crash of compiled code ends only this process. Array accesses of
compiled code are checked. Inputs that are handled wrongly are kept in the folder of
findings; ``--repeat FILE`` runs one again. With atheris, texts of options are chosen by the code that they reach."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_HEAD: Final = 32
"""Bytes of the shared file before the present input: four numbers of 8 bytes."""
_ROOM: Final = 16 << 20
_GUIDED: Final = ("filter", "fail-on", "metric", "ledger", "peaks", "snapshot", "partial-results")
"""Targets in Python, where atheris sees which code an input reaches."""
_SEEN: Final = (
    "perfkit_core.compare.gate", "perfkit_core.plugins.flops", "perfkit_core.base.language", "perfkit_core.ranks",
    "perfkit_core.measure.verify", "perfkit_torch.memory_snapshot",
)  # fmt: skip
"""Modules whose code atheris sees. numba could not compile functions that atheris has changed."""


class Progress:
    """Counts and the present input, in a file that survives a crash of the process that writes it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(_HEAD + _ROOM)
        with path.open("r+b") as file:
            self._held = mmap.mmap(file.fileno(), 0)

    def _number(self, at: int) -> int:
        return int.from_bytes(self._held[8 * at : 8 * at + 8], "little")

    def _add(self, at: int, value: int) -> None:
        self._held[8 * at : 8 * at + 8] = (self._number(at) + value).to_bytes(8, "little")

    def begin(self, data: bytes) -> None:
        size = min(len(data), _ROOM)
        self._held[16:24] = size.to_bytes(8, "little")
        self._held[_HEAD : _HEAD + size] = data[:size]

    def ended(self, accepted: bool) -> None:
        self._add(0, 1)
        self._add(1, accepted)

    @property
    def inputs(self) -> int:
        return self._number(0)

    @property
    def accepted(self) -> int:
        return self._number(1)

    @property
    def present(self) -> bytes:
        return self._held[_HEAD : _HEAD + self._number(2)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="time for all targets together (default: 5)")
    parser.add_argument("--inputs", type=int, help="number of inputs of each target, instead of a time")
    parser.add_argument("--target", action="append", help="only this target; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--repeat", type=Path, help="run one input of --target, and show what happens")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker or arguments.repeat:
        return _work(arguments)
    from tests.fuzz import targets

    names = arguments.target or targets.NAMES
    seconds = 60 * arguments.minutes / len(names)
    print(f"{'target':<22}{'inputs':>12}{'accepted':>12}{'findings':>10}  seconds", flush=True)
    found = total = 0
    for name in names:
        begin = time.monotonic()
        inputs, accepted, findings = _attack(name, arguments, seconds)
        found, total = found + findings, total + inputs
        taken = time.monotonic() - begin
        print(f"{name:<22}{inputs:>12,}{accepted:>12,}{findings:>10}  {taken:.0f}", flush=True)
    print(f"{'all':<22}{total:>12,}{'':>12}{found:>10}")
    return int(found > 0)


def _attack(name: str, arguments: argparse.Namespace, seconds: float) -> tuple[int, int, int]:
    """Run a target in processes until its time is over. Return the numbers of inputs, accepted inputs and findings."""
    end, findings, seed = time.monotonic() + seconds, 0, arguments.seed
    inputs = accepted = 0
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    while findings < 20:
        with tempfile.TemporaryDirectory(prefix="perfkit-fuzz-", dir=_fast()) as folder:
            shared = Path(folder) / "progress"
            progress = Progress(shared)
            left = None if arguments.inputs is None else arguments.inputs - inputs
            limits = (
                ["--minutes", str(max(end - time.monotonic(), 0) / 60)] if left is None else ["--inputs", str(left)]
            )
            command = [sys.executable, "-m", "tests.fuzz", "--worker", str(shared), "--target", name]
            done = subprocess.run(
                [*command, "--seed", str(seed), *limits],
                env=environment, capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
            inputs, accepted, seed = inputs + progress.inputs, accepted + progress.accepted, seed + 1
            if done.returncode:
                findings += 1
                arguments.findings.mkdir(parents=True, exist_ok=True)
                file = arguments.findings / f"{name}-{seed}"
                file.write_bytes(progress.present)
                print(f"  {name}: exit code {done.returncode}; the input is in {file}", flush=True)
                print("    " + "\n    ".join(done.stderr.strip().splitlines()[-6:]), flush=True)
            over = time.monotonic() >= end if arguments.inputs is None else inputs >= arguments.inputs
            if over or not done.returncode:
                return inputs, accepted, findings
    return inputs, accepted, findings


def _work(arguments: argparse.Namespace) -> int:
    """Run one target in this process, until the time is over or an input is handled wrongly."""
    (name,) = arguments.target
    from perfkit_core.base.runtime import build
    from perfkit_core.base.runtime.compiled import Mode
    from tests.fuzz import targets

    guided = arguments.repeat is None and name in _GUIDED and importlib.util.find_spec("atheris") is not None
    if arguments.repeat:
        with tempfile.TemporaryDirectory() as folder:
            target = targets.all_targets(Path(folder))[name]
            print("accepted" if target.run(arguments.repeat.read_bytes()) else "refused")
            target.end()
        return 0
    target = targets.all_targets(arguments.worker.parent)[name]
    Mode.instead = build.checked
    progress = Progress(arguments.worker)

    def one(data: bytes) -> None:
        progress.begin(data)
        progress.ended(target.run(data))

    if guided:
        _guided(target.seeds, one, arguments)
        return 0
    chance, end = random.Random(f"{name}{arguments.seed}"), time.monotonic() + 60 * arguments.minutes
    try:
        while progress.inputs < arguments.inputs if arguments.inputs else time.monotonic() < end:
            one(target.make(chance))
        target.end()
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _guided(seeds: Sequence[bytes], one: Callable[[bytes], None], arguments: argparse.Namespace) -> None:
    import atheris

    for module in [module for name, module in sys.modules.items() if name.startswith(_SEEN)]:
        for holder in (module, *filter(inspect.isclass, vars(module).values())):
            for function in filter(inspect.isfunction, vars(holder).values()):
                if function.__module__ == module.__name__:
                    atheris.instrument_func(function)
    folder = arguments.worker.parent
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)
    limit = (
        f"-runs={arguments.inputs}" if arguments.inputs else f"-max_total_time={max(int(60 * arguments.minutes), 1)}"
    )
    atheris.Setup(["fuzz", limit, f"-seed={arguments.seed}", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/",
                   str(corpus)], one)  # fmt: skip
    atheris.Fuzz()


def _fast() -> str | None:
    """Return a folder in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    raise SystemExit(main())
