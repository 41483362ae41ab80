"""Rules 10 and 12 to 14: how batches are made, and by how many threads and processes."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "loader-workers",
        code("""
            loader = torch.utils.data.DataLoader(
                dataset, batch_size=batch_size, shuffle=True, num_workers={workers}, persistent_workers=True
            )
        """),
        "DataLoader(num_workers=, persistent_workers=)",
        "1.7",
        note="Each worker draws its own random numbers: seed numpy and random in worker_init_fn. Where processes are "
        "spawned, the script needs if __name__ == '__main__'.",
    ),
    Remedy(
        "epoch-gap",
        code("""
            loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, num_workers=4, persistent_workers=True)
            for epoch in range(epochs):
                for batch in loader:  # the workers of the first epoch are still there
                    train_step(batch)
        """),
        "DataLoader(persistent_workers=True)",
        "1.7",
        note="Make each loader once, outside the loop over epochs, that of a validation, too: each one that is begun "
        "again has to keep its workers.",
    ),
    Remedy(
        "more-workers",
        code("""
            loader = torch.utils.data.DataLoader(
                dataset, batch_size=batch_size, num_workers=2 * workers, prefetch_factor=4, persistent_workers=True
            )
        """),
        "DataLoader(num_workers=, prefetch_factor=, persistent_workers=)",
        "1.7",
        note="No more workers than cores. If that is not enough, make a batch cheaper: decode once and keep the "
        "result.",
    ),
    Remedy(
        "thread-oversubscription",
        code("""
            torch.set_num_threads({threads})  # before the first operator
        """),
        "torch.set_num_threads",
        note="That is cores ÷ processes; take away what the loader's workers need, which use one thread each. "
        "OMP_NUM_THREADS={threads} in the environment does the same for numpy, too, and for all processes.",
        verify="--base 'python train.py' --change 'env OMP_NUM_THREADS={threads} python train.py'",
    ),
)
