"""Tests that the description of the machine is equal to what the system reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.base.system.machine import cpu_model, processor_ticks, this_machine, usable_cpus


def test_threads_are_what_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    threads = this_machine().threads
    assert threads["OMP_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_only_the_processors_that_may_be_used_count() -> None:
    one = min(usable_cpus())
    code = f"import os; os.sched_setaffinity(0, [{one}]); from perfkit_core.base.system.machine import usable_cpus; "
    code += "print(usable_cpus())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == f"({one},)"


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="this system has no /proc/cpuinfo")
def test_the_processor_has_a_model_name() -> None:
    assert cpu_model() in Path("/proc/cpuinfo").read_text(encoding="utf-8")


def test_the_ticks_of_the_processors_are_those_of_psutil() -> None:
    psutil = pytest.importorskip("psutil")

    def native() -> tuple[int, int]:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        ticks = os.sysconf("SC_CLK_TCK")
        return round(busy * ticks), round((busy + times.idle + times.iowait) * ticks)

    before, ours, after = native(), processor_ticks(), native()
    assert before[0] <= ours[0] <= after[0]
    assert before[1] <= ours[1] <= after[1]
