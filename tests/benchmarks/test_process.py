"""Memory and CPU time of a process are equal to the numbers of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rounds import run

if not Path("/proc/self/status").exists():
    pytest.skip("needs /proc, to know the peak since a moment", allow_module_level=True)

SCRIPT = """
import json, time
from benchmarks import process
gone = b"x" * (300 << 20)
del gone
process.reset_peak()
base = process.resident_bytes()
used = b"x" * (200 << 20)
del used
peak = process.peak_bytes() - base
cpu, end = process.cpu_seconds(), time.process_time() + 0.3
while time.process_time() < end:
    pass
print(json.dumps({"peak": peak, "now": process.resident_bytes() - base, "cpu": process.cpu_seconds() - cpu}))
"""


def test_the_peak_includes_memory_freed_since_its_start() -> None:
    found = run(["-c", SCRIPT])
    assert found["peak"] == pytest.approx(200 << 20, rel=0.05)
    assert found["now"] < 20 << 20
    assert found["cpu"] == pytest.approx(0.3, abs=0.1)
