"""A job of several ranks for ``paddle.distributed.launch``: ``paddle_job.py RUN_DIR``. It records the steps 2 to 4,
and what it is asked for, and trains until the file ``stop`` appears in the run folder."""

import sys
from pathlib import Path

import paddle
import paddle.distributed as dist

import perfkit.paddle

run_dir = Path(sys.argv[1])
dist.init_parallel_env()
layer = paddle.nn.Linear(4, 4)
optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
handler = perfkit.paddle.trace_handler(run_dir, on_demand=True)
with (
    perfkit.paddle.annotate_collectives(),
    paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU],
        scheduler=perfkit.paddle.make_scheduler(closed=1, ready=1, record=3, repeat=1, on_demand=handler),
        on_trace_ready=handler,
    ) as profiler,
):
    stop = paddle.zeros([1])
    while not stop:
        layer(paddle.ones([2, 4])).sum().backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.clear_grad()
        if dist.get_rank() == 0:
            stop += float((run_dir / "stop").exists())
        dist.broadcast(stop, 0)
        profiler.step()
