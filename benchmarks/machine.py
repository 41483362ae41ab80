"""Describe the machine of a measurement, and the versions of the measured programs."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "perfkit", "numpy", "pyarrow", "pandas", "msgspec", "isal", "torch", "paddlepaddle", "distributed",
    "HolisticTraceAnalysis", "orjson", "duckdb", "polars", "pysimdjson",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and date of a measurement. ``load`` is the one-minute load average before the benchmarks, or None."""

    date: str
    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    load: float | None
    libraries: dict[str, str]


def machine() -> Machine:
    """Return the current machine and date."""
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        libraries={name: version for name in LIBRARIES if (version := _version(name))},
    )


def sentence(found: Machine) -> str:
    """Describe the machine in one sentence."""
    load = "" if found.load is None else f"; load average at the start: {found.load:g}"
    memory = f"{found.memory_bytes / 2**30:.0f} GiB"
    return f"{found.date}, {found.cores} cores of {found.cpu}, {memory}, {found.system}, {found.python}{load}."


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "an unknown CPU"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "an unknown CPU")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
