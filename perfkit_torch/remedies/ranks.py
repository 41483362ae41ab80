"""Rules 31 to 34: several devices that wait for each other."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "exposed-communication",
        code("""
            model = torch.nn.parallel.DistributedDataParallel(
                model, bucket_cap_mb=50, gradient_as_bucket_view=True, static_graph=True
            )
        """),
        "DistributedDataParallel(bucket_cap_mb=, gradient_as_bucket_view=, static_graph=)",
        "1.11",
        note="Try bucket_cap_mb from 10 to 200: small buckets begin early, large ones use the bandwidth. Half the "
        "bytes: torch.distributed.algorithms.ddp_comm_hooks.default_hooks.{half_short}_compress_hook. static_graph "
        "only where every step uses the same parameters.",
    ),
    Remedy(
        "data-parallel",
        code("""
            torch.distributed.init_process_group()  # start with: torchrun --nproc-per-node=8 train.py
            model = torch.nn.parallel.DistributedDataParallel(model.to(device))
            sampler = torch.utils.data.distributed.DistributedSampler(dataset)
            loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler)
        """),
        "torch.nn.parallel.DistributedDataParallel, torchrun",
        "1.10",
        note="One process a device: DataParallel copies the model in every step, and its threads share one "
        "interpreter.",
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
                    optimizer.zero_grad()
        """),
        "DistributedDataParallel.no_sync",
        note="The forward pass must be within no_sync, too. FSDP: set_requires_gradient_sync(last) on the sharded "
        "module.",
    ),
    Remedy(
        "rank-skew",
        code("""
            sampler = torch.utils.data.distributed.DistributedSampler(dataset, shuffle=True, drop_last=True)
            loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler)
            for epoch in range(epochs):
                sampler.set_epoch(epoch)
        """),
        "DistributedSampler(drop_last=True)",
        "1.7",
        note="Samples of different lengths: sort a window of them, and deal them out so that every rank has as many "
        "tokens. A rank that is late in every step has other work or a slower machine.",
    ),
)
