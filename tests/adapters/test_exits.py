"""No cycle is lost if a script is ended within a step, or forks loader processes while a cycle is written."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace

PRELUDE = {
    "torch": """
import multiprocessing, os, signal, sys, time, warnings
warnings.simplefilter("default")  # torch emits warnings
import torch
import torch.utils.data
from perfkit_torch import trace_handler
multiprocessing.set_start_method("fork", force=True)
Death = RuntimeError

def ready():
    print("ready", flush=True)

def matrix():
    return torch.ones(8, 8)

def profile(cycles=False, stacks=False):
    always = lambda step: torch.profiler.ProfilerAction.RECORD
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2) if cycles else always
    return torch.profiler.profile(schedule=schedule, on_trace_ready=handler, with_stack=stacks)

def loader(**options):
    return torch.utils.data.DataLoader(torch.arange(64.0), **options)
""",
    "paddle": """
import os, signal, sys, time, warnings
warnings.simplefilter("default")  # Paddle emits warnings
import paddle
from perfkit_paddle import trace_handler
Death = SystemError

def ready():
    print("ready", file=sys.__stdout__, flush=True)

def matrix():
    return paddle.ones([8, 8])

def profile(cycles=False, stacks=False):
    schedule = paddle.profiler.make_scheduler(closed=0, ready=1, record=2) if cycles else None
    return paddle.profiler.Profiler(scheduler=schedule, on_trace_ready=handler)

class Numbers(paddle.io.Dataset):
    def __getitem__(self, index):
        return float(index)
    def __len__(self):
        return 64

def loader(**options):
    return paddle.io.DataLoader(Numbers(), **options)

sys.stdout = open(os.devnull, "w")  # Paddle prints a summary
""",
}
STEPS = """
def steps(profiler, count):
    for step in range(count):
        matrix().matmul(matrix())
        profiler.step()

handler = trace_handler(sys.argv[1])
"""


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(framework: str, run_script: Run) -> Run:
    """Return a function that runs a script with the prelude."""
    return functools.partial(run_script, prelude=PRELUDE[framework] + STEPS)


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
    end: str, code: int, signals: list[signal.Signals], stacks: bool, framework: str, run: Run, tmp_path: Path
) -> None:
    """The steps before the end are kept, with stacks and without stacks. With stacks, torch's cycles are written in the
    foreground."""
    if stacks and framework == "paddle":
        pytest.skip("Paddle records no stacks")
    script = f"""
with profile(stacks={stacks}) as profiler:
    steps(profiler, 3)
    {end}
"""
    returned, told = run(script, tmp_path, signals)
    assert returned == code, told
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]
    assert framework == "paddle" or len(steps_of(load(tmp_path))) == 3


def test_loaders_that_fork_while_a_cycle_is_written(run: Run, tmp_path: Path) -> None:
    """The loader processes inherit the handler. They must neither hang nor write."""
    script = """
with profile(cycles=True) as profiler:
    for epoch in range(3):
        for batch in loader(batch_size=32, num_workers=2):
            batch.sum()
            profiler.step()
"""
    code, told = run(script, tmp_path)
    assert code == 0, told
    assert len(list(tmp_path.iterdir())) == 2
    assert steps_of(load(tmp_path)) == [1, 2, 4, 5]


@pytest.mark.parametrize("end", ["1 / 0", "sys.exit(1)"])
def test_a_profiler_that_is_left_running_delivers_its_cycle(end: str, run: Run, tmp_path: Path) -> None:
    """Without the stop at the end of the process, the open cycle is lost, and torch crashes."""
    script = f"""
profiler = profile()
profiler.start()
steps(profiler, 3)
{end}
"""
    code, told = run(script, tmp_path)
    assert code == 1, told
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]


def test_the_death_of_a_loader_process_reaches_the_training(run: Run, tmp_path: Path) -> None:
    """The process dies while a cycle is taken, so that the framework's handler of SIGCHLD would raise in perfkit's
    code, which logs errors. The cycle is kept."""
    script = """
take = handler._take
def killing(profiler, place):
    taken = take(profiler, place)
    worker = iterator._workers[0]
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    return taken
handler._take = killing
profiler = profile()
profiler.start()
iterator = iter(loader(batch_size=2, num_workers=1))
next(iterator)
try:
    steps(profiler, 3)
    profiler.stop()
    print("not reached", file=sys.stderr)
except Death as error:
    print("reached", error, file=sys.stderr)
"""
    code, told = run(script, tmp_path)
    assert (code, told.count("not reached"), told.count("reached")) == (0, 0, 1), told
    assert len(list(tmp_path.iterdir())) == 1
    assert steps_of(load(tmp_path))[:3] == [0, 1, 2]


@pytest.mark.parametrize("framework", ["torch"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("warmup", [0, 1])
def test_a_signal_while_torch_goes_on_to_the_next_cycle(
    warmup: int, number: signal.Signals, run: Run, tmp_path: Path
) -> None:
    """Without the delay, the ``with`` block would stop a profiler that is not running, which crashes the process."""
    script = f"""
cycles = iter((None, lambda: os.kill(os.getpid(), {number})))
handler._also = (lambda profiler: (next(cycles, None) or int)(),)
schedule = torch.profiler.schedule(wait=0, warmup={warmup}, active=2)
try:
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        steps(profiler, 99)
except KeyboardInterrupt:
    sys.exit(5)
"""
    code, told = run(script, tmp_path)
    assert code == (5 if number == signal.SIGINT else 128 + number), told
    assert steps_of(load(tmp_path))[:4] == ([1, 2, 4, 5] if warmup else [0, 1, 2, 3])
