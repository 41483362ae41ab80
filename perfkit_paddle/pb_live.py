"""The protobuf of a cycle that Paddle's profiler has just finished, without a file where the system can."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any


def saved(result: Any) -> memoryview:
    """What ``result.save`` writes, without a copy of it. Empty when Paddle could not write.

    Paddle holds Python's lock from the beginning to the end of it (1.2 µs an event), so another thread would stop the
    training as long, only in the middle of a step instead of between two.
    """
    if not hasattr(os, "memfd_create"):
        return _saved_to_disk(result)
    descriptor = os.memfd_create("perfkit")
    try:
        result.save(f"/proc/self/fd/{descriptor}", "pb")
        if not os.fstat(descriptor).st_size:  # nothing can be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _saved_to_disk(result: Any) -> memoryview:
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        path = Path(folder) / "cycle.pb"
        result.save(str(path), "pb")
        return memoryview(path.read_bytes())
