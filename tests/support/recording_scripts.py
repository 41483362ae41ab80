"""Run scripts that record with a simulated profiler as separate processes, which end in every possible way.

The processes are forked from one that has imported the libraries that the recorder imports, which is most of the time
of such a script. perfkit itself is imported by each script."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
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


FORKS = """
import json, os, socket, sys
import msgspec, numpy, pandas, pyarrow.parquet
with socket.socket(fileno=int(sys.argv[1])) as requests:
    while True:
        content, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not content:
            sys.exit()
        child = os.fork()
        if not child:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(b"%d\\n" % child)
        requests.sendall(b"%d\\n" % os.waitpid(child, 0)[1])
for descriptor, standard in zip(descriptors, (1, 2)):
    os.dup2(descriptor, standard)
    os.close(descriptor)
script, sys.argv[1:], environment = json.loads(content)
os.environ.clear()
os.environ.update(environment)
exec(compile(script, "<string>", "exec"))
"""
"""A process that forks one for each script it receives, with the descriptors of its stdout and stderr. It answers with
the process id, and later with the status. Scripts run in the main module, so that the interpreter ends as usual."""


@functools.cache
def _forks() -> socket.socket:
    """Return the connection to the process FORKS, which is started at the first call."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-W", "error", "-c", FORKS, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(process.kill)  # called first
    return ours


def run(script: str, folder: Path, signals: Sequence[signal.Signals] = (), prelude: str = PRELUDE) -> tuple[int, str]:
    """Run a script in a new process. Return its exit code and its stderr. Each signal is sent after the script has
    printed ``ready``."""
    # makes tests.support importable, here and in processes that the script starts
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    environment = {**os.environ, "GLOG_minloglevel": "1"}
    content = json.dumps([path + prelude + script, [str(folder)], environment]).encode()
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    socket.send_fds(_forks(), [content], [out_end, err_end])
    os.close(out_end)
    os.close(err_end)
    answers = _forks().makefile()
    child = int(answers.readline())
    limit = threading.Timer(SECONDS, os.kill, (child, signal.SIGKILL))  # readline has no time limit
    limit.start()
    try:
        with os.fdopen(out) as stdout, os.fdopen(err) as stderr:
            for number in signals:
                line = stdout.readline()
                assert line == "ready\n", (line, stderr.read())
                os.kill(child, number)
            told = stderr.read()
        return os.waitstatus_to_exitcode(int(answers.readline())), told
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
