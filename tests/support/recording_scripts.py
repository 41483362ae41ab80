"""Run scripts that record with a simulated profiler as separate processes, which end in every possible way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT

PRELUDE = """
import multiprocessing, os, signal, sys, threading, time
from pathlib import Path
from tests.support.small_trace import small_trace
from perfkit_core.recording.writer import CycleWriter, DetachedCycle

def slow(profiler, place, seconds=0.3):
    def finish():
        time.sleep(seconds)
        return small_trace()
    return DetachedCycle(finish)

class Profile:
    def __init__(self, writer):
        self.writer = writer
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.writer(self)

def ready():
    print("ready", flush=True)

writer = CycleWriter(sys.argv[1], slow)
"""
"""``slow`` finishes a cycle in the background after ``seconds``. ``Profile`` gives a cycle to the writer at the end of
its block."""

SECONDS = 600
"""Time limit of a script. A script that takes longer is assumed to hang."""


def run(script: str, folder: Path, signals: Sequence[signal.Signals] = (), prelude: str = PRELUDE) -> tuple[int, str]:
    """Run a script in a new process. Return its exit code and its stderr. Each signal is sent after the script has
    printed ``ready``."""
    # makes tests.support importable, here and in processes that the script starts
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = [sys.executable, "-W", "error", "-c", path + prelude + script, str(folder)]
    environment = {**os.environ, "GLOG_minloglevel": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(SECONDS, process.kill)  # readline has no time limit
        limit.start()
        try:
            for number in signals:
                line = process.stdout.readline()
                assert line == "ready\n", (line, process.stderr and process.stderr.read())
                process.send_signal(number)
            _, told = process.communicate(timeout=SECONDS)
        finally:
            limit.cancel()
            process.kill()
    return process.returncode, told


def succeed(job: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the processes of a job, which must all succeed. None of them is left running."""
    try:
        assert [process.wait(SECONDS) for process in job] == [0] * len(job)
    finally:
        for process in job:
            process.kill()
