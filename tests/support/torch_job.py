"""A job of several ranks for ``torchrun``: ``torch_job.py RUN_DIR``. It records the steps 2 to 4, and what it is
asked for, and trains until the file ``stop`` appears in the run folder."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import perfkit.torch

run_dir = Path(sys.argv[1])
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handler = perfkit.torch.trace_handler(run_dir, on_demand=True)
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=perfkit.torch.schedule(wait=1, warmup=1, active=3, repeat=1, on_demand=handler),
    on_trace_ready=handler,
) as profiler:
    stop = torch.zeros(1)
    while not stop:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            stop += (run_dir / "stop").exists()
        dist.broadcast(stop, 0)
        profiler.step()
dist.destroy_process_group()
