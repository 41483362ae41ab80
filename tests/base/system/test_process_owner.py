"""Tests of the process that a file belongs to: whether it has ended, and which temporary files are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.base.system import processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

WAITING = """
import sys
from pathlib import Path
from perfkit_core.base.system import paths, processes
with paths.replacing(Path(sys.argv[1])) as file:
    file.touch()
    print(processes.owner(), flush=True)
    sys.stdin.read()
"""


def test_a_process_that_was_killed_has_ended_and_its_temporary_file_is_removed(tmp_path: Path) -> None:
    """Files of living processes stay. A file of a dead process whose number another process has is removed."""
    pid, start, machine = processes.owner().split("-")
    others = [
        f".a.{pid}-{start}-{machine}.0123abcd.tmp",
        f".a.{pid}-{start}-ffffffff.0123abcd.tmp",
        ".a.b.tmp",
        "a.tmp",
    ]
    reused = f".a.{pid}-1-{machine}.0123abcd.tmp"
    for name in (*others, reused):
        (tmp_path / name).touch()
    command = [sys.executable, "-c", WAITING, str(tmp_path / "b")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = process.stdout.readline().strip()
        (temporary,) = (path.name for path in tmp_path.iterdir() if path.name.startswith(".b."))
        assert processes.has_ended(child) is False
        processes.remove_stale(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, temporary])
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.has_ended(child) is True  # a zombie, because its parent has not waited for it
        process.wait()
    assert processes.has_ended(child) is True
    processes.remove_stale(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_processes_of_other_machines_are_unknown() -> None:
    pid, start, _ = processes.owner().split("-")
    assert processes.has_ended(processes.owner()) is False
    assert processes.has_ended(f"{pid}-{start}-00000000") is None
    assert processes.has_ended("not an owner") is None


def test_a_forked_child_is_another_process() -> None:
    mine = processes.owner()
    child = os.fork()
    if not child:
        os._exit(processes.owner() == mine)
    assert os.waitpid(child, 0)[1] == 0


def test_a_line_that_does_not_fit_is_not_written_in_part(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from perfkit_core.base.system import paths
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (12, 12))
paths.append_line(Path(sys.argv[1]), b"123456789")
try:
    paths.append_line(Path(sys.argv[1]), b"abcdefghi")
except OSError as error:
    assert error.strerror
else:
    sys.exit("no error")
"""
    file = tmp_path / "lines"
    assert subprocess.run([sys.executable, "-c", script, str(file)], check=False).returncode == 0
    assert file.read_bytes() == b"123456789\n"
