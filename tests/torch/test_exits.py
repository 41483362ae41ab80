"""No cycle is lost if a torch script is ended within a step, or forks loader processes while a cycle is written."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from perfkit_core.model.trace import Trace
from perfkit_core.readers.load import load
from tests.support.recording_scripts import run

pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

PRELUDE = """
import os, sys, time, warnings
warnings.simplefilter("default")  # torch emits warnings
import torch
from perfkit_torch import trace_handler

def ready():
    print("ready", flush=True)

def steps(profiler, count):
    for step in range(count):
        torch.ones(8, 8).matmul(torch.ones(8, 8))
        profiler.step()

handler = trace_handler(sys.argv[1])
"""


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


@pytest.mark.parametrize(
    ("end", "code", "signals", "stacks"),
    [
        ("ready(); time.sleep(99)", 128 + signal.SIGTERM, [signal.SIGTERM], False),
        ("ready(); time.sleep(99)", 128 + signal.SIGTERM, [signal.SIGTERM], True),
        ("1 / 0", 1, [], False),
        ("pass", 0, [], False),
    ],
)
def test_every_end_keeps_the_cycles(
    end: str, code: int, signals: list[signal.Signals], stacks: bool, tmp_path: Path
) -> None:
    """The steps before the end are kept, with stacks and without stacks. With stacks, cycles are written in the
    foreground."""
    script = f"""
schedule = lambda step: torch.profiler.ProfilerAction.RECORD
with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, with_stack={stacks}) as profiler:
    steps(profiler, 3)
    {end}
"""
    returned, told = run(script, tmp_path, signals, PRELUDE)
    assert returned == code, told
    assert steps_of(load(tmp_path)) == [0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("warmup", [0, 1])
def test_a_signal_while_torch_goes_on_to_the_next_cycle(warmup: int, number: signal.Signals, tmp_path: Path) -> None:
    """Without the delay, the ``with`` block would stop a profiler that is not running, which crashes the process."""
    script = f"""
import signal
cycles = iter((None, lambda: os.kill(os.getpid(), {number})))
handler._also = (lambda profiler: (next(cycles, None) or int)(),)
schedule = torch.profiler.schedule(wait=0, warmup={warmup}, active=2)
try:
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        steps(profiler, 99)
except KeyboardInterrupt:
    sys.exit(5)
"""
    code, told = run(script, tmp_path, prelude=PRELUDE)
    assert code == (5 if number == signal.SIGINT else 128 + number), told
    assert steps_of(load(tmp_path))[:4] == ([1, 2, 4, 5] if warmup else [0, 1, 2, 3])


def test_loaders_that_fork_while_a_cycle_is_written(tmp_path: Path) -> None:
    """The loader processes inherit the handler. They must neither hang nor write."""
    script = """
import multiprocessing
multiprocessing.set_start_method("fork", force=True)
import torch.utils.data
data = torch.utils.data.TensorDataset(torch.arange(64.0))
schedule = torch.profiler.schedule(wait=0, warmup=1, active=2)
with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
    for epoch in range(3):
        for batch, in torch.utils.data.DataLoader(data, batch_size=32, num_workers=2):
            batch.sum()
            profiler.step()
"""
    code, told = run(script, tmp_path, prelude=PRELUDE)
    assert code == 0, told
    assert len(list(tmp_path.iterdir())) == 2
    assert steps_of(load(tmp_path)) == [1, 2, 4, 5]
