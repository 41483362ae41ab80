"""Tests of running commands as new processes: how they fail, and that none of their processes is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfkit_core.errors import CaptureError
from perfkit_core.measure.verify.runs import run
from tests.support.processes import gone

PYTHON = f"'{sys.executable}' -S"


def test_the_shell_runs_it(tmp_path: Path) -> None:
    finished = run(f"cd '{tmp_path}' && echo $WORD; pwd; echo err >&2", {**os.environ, "WORD": "one"})
    assert finished.out.split() == ["one", str(tmp_path)]
    assert finished.err == "err\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "echo out; echo first >&2; echo last >&2; exit 3",
            r"failed with exit code 3: last; run the command by itself",
        ),
        ("echo only out; exit 4", "failed with exit code 4: only out"),
        ("exit 5", "failed with exit code 5: it printed nothing"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("sh -c 'kill -9 $$'", "was ended by SIGKILL"),
        ("no-such-command-anywhere", "failed with exit code 127: .*not found"),
    ],
)
def test_failures_are_one_line(command: str, told: str) -> None:
    with pytest.raises(CaptureError, match=told) as failure:
        run(command, os.environ)
    assert "\n" not in str(failure.value)


def test_what_runs_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="still runs after 3 s"):
        run(f"sleep 60 & echo $! > '{tmp_path}/pid'; sleep 60", os.environ, timeout=3)
    assert gone(int((tmp_path / "pid").read_text(encoding="utf-8")))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look for processes")
def test_processes_that_a_command_leaves_running_are_ended() -> None:
    """The process that is left behind keeps the output open. This must not delay the result either."""
    finished = run("sleep 60 & echo $!", os.environ)
    assert gone(int(finished.out))


VERIFYING = """
import os, signal, sys
from perfkit_core.base.system.processes import ended_by_signals
from perfkit_core.measure.verify.runs import run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, for example, ignores this signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores this signal in background jobs
with ended_by_signals():
    run(sys.argv[1], os.environ)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look for processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals_leave_no_processes(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "pids"
    command = f"trap '' INT; sleep 60 & echo $! $$ > '{file}.new'; mv '{file}.new' '{file}'; wait"
    verifying = subprocess.Popen([sys.executable, "-c", VERIFYING, command], stderr=subprocess.DEVNULL)
    while not file.exists():
        assert verifying.poll() is None
        time.sleep(0.01)
    verifying.send_signal(number)
    assert verifying.wait(120) != 0
    assert all(gone(int(pid)) for pid in file.read_text(encoding="utf-8").split())


STARTING = """
import subprocess
Popen = subprocess.Popen
class Interrupted(subprocess.Popen):
    def _execute_child(self, *arguments, **options):
        super()._execute_child(*arguments, **options)
        print(self.pid, flush=True)
        signal.raise_signal(int(sys.argv[2]))
        subprocess.Popen = Popen
subprocess.Popen = Interrupted
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look for processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_a_process_starts_leaves_none(number: signal.Signals) -> None:
    """The signal arrives when the command already runs, but its process id is not known yet."""
    script = VERIFYING.replace("with ended", STARTING + "with ended")
    command = [sys.executable, "-c", script, "trap '' INT; sleep 600", str(int(number))]
    verifying = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=600)
    assert verifying.returncode != 0
    assert gone(int(verifying.stdout))
