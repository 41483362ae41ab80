"""Measure how often the gate fails although nothing changed: ``python -m benchmarks.false_alarms [--runs N]``

A small training is recorded N times for each installed framework, each time in a new process. The gate
``step_time > 3%`` then compares equal runs:

- single captures: each run with the previous run
- pooled captures: three runs with the next three runs

The benchmark also prints how much the median steps of equal processes differ.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from perfkit_core.compare.noise import on_host
from perfkit_core.compare.statistics import SLOWER, Capture, capture, step_statistics
from perfkit_core.readers.load import load

STEPS: Final = 20
WARMUP: Final = 5
_SCRIPTS: Final = {
    "torch": f"""
import sys, torch, perfkit_torch
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
schedule = torch.profiler.schedule(wait={WARMUP - 1}, warmup=1, active={STEPS}, repeat=1)
handler = perfkit_torch.trace_handler(sys.argv[1])
with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
    for _ in range({WARMUP + STEPS + 1}):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        profiler.step()
""",
    "paddle": f"""
import sys, paddle, perfkit_paddle
model = paddle.nn.Sequential(paddle.nn.Linear(256, 512), paddle.nn.ReLU(), paddle.nn.Linear(512, 10))
optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
x, y = paddle.randn([64, 256]), paddle.randint(0, 10, [64])
handler = perfkit_paddle.trace_handler(sys.argv[1])
with paddle.profiler.Profiler(scheduler=({WARMUP}, {WARMUP + STEPS}), on_trace_ready=handler) as profiler:
    for _ in range({WARMUP + STEPS + 1}):
        paddle.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.clear_grad()
        profiler.step()
""",
}


def recorded(framework: str, runs: int, folder: Path) -> list[Capture]:
    """Return the steps of equal trainings, each recorded in a separate process."""
    found = []
    for number in range(runs):
        place = folder / framework / str(number)
        subprocess.run([sys.executable, "-c", _SCRIPTS[framework], str(place)], check=True, capture_output=True)
        found.append(capture(load(place)))
    return found


def alarms(pairs: Sequence[tuple[Sequence[Capture], Sequence[Capture]]], limit: float) -> int:
    """Return the number of pairs (base, other) for which a gate at ``limit`` fails."""
    return sum(_fails(base, other, limit) for base, other in pairs)


def _fails(base: Sequence[Capture], other: Sequence[Capture], limit: float) -> bool:
    between = max(on_host(int(one.step_ns.sum())) for one in (*base, *other))
    found = step_statistics([one.step_ns for one in base], [one.step_ns for one in other], between=between)
    return found.verdict == SLOWER and found.change_ratio is not None and found.change_ratio > limit


def report(framework: str, found: Sequence[Capture], limit: float) -> str:
    """Return the results of one framework as text."""
    middle = np.array([np.median(one.step_ns) for one in found])
    single = [([a], [b]) for a, b in itertools.pairwise(found)]
    draw = np.random.default_rng(1)
    orders = [draw.permutation(len(found))[:6] for _ in single]
    several = [([found[i] for i in some[:3]], [found[i] for i in some[3:]]) for some in orders]
    return (
        f"{framework}: {len(found)} runs of {len(found[0].step_ns)} steps; "
        f"median step {np.median(middle) / 1e6:.3f} ms, "
        f"standard deviation between processes {middle.std(ddof=1) / middle.mean():.1%}\n"
        f"  false alarms at {limit:.0%}: {alarms(single, limit)} of {len(single)} with single captures, "
        f"{alarms(several, limit)} of {len(several)} with three captures a side"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the runs and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--limit", type=float, default=3.0, help="limit of the gate in %%")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder; without this option they are removed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        for framework in filter(find_spec, _SCRIPTS):
            found = recorded(framework, given.runs, given.keep or Path(temporary))
            print(report(framework, found, given.limit / 100), flush=True)


if __name__ == "__main__":
    main()
