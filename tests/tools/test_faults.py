"""A few runs of ``tools/faults.py``, which attacks real trainings: what it promises holds, and it notices if not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TOOL = ROOT / "tools" / "faults.py"
ONLY = ("kill -9", "SIGINT, caught", "os._exit", "vanishing folder")


@pytest.mark.live
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_faults_lose_no_cycle_silently(framework: str) -> None:
    pytest.importorskip(framework)
    only = [argument for name in ONLY for argument in ("--only", name)]
    command = [sys.executable, str(TOOL), "--framework", framework, "--runs", "2", *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0] for row in rows] == list(ONLY)
    assert all(int(row[2]) == int(row[3]) + int(row[4]) for row in rows)
    assert all(row[5:] == ["0", "0"] for row in rows)


def test_broken_promises_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cycle that nothing names, a damaged file, a crash and a traceback."""
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import faults

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank--cycle00001-host-1-0123456789ab.perfkit.parquet").write_bytes(b"PAR1")
    (tmp_path / "log").write_text("begins\n1 0\n1 1\n", encoding="ascii")
    (tmp_path / "errors").write_text("Traceback (most recent call last)", encoding="ascii")
    result = faults.Result()
    faults._check(faults.Fault("end of the script"), tmp_path, tmp_path / "run", [-11], result)
    damaged, rest = result.broken
    assert "cannot be read" in damaged
    assert "exit status -11, not 0; 1 tracebacks; cycles [(1, 0), (1, 1)] are lost; " in rest
    assert "cycles [(1, 0), (1, 1)] are lost, and nothing says so" in rest
