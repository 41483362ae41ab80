"""Rules 10 and 12 to 14: how batches are made, and by how many threads and processes."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "loader-workers",
        code("""
            loader = paddle.io.DataLoader(
                dataset, batch_size=batch_size, shuffle=True, num_workers={workers}, persistent_workers=True
            )
        """),
        "paddle.io.DataLoader(num_workers=, persistent_workers=)",
        note="Workers hand batches over in shared memory: a container needs a large enough /dev/shm "
        "(use_shared_memory=False otherwise). The dataset must not use a device.",
    ),
    Remedy(
        "epoch-gap",
        code("""
            loader = paddle.io.DataLoader(dataset, batch_size=batch_size, num_workers=4, persistent_workers=True)
            for epoch in range(epochs):
                for batch in loader:  # the workers of the first epoch are still there
                    train_step(batch)
        """),
        "paddle.io.DataLoader(persistent_workers=True)",
        note="Make each loader once, outside the loop over epochs, that of a validation, too: each one that is begun "
        "again has to keep its workers. With workers that live on, Paddle 3.3 takes 0.5 s "
        "for the first batch of each further epoch: it pays where starting workers takes longer.",
    ),
    Remedy(
        "more-workers",
        code("""
            loader = paddle.io.DataLoader(
                dataset, batch_size=batch_size, num_workers=2 * workers, prefetch_factor=4, persistent_workers=True
            )
        """),
        "paddle.io.DataLoader(num_workers=, prefetch_factor=, persistent_workers=)",
        note="No more workers than cores. If that is not enough, make a batch cheaper: decode once and keep the "
        "result.",
    ),
    Remedy(
        "thread-oversubscription",
        code("""
            import os

            os.environ["OMP_NUM_THREADS"] = "{threads}"  # before paddle is imported
        """),
        "OMP_NUM_THREADS",
        note="Paddle takes one thread where nothing is set: look for OMP_NUM_THREADS in the launcher and the "
        "container. numpy and OpenCV in a dataset have threads of their own: cv2.setNumThreads(0).",
        verify="--base 'python train.py' --change 'env OMP_NUM_THREADS={threads} python train.py'",
    ),
)
