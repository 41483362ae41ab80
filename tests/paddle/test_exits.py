"""No cycle is lost if a Paddle script is ended within a step, or forks loader processes while a cycle is written."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.recording_scripts import run

pytest.importorskip("paddle", reason="needs Paddle: pip install 'perfkit[paddle]'")

PRELUDE = """
import os, sys, time, warnings
warnings.simplefilter("default")  # Paddle emits warnings
import paddle
from perfkit_paddle import trace_handler

def ready():
    print("ready", file=sys.__stdout__, flush=True)

def steps(profiler, count):
    for step in range(count):
        paddle.ones([8, 8]).matmul(paddle.ones([8, 8]))
        profiler.step()

sys.stdout = open(os.devnull, "w")  # Paddle prints a summary
handler = trace_handler(sys.argv[1])
"""


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


@pytest.mark.parametrize(
    ("end", "code", "signals"),
    [
        ("ready(); time.sleep(99)", 128 + signal.SIGTERM, [signal.SIGTERM]),
        ("1 / 0", 1, []),
        ("pass", 0, []),
    ],
)
def test_every_end_keeps_the_cycles(end: str, code: int, signals: list[signal.Signals], tmp_path: Path) -> None:
    script = f"""
with paddle.profiler.Profiler(on_trace_ready=handler) as profiler:
    steps(profiler, 3)
    {end}
"""
    returned, told = run(script, tmp_path, signals, PRELUDE)
    assert returned == code, told
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]


def test_loaders_that_fork_while_a_cycle_is_written(tmp_path: Path) -> None:
    """The loader processes inherit the handler. They must neither hang nor write."""
    script = """
class Numbers(paddle.io.Dataset):
    def __getitem__(self, index):
        return float(index)
    def __len__(self):
        return 64

schedule = paddle.profiler.make_scheduler(closed=0, ready=1, record=2)
with paddle.profiler.Profiler(scheduler=schedule, on_trace_ready=handler) as profiler:
    for epoch in range(3):
        for batch in paddle.io.DataLoader(Numbers(), batch_size=32, num_workers=2):
            batch.sum()
            profiler.step()
"""
    code, told = run(script, tmp_path, prelude=PRELUDE)
    assert code == 0, told
    assert len(list(tmp_path.iterdir())) == 2
    assert steps_of(load(tmp_path)) == [1, 2, 4, 5]


@pytest.mark.parametrize("end", ["1 / 0", "sys.exit(1)"])
def test_a_profiler_that_is_left_running_delivers_its_cycle(end: str, tmp_path: Path) -> None:
    """Without the stop at the end of the process, the open cycle is lost."""
    script = f"""
profiler = paddle.profiler.Profiler(on_trace_ready=handler)
profiler.start()
steps(profiler, 3)
{end}
"""
    code, told = run(script, tmp_path, prelude=PRELUDE)
    assert code == 1, told
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]


def test_the_death_of_a_loader_process_reaches_the_training(tmp_path: Path) -> None:
    """The process dies while a cycle is taken, so that Paddle's handler of SIGCHLD would raise in perfkit's code, which
    logs errors. The cycle is kept."""
    script = """
import signal
class Numbers(paddle.io.Dataset):
    def __getitem__(self, index):
        return float(index)
    def __len__(self):
        return 64
take = handler._take
def killing(profiler, place):
    taken = take(profiler, place)
    worker = iterator._workers[0]
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    return taken
handler._take = killing
profiler = paddle.profiler.Profiler(on_trace_ready=handler)
profiler.start()
iterator = iter(paddle.io.DataLoader(Numbers(), batch_size=2, num_workers=1))
next(iterator)
try:
    steps(profiler, 3)
    profiler.stop()
    print("not reached", file=sys.stderr)
except SystemError as error:
    print("reached", error, file=sys.stderr)
"""
    code, told = run(script, tmp_path, prelude=PRELUDE)
    assert (code, told.count("not reached"), told.count("reached")) == (0, 0, 1), told
    assert len(list(tmp_path.iterdir())) == 1
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]
