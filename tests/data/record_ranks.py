"""Make the recordings in ``tests/data/ranks``: ``python -m tests.data.record_ranks``. This needs torch.

Eight processes train one small model with DistributedDataParallel over gloo on a CPU. Rank 5 reads its batches slowly,
so that the others wait for it in the collectives.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed, nn, profiler
from torch.multiprocessing.spawn import spawn

FOLDER = Path(__file__).resolve().parent / "ranks"
RANKS, SLOW_RANK, SLOW_S = 8, 5, 0.3
WAIT, STEPS = 3, 3


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        spawn(train, (folder,), nprocs=RANKS)
    about = {
        "script": "tests/data/record_ranks.py",
        "device": "cpu",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    (FOLDER / "provenance.json").write_text(json.dumps(about, indent=1) + "\n")


def train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exported = Path(folder) / f"rank{rank}.json"
    with profiler.profile(
        schedule=profiler.schedule(wait=WAIT, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(exported)),
        record_shapes=True,
    ) as profile:
        for _ in range(WAIT + 1 + STEPS):
            batch = read_batch(rank)
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profile.step()
    recorded = exported.read_bytes().replace(f"{folder}/".encode(), b"")  # traceName
    (FOLDER / f"rank{rank}.json.gz").write_bytes(gzip.compress(recorded, mtime=0))
    distributed.destroy_process_group()


def read_batch(rank: int) -> torch.Tensor:
    with profiler.record_function("read_batch"):
        if rank == SLOW_RANK:
            time.sleep(SLOW_S)
        return torch.randn(32, 64)


if __name__ == "__main__":
    main()
