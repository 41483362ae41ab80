"""Run scripts that record with a simulated profiler as separate processes, which end in every possible way.

The processes are forked from one that has imported the libraries that the recorder imports, which is most of the time
of such a script. Modules of perfkit that set signal or exit handlers are imported by each script."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
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

FRAMEWORK_MODULES = {"torch": ("torch", "torch._dynamo"), "paddle": ("paddle",)}
"""What a process imports that forks those that record with a framework. torch's profiler imports its compiler."""

FORKS = """
import gc, importlib, json, os, sys, warnings
import msgspec, numpy, pandas, pyarrow.parquet
import perfkit_core.trace.assembly.assemble
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        importlib.import_module(name)
gc.collect()
gc.freeze()
for request in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
else:
    sys.exit()
script, sys.argv[1:], environment, *pipes = json.loads(request)
os.environ.clear()
os.environ.update(environment)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, pipe in enumerate(pipes, 1):
    os.dup2(os.open(pipe, os.O_WRONLY), number)
exec(compile(script, "<string>", "exec"))
"""
"""A process that forks one for each line it reads, with named pipes as stdout and stderr. It prints the process id, and
later the status. Scripts run in the main module, so that the interpreter ends as usual. Its collections leave out what
was imported before: they would copy all memory, in half of the time of a short script."""


@functools.cache
def _forks(*modules: str) -> subprocess.Popen[str]:
    """Return the process FORKS, which imports more modules. It is started at the first call."""
    command = [sys.executable, "-W", "error", "-c", FORKS, *modules]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.__exit__, None, None, None)  # closes the pipes
    atexit.register(process.kill)  # called first
    return process


def run(
    script: str,
    folder: Path,
    signals: Sequence[signal.Signals] = (),
    prelude: str = PRELUDE,
    modules: Sequence[str] = (),
) -> tuple[int, str]:
    """Run a script in a new process. Return its exit code and its stderr. Each signal is sent after the script has
    printed ``ready``. ``modules`` are imported once for all scripts."""
    # makes tests.support importable, here and in processes that the script starts
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    environment = {**os.environ, "GLOG_minloglevel": "1"}
    forks = _forks(*modules)
    assert forks.stdin is not None
    assert forks.stdout is not None
    with tempfile.TemporaryDirectory() as pipes:
        out, err = Path(pipes, "out"), Path(pipes, "err")
        for pipe in (out, err):
            os.mkfifo(pipe)
        request = [path + prelude + script, [str(folder)], environment, str(out), str(err)]
        print(json.dumps(request), file=forks.stdin, flush=True)
        child = int(forks.stdout.readline())
        limit = threading.Timer(SECONDS, os.kill, (child, signal.SIGKILL))  # readline has no time limit
        limit.start()
        try:
            with out.open() as stdout, err.open() as stderr:
                for number in signals:
                    line = stdout.readline()
                    assert line == "ready\n", (line, stderr.read())
                    os.kill(child, number)
                told = stderr.read()
            return os.waitstatus_to_exitcode(int(forks.stdout.readline())), told
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            limit.cancel()


def succeed(job: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the processes of a job, which must all succeed. None of them is left running."""
    try:
        assert [process.wait(SECONDS) for process in job] == [0] * len(job)
    finally:
        for process in job:
            process.kill()
