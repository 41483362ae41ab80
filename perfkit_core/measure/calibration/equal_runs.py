"""How much equal runs differ on this machine: stored measurements, one JSON record per line.

``perfkit calibrate --noise`` and ``perfkit verify`` add records. ``perfkit compare`` uses them for single captures of
the same machine and framework. Steps with and without device work are kept apart. Unreadable lines are skipped."""

from __future__ import annotations

import contextlib
import datetime
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from perfkit_core.base.system import machine, paths
from perfkit_core.base.system.outside_text import decode_json, read_file
from perfkit_core.errors import UsageError
from perfkit_core.measure.calibration.calibrate import folder
from perfkit_core.trace.model.meta import TraceMeta

Kind = Literal["host", "device"]
HOST: Final[Kind] = "host"
DEVICE: Final[Kind] = "device"
FORMAT: Final = 1
NEWEST: Final = 10
"""Number of records that count. Older ones may show another state of the machine."""
MOMENT_NS: Final = 500_000_000
"""If all steps of a run take less than this in total, equal runs differ more. Disturbances on a host (other processes,
memory, clocks) last tenths of a second, so a short run shows only one state of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRuns:
    """Equal runs of one command, each in a new process. ``median_ns`` is the median step of each run without a
    profiler, and ``steps`` the number of steps of a run. ``kind`` is "device" if a device timed the steps."""

    format: int = FORMAT
    date: str
    command: str
    hostname: str
    cpu: str
    framework: str
    kind: Kind
    steps: int
    median_ns: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """Relative standard deviation of the median step, computed from logarithms."""
        return float(np.log(self.median_ns).std(ddof=1))

    @property
    def valid(self) -> bool:
        return self.format == FORMAT and len(self.median_ns) > 1 and min(self.median_ns) > 0 and self.steps > 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The pooled ``ratio`` of several records, its degrees of freedom, and the number of runs."""

    ratio: float
    freedom: int
    runs: int


def file() -> Path:
    return folder() / "equal-runs.jsonl"


def store(command: str, framework: str, kind: Kind, steps: int, median_ns: Sequence[float]) -> EqualRuns:
    """Append a record of runs on this machine, and return it. Raises UsageError if writing fails."""
    import msgspec

    record = EqualRuns(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), command=command,
        hostname=socket.gethostname(), cpu=machine.cpu_model(), framework=framework, kind=kind, steps=steps,
        median_ns=tuple(map(round, median_ns)),
    )  # fmt: skip
    try:
        paths.append_line(file(), msgspec.json.encode(record))
    except OSError as error:
        raise UsageError(f"{file()}: cannot be written ({error.strerror})", "set XDG_CACHE_HOME") from None
    return record


def stored() -> list[EqualRuns]:
    """Return the records of this machine, the newest first."""
    try:
        lines = read_file(file()).splitlines()
    except (OSError, ValueError):
        return []
    records: list[EqualRuns] = []
    for line in lines:
        with contextlib.suppress(ValueError):
            records.append(decode_json(line, EqualRuns))
    here = socket.gethostname(), machine.cpu_model()
    return [record for record in reversed(records) if record.valid and (record.hostname, record.cpu) == here]


def measured(meta: TraceMeta, kind: Kind, total_ns: int) -> Measured | None:
    """Return how much recordings differ whose steps take ``total_ns`` in total, from the newest records of the machine
    and framework of a recording. Return None for a recording of another machine, and without records."""
    if not machine.is_this_host(meta.hostname):
        return None
    records = [record for record in stored() if (record.framework, record.kind) == (meta.framework, kind)]
    return pooled(records[:NEWEST], total_ns)


def pooled(records: Sequence[EqualRuns], total_ns: int) -> Measured | None:
    """Return how much recordings differ whose steps take ``total_ns`` in total. ``records`` are of one kind. Return
    None without records."""
    freedom = sum(len(record.median_ns) - 1 for record in records)
    if not freedom:
        return None
    squares = 0.0
    for record in records:
        run_ns = record.steps * float(np.median(record.median_ns))
        longer = short(total_ns, min(MOMENT_NS, run_ns)) if record.kind == HOST else 1.0
        squares += (len(record.median_ns) - 1) * (record.ratio * longer) ** 2
    return Measured(math.sqrt(squares / freedom), freedom, freedom + len(records))


def short(total_ns: int, moment_ns: float) -> float:
    """Return the factor by which the deviation on the host is larger if all steps take less than ``moment_ns``."""
    return max(1.0, math.sqrt(moment_ns / total_ns)) if total_ns else 1.0
