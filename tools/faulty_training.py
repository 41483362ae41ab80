"""The trainings that ``tools/faults.py`` attacks: ``python tools/faulty_training.py torch|paddle``.

The process imports the framework once. For each job, a line of JSON on its standard input, it forks the trainings,
prints their process ids, waits for them, and prints their exit statuses. A training writes a line with its process id
and the number of the cycle into the log of the job when perfkit begins to take a cycle. A job has these fields:

- ``run_dir``, ``log``, ``errors``: the run folder, the log, and the file for the output of the trainings.
- ``trainings``, ``cycles``: how many trainings run at the same time, and how many cycles each of them records.
- ``end``: how a training ends.
- ``fault``: what happens to it meanwhile, or "".
- ``seed``: seed of the moments at which it happens.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PERIOD: Final = 4
"""Steps of a cycle: one without the profiler, one of warm-up, and two that are recorded."""
RECORDED: Final = 2
FILE_BYTES: Final = 4_000
"""Largest file under the fault "limit". Files of cycles are larger."""

SLOW_IMPORTS: Final = {
    "torch": ("torch", "torch._inductor", "perfkit_torch.layers"), "paddle": ("paddle", "perfkit_paddle.layers")
}  # fmt: skip
"""Modules that a training imports when its profiler starts, or when it takes a cycle."""

Job = dict[str, Any]


def torch_training(run_dir: str) -> tuple[Any, Any, Callable[[], Any]]:
    import torch

    from perfkit_torch import trace_handler

    handler = trace_handler(run_dir)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=RECORDED)
    model = torch.nn.Linear(16, 16)
    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=handler)
    return handler, profiler, lambda: model(torch.ones(4, 16)).sum().backward()


def paddle_training(run_dir: str) -> tuple[Any, Any, Callable[[], Any]]:
    import paddle

    from perfkit_paddle import trace_handler

    handler = trace_handler(run_dir)
    scheduler = paddle.profiler.make_scheduler(closed=1, ready=1, record=RECORDED)
    model = paddle.nn.Linear(16, 16)
    profiler = paddle.profiler.Profiler(scheduler=scheduler, on_trace_ready=handler)
    return handler, profiler, lambda: model(paddle.ones([4, 16])).sum().backward()


TRAININGS: Final = {"torch": torch_training, "paddle": paddle_training}


def train(framework: str, job: Job) -> None:
    """Run one training, and end as the job says."""
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND)
    chance = random.Random(f"{job['seed']} {os.getpid() if job['trainings'] > 1 else ''}")
    if job["fault"] == "clock":
        time.time_ns = _jumping(time.time_ns, chance)
    handler, profiler, step = TRAININGS[framework](job["run_dir"])
    take = handler._take

    def logged(*arguments: Any) -> Any:
        os.write(log, f"{os.getpid()} {handler._cycle - 1}\n".encode())
        return take(*arguments)

    handler._take = logged
    if job["end"] == "left running":
        profiler.start()
    steps = PERIOD * job["cycles"] + 3  # ends within a cycle
    fault_at = chance.randrange(PERIOD, steps)

    def loop() -> None:
        os.write(log, b"begins\n")
        for number in range(steps):
            if number == fault_at:
                happens(job, framework)
            step()
            profiler.step()
        end(job["end"])

    try:
        if job["end"] == "left running":
            loop()
        else:
            with profiler:
                loop()
    except KeyboardInterrupt:
        if job["end"] != "caught":
            raise
        sys.exit(5)


def happens(job: Job, framework: str) -> None:
    """Let the fault of the job happen, in the training's thread."""
    fault, run_dir = job["fault"], Path(job["run_dir"])
    if fault == "vanishes":
        run_dir.rename(f"{run_dir}.gone")
    elif fault == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))
    elif fault == "fork":
        child = os.fork()
        if not child:
            os._exit(0)  # as the processes of a data loader; torch alone hangs if its profiler is stopped here
        os.waitpid(child, 0)
    elif fault == "spawn":
        other = {**job, "fault": "", "end": "return", "cycles": 2, "trainings": 1}
        process = multiprocessing.get_context("spawn").Process(target=train, args=(framework, other))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"the spawned process ended with {process.exitcode}")


def end(how: str) -> None:
    """End the training in the body of its loop. Return if it ends by itself."""
    if how in ("exception", "left running"):
        raise ArithmeticError("the training fails")
    if how == "sys.exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(3)
    if how == "abort":
        os.abort()


def _jumping(clock: Callable[[], int], chance: random.Random) -> Callable[[], int]:
    """Return a clock in ns that is wrong by up to a day each time."""
    return lambda: clock() + chance.randint(-86_400, 86_400) * 1_000_000_000


def _default_signals() -> None:
    """Restore the default handlers. A process that a shell runs in the background, or ``nohup``, ignores some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _output_to(path: str) -> None:
    sys.stdout.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)


def serve(framework: str) -> None:
    """Fork the trainings of each job. In them, this function returns when the training has ended."""
    for name in (f"perfkit_{framework}.on_trace_ready", *SLOW_IMPORTS[framework]):
        importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        job, children = json.loads(line), []
        for _ in range(job["trainings"]):
            child = os.fork()
            if not child:
                _output_to(job["errors"])
                _default_signals()
                train(framework, job)
                return
            children.append(child)
        print(json.dumps(children), flush=True)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
