"""Jobs of several ranks on this machine, started by the launcher of a framework."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.recording.capture import Accepted, CaptureClient
from tests.support.recording_scripts import SECONDS

RANKS = 2


@contextlib.contextmanager
def running(launcher: Sequence[str], script: Path, run_dir: Path) -> Iterator[None]:
    """Run a job until the block ends. Its script trains until the file ``stop`` appears. The job must succeed."""
    log = run_dir.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *launcher, str(script), str(run_dir)], stdout=output, stderr=output, cwd=log.parent
        )
        try:
            end = time.monotonic() + SECONDS
            while len(list(run_dir.glob(".capture/*.perfkit"))) < RANKS or not list(run_dir.glob("*.parquet")):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield
            (run_dir / "stop").touch()
            assert process.wait(SECONDS) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def check_all_ranks_record_together(launcher: Sequence[str], script: Path, run_dir: Path, all_reduces: int) -> None:
    """Capture 3 steps of a job by its run folder, and 2 steps by the process id of one rank. The job has also a planned
    window of 3 steps. All windows have the same steps on all ranks, and the summary shows all ranks and their
    collectives: in each step, ``all_reduces`` and one broadcast."""
    chosen = [2, 3, 4]
    with running(launcher, script, run_dir):
        accepted = _check_capture(str(run_dir), 3)
        chosen += range(accepted.first, accepted.last + 1)
        accepted = _check_capture(str(accepted.processes[1][1]), 2)
        chosen += range(accepted.first, accepted.last + 1)
    assert len(list(run_dir.glob("*.parquet"))) == 3 * RANKS
    trace = load(run_dir)
    assert (trace.meta.ranks, trace.meta.world_size) == (tuple(range(RANKS)), RANKS)
    steps = summarize(run_dir, "steps")
    assert steps.groupby("rank")["step"].apply(list).to_dict() == dict.fromkeys(range(RANKS), chosen)
    calls = summarize(run_dir, "collectives").groupby("collective")["calls"].sum().to_dict()
    assert calls == {"all_reduce": len(chosen) * RANKS * all_reduces, "broadcast": len(chosen) * RANKS}


def _check_capture(target: str, steps: int) -> Accepted:
    with CaptureClient(target, SECONDS) as request:
        accepted = request.ask(steps)
        assert len(accepted.processes) == RANKS
        recorded = request.wait(accepted, lambda text: None)
    assert [one.error for one in recorded] == [None] * RANKS
    assert sorted(one.rank for one in recorded if one.rank is not None) == list(range(RANKS))
    assert {one.steps for one in recorded} == {(accepted.first, accepted.last)}
    return accepted
