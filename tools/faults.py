"""Attack trainings that perfkit records, and check what is kept: ``python tools/faults.py --framework torch``.

Each fault is caused in real trainings: the process is killed or ended in some way, its disk is full, its folder becomes
read-only or vanishes, its clock jumps, it forks, or others read and write in the same folder. The moments are random,
and follow from ``--seed``. The program prints a table with what was kept, and exits with 1 if a promise was broken:

- Each file of a cycle in the run folder is readable and complete.
- Each cycle that the profiler has handed over is there, or the reader of the folder reports it. Where nothing can be
  written into the folder any more, the log reports it.
- Only faults that give the process no time lose cycles.
- The process ends as it would without perfkit, without a crash.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from faulty_training import RECORDED, TRAININGS

from perfkit_core.errors import PerfkitError
from perfkit_core.readers import run_folder
from perfkit_core.recording import writer
from perfkit_core.trace.storage import store

LATEST_CYCLE: Final = 8
LATEST_S: Final = 0.05
"""Latest moment of a signal: this time after this number of cycles. At most two cycles are unwritten at any time."""
PATIENCE_S: Final = 300.0
_ENDLESS: Final = 100_000
_LOST: Final = re.compile(r"process (\d+), cycle (\d+):")
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)  # Paddle prints "C++ Traceback"
_TOLD: Final = re.compile(rf"(\d+) times in this process: {writer.LOST}")

Cycle = tuple[int, int]
"""Process and number of a cycle."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault. ``signal``: which signal is sent. ``end``, ``inside``: how the training ends, and what happens
    in it (see faulty_training.py). ``status``: exit status of the process. ``loses``: whether cycles may be lost.
    ``disk``: what happens to the disk of the run folder: "full" or "read-only"."""

    name: str
    status: int = 0
    signal: int | None = None
    end: str = "return"
    inside: str = ""
    loses: bool = False
    tracebacks: int = 0
    trainings: int = 1
    cycles: int = 6
    disk: str = ""
    reads: bool = False
    share: float = 0.05
    """Number of runs, as a share of the option ``--runs``."""


FAULTS: Final = (
    Fault("kill -9", -signal.SIGKILL, signal.SIGKILL, loses=True, cycles=_ENDLESS, share=1.0),
    Fault("SIGINT", -signal.SIGINT, signal.SIGINT, tracebacks=1, cycles=_ENDLESS, share=0.15),
    Fault("SIGINT, caught", 5, signal.SIGINT, end="caught", cycles=_ENDLESS, share=0.15),
    Fault("SIGTERM", 128 + signal.SIGTERM, signal.SIGTERM, cycles=_ENDLESS, share=0.15),
    Fault("SIGHUP", 128 + signal.SIGHUP, signal.SIGHUP, cycles=_ENDLESS, share=0.15),
    Fault("end of the script"),
    Fault("sys.exit", 3, end="sys.exit"),
    Fault("exception", 1, end="exception", tracebacks=1),
    Fault("exception, profiler left running", 1, end="left running", tracebacks=1),
    Fault("os._exit", 3, end="os._exit", loses=True),
    Fault("abort", -signal.SIGABRT, end="abort", loses=True),
    Fault("full disk", disk="full", loses=True, cycles=40),
    Fault("files larger than a limit", inside="limit", loses=True),
    Fault("read-only folder", disk="read-only", loses=True, cycles=40),
    Fault("vanishing folder", inside="vanishes", loses=True),
    Fault("jumping clock", inside="clock"),
    Fault("fork", inside="fork"),
    Fault("spawn", inside="spawn", share=0.01),
    Fault("2 writers", trainings=2),
    Fault("64 writers", trainings=64, cycles=3, share=0.005),
    Fault("reader", cycles=20, reads=True),
)


@dataclass
class Result:
    """What the runs of a fault showed. Texts in ``broken`` name promises that were not kept."""

    runs: int = 0
    finished: int = 0
    kept: int = 0
    reported: int = 0
    crashes: int = 0
    tracebacks: int = 0
    broken: list[str] = field(default_factory=list)


class Server:
    """The process that forks the trainings of one framework."""

    def __init__(self, framework: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("faulty_training.py")), framework]
        environment = {"GLOG_minloglevel": "1", "KINETO_LOG_LEVEL": "6", "OMP_NUM_THREADS": "1", **os.environ}
        self._process: subprocess.Popen[str] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip
        while self._line() != "ready":
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process that starts the trainings has ended")
        return line.strip()

    @contextlib.contextmanager
    def trainings(self, job: dict[str, Any]) -> Iterator[list[int]]:
        """Start the trainings of a job, and yield their process ids. At the end, wait for them. The list then contains
        their exit statuses."""
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        numbers = json.loads(self._line())
        yield numbers
        limit = threading.Timer(PATIENCE_S, lambda: [os.kill(number, signal.SIGKILL) for number in numbers])
        limit.start()
        statuses = json.loads(self._line())
        limit.cancel()
        numbers[:] = statuses

    def close(self) -> None:
        self._process.communicate()


def attack(server: Server, fault: Fault, runs: int, chance: random.Random, folder: Path) -> Result | None:
    """Cause a fault several times. None if this machine does not allow it."""
    result = Result()
    for number in range(runs):
        place = folder / f"{number}"
        place.mkdir(parents=True)
        try:
            with _disk(place, fault) as run_dir:
                _run(server, fault, chance, place, run_dir, result)
        except PermissionError:
            return None
        shutil.rmtree(place)
    return result


@contextlib.contextmanager
def _disk(place: Path, fault: Fault) -> Iterator[Path]:
    """Yield the run folder. If the fault concerns the disk, mount a small one. Raises PermissionError."""
    if not fault.disk:
        yield place / "run"
        return
    mounted = place / "disk"
    mounted.mkdir()
    options = "size=128k" if fault.disk == "full" else "size=64m"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise PermissionError(mounted)
    try:
        yield mounted / "run"
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=False)


def _run(server: Server, fault: Fault, chance: random.Random, place: Path, run_dir: Path, result: Result) -> None:
    log, errors = place / "log", place / "errors"
    log.touch()
    job = {
        "run_dir": str(run_dir), "log": str(log), "errors": str(errors), "trainings": fault.trainings,
        "cycles": fault.cycles, "end": fault.end, "fault": fault.inside, "seed": chance.random(),
    }  # fmt: skip
    cycles, delay = chance.randint(0, LATEST_CYCLE), chance.uniform(0, LATEST_S)
    with server.trainings(job) as statuses:
        if fault.signal is not None or fault.disk == "read-only":
            _wait_for(log, cycles)
            time.sleep(delay)
        if fault.signal is not None:
            os.kill(statuses[0], fault.signal)
        if fault.disk == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(run_dir.parent)], check=False, capture_output=True)
        if fault.reads:
            _read_until_end(run_dir, statuses[0], result)
    _check(fault, place, run_dir, statuses, result)


def _wait_for(log: Path, cycles: int) -> None:
    """Wait until the training has begun, and has handed over this number of cycles."""
    while log.read_bytes().count(b"\n") <= cycles:
        time.sleep(0.001)


def _read_until_end(run_dir: Path, number: int, result: Result) -> None:
    """Read the folder again and again while the training writes. There is nothing to read before its first cycle."""
    process = os.pidfd_open(number)
    seen = 0
    while not _ended(process):
        try:
            files, _ = run_folder.cycles(run_dir)
            for file in files[seen:]:
                len(run_folder.read_stored(file))
            seen = len(files)
        except PerfkitError as error:
            if seen:
                result.broken.append(f"reader: {error}")
    os.close(process)


def _ended(process: int) -> bool:
    return bool(select.select([process], [], [], 0)[0])


def _check(fault: Fault, place: Path, run_dir: Path, statuses: list[int], result: Result) -> None:
    """Compare what the trainings finished with what the folder contains and reports."""
    told = (place / "errors").read_text(encoding="utf-8", errors="replace")
    lines = [line.split() for line in (place / "log").read_text(encoding="ascii").splitlines() if line != "begins"]
    finished = {(int(process), int(cycle)) for process, cycle in lines}
    folders = [folder for folder in (run_dir, run_dir.with_name(run_dir.name + ".gone")) if folder.exists()]
    last = {process: max(cycle for other, cycle in finished if other == process) for process, _ in finished}
    kept = [cycle for folder in folders for cycle in _kept(folder, fault, last, result)]
    reported = {cycle for folder in folders for cycle in _reported(folder)} - set(kept)
    in_log = sum(map(int, _TOLD.findall(told))) or told.count(writer.LOST)
    lost = finished - set(kept)
    silent = lost - reported
    result.runs += 1
    result.finished += len(finished)
    result.kept += len(kept)
    result.reported += len(lost) - len(silent) + min(in_log, len(silent))
    crashes = [status for status in statuses if status != fault.status]
    result.crashes += len(crashes)
    tracebacks = len(_TRACEBACK.findall(told)) - fault.tracebacks * len(statuses)
    result.tracebacks += max(tracebacks, 0)
    broken = [f"exit status {status}, not {fault.status}" for status in crashes]
    broken += [f"{tracebacks} tracebacks"] * (tracebacks > 0)
    broken += [f"cycles {sorted(lost)} are lost"] * (bool(lost) and not fault.loses)
    broken += [f"cycles {sorted(silent)} are lost, and nothing says so"] * (len(silent) > in_log)
    broken += ["a cycle is there twice"] * (len(set(kept)) < len(kept))
    broken += ["the reader reports nothing"] * (bool(lost & reported) and not _reader_reports(folders))
    if broken:
        kept_output = f"\n{told[-2000:]}" if crashes or tracebacks > 0 else ""
        result.broken += [f"{fault.name}: {'; '.join(broken)}{kept_output}"]


def _kept(folder: Path, fault: Fault, last: dict[int, int], result: Result) -> Iterator[Cycle]:
    """Yield the cycles whose files are in the folder. Each must have its steps, and events. ``last``: process → last
    cycle, which the end of its process may have cut short."""
    for file in folder.glob(f"*{store.SUFFIX}"):
        try:
            trace = run_folder.read_stored(file)
            steps = int(trace.rows("kind", "step").sum())
            events = len(trace.to_pandas())
        except Exception as error:
            result.broken.append(f"{fault.name}: {file.name} cannot be read: {error!r}")
            continue
        assert trace.meta.recording is not None
        process, cycle = int(trace.meta.recording.partition("-")[0]), trace.meta.cycle or 0
        if cycle != last.get(process) and not (steps == RECORDED and events > steps):
            result.broken.append(f"{fault.name}: {file.name} has {events} events and {steps} steps")
        yield process, cycle


def _reported(folder: Path) -> Iterator[Cycle]:
    """Yield the cycles that are reported as missing, by the file ``INCOMPLETE`` or by pending files."""
    mark = folder / store.INCOMPLETE_MARK
    for line in mark.read_text(encoding="utf-8").splitlines() if mark.exists() else ():
        match = _LOST.match(line)
        if match is not None:
            yield int(match[1]), int(match[2])
    for cycle in store.pending(folder):
        if cycle.lost:
            yield int(cycle.recording.partition("-")[0]), cycle.cycle


def _reader_reports(folders: list[Path]) -> bool:
    for folder in folders:
        try:
            _, findings = run_folder.cycles(folder)
        except PerfkitError as error:
            if "no cycle" in str(error):
                return True
        else:
            if any(finding.code == "incomplete-run" for finding in findings):
                return True
    return False


HEAD: Final = ("fault", "runs", "cycles finished", "kept", "reported as missing", "crashes", "tracebacks")


def row(name: str, result: Result | None) -> tuple[str, ...]:
    """Return the cells of the table about one fault."""
    if result is None:
        return (name, "not possible here", *[""] * (len(HEAD) - 2))
    numbers = (result.runs, result.finished, result.kept, result.reported, result.crashes, result.tracebacks)
    return (name, *map(str, numbers))


def table(rows: list[tuple[str, ...]]) -> str:
    """Return rows as a table in Markdown."""
    rules = ("---", *["---:"] * (len(HEAD) - 1))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (HEAD, rules, *rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--framework", choices=TRAININGS, required=True)
    parser.add_argument("--runs", type=int, default=200, help="number of kills; other faults have a share of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[fault.name for fault in FAULTS], metavar="FAULT")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    broken: list[str] = []
    server = Server(options.framework)
    with tempfile.TemporaryDirectory(prefix="perfkit-faults-") as folder:
        for fault in FAULTS:
            if options.only and fault.name not in options.only:
                continue
            chance = random.Random(f"{options.seed} {fault.name}")
            runs = max(1, round(fault.share * options.runs))
            result = attack(server, fault, runs, chance, Path(folder) / fault.name.replace(" ", "-"))
            rows.append(row(fault.name, result))
            broken += result.broken if result else []
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    server.close()
    print(f"{options.framework}, seed {options.seed}:\n\n{table(rows)}\n")
    for text in broken:
        print(f"BROKEN: {text}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
