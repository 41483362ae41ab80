"""Workers that return free memory to the system immediately keep the memory while they reduce ranks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
from perfkit_core.ranks import run as heap

import numpy as np

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
with heap.keeping_freed_memory():
    faults()
    print(faults())
print(faults())
"""
PAGES = 50 * (1 << 20) // 4096
"""Number of pages of 50 arrays of 1 MB."""


def faults(**settings: str) -> list[int]:
    """Return the page faults of 50 arrays: before the block, in the block, and after the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | settings
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert done.stderr == ""
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_memory_is_kept_in_the_block_only() -> None:
    before, inside, behind = faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert inside < PAGES / 10
    assert min(before, behind) > PAGES / 2


@pytest.mark.parametrize("told", ["", "a lot", "-1"])
def test_processes_without_such_a_setting_are_left_alone(told: str) -> None:
    before, inside, behind = faults(**({"MALLOC_TRIM_THRESHOLD_": told} if told else {}))
    assert max(before, inside, behind) < PAGES * 1.5


def test_another_malloc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    from perfkit_core.ranks import run

    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with run.keeping_freed_memory():
        pass
