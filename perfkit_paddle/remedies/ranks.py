"""Rules 31 to 34: several devices that wait for each other."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "exposed-communication",
        code("""
            model = paddle.DataParallel(model, comm_buffer_size=50, last_comm_buffer_size=1)
        """),
        "paddle.DataParallel(comm_buffer_size=, last_comm_buffer_size=)",
        note="In MB; try 10 to 200: small buffers begin early, large ones use the bandwidth. "
        "find_unused_parameters=False (the default) saves a walk over the graph. Fleet: "
        "DistributedStrategy().fuse_grad_size_in_MB.",
    ),
    Remedy(
        "data-parallel",
        code("""
            paddle.distributed.init_parallel_env()  # python -m paddle.distributed.launch train.py
            model = paddle.DataParallel(model)
            sampler = paddle.io.DistributedBatchSampler(dataset, batch_size=batch_size, shuffle=True)
            loader = paddle.io.DataLoader(dataset, batch_sampler=sampler)
        """),
        "paddle.DataParallel, paddle.distributed.launch",
        note="paddle.DataParallel is one process a device already. Several devices in one process came from "
        "CompiledProgram.with_data_parallel, which Paddle 2.6 no longer has.",
    ),
    Remedy(
        "accumulation-sync",
        code("""
            import contextlib

            for step, batch in enumerate(loader):
                last = step % accumulate == accumulate - 1
                with contextlib.nullcontext() if last else model.no_sync():  # all-reduce with the last only
                    (compute_loss(batch) / accumulate).backward()
                if last:
                    optimizer.step()
                    optimizer.clear_grad()
        """),
        "paddle.DataParallel.no_sync",
        note="Fleet: DistributedStrategy().gradient_merge, or accumulate_steps of the pipeline.",
    ),
    Remedy(
        "rank-skew",
        code("""
            sampler = paddle.io.DistributedBatchSampler(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
            loader = paddle.io.DataLoader(dataset, batch_sampler=sampler)
            for epoch in range(epochs):
                sampler.set_epoch(epoch)
        """),
        "paddle.io.DistributedBatchSampler(drop_last=True)",
        note="Samples of different lengths: sort a window of them, and deal them out so that every rank has as many "
        "tokens. A rank that is late in every step has other work or a slower machine.",
    ),
)
