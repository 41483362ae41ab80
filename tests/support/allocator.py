"""A caching allocator that keeps the history of its blocks and segments, in the structure of torch's snapshots.

torch writes snapshots only on machines with a GPU. The structure is the one that ``torch.cuda.memory._snapshot``
documents, with the further fields that torch 2.3 writes.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
START_US = 1_700_000_000_000_000
NATIVE = {"filename": "c10/cuda/CUDACachingAllocator.cpp", "line": 1, "name": "malloc"}
LIBRARY = "/usr/lib/python3.11/site-packages/torch/nn/functional.py"
_EXTRA: dict[str, Any] = {"stream": 0, "compile_context": "N/A", "user_metadata": ""}


def stack(*lines: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Return a stack of Python frames, innermost first, below a frame of the allocator."""
    return [NATIVE, *({"filename": file, "line": line, "name": name} for file, line, name in lines)]


class Allocator:
    """The allocator of one device. A segment has ``segment_bytes`` bytes. Addresses are not used again, and blocks are
    multiples of 512 bytes."""

    def __init__(self, device: int = 0, segment_bytes: int = 2 * MIB) -> None:
        self.device, self.segment_bytes = device, segment_bytes
        self.history: list[dict[str, Any]] = []
        self.ranges: list[dict[str, Any]] = []
        self.segments: dict[int, int] = {}  # address -> size
        self.blocks: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}  # address -> size, requested size, frames
        self._next = self._end = (device + 1) << 40
        self._time_us = START_US

    def alloc(self, size: int, frames: list[dict[str, Any]] | None = None) -> int:
        rounded = max(-(-size // 512), 1) * 512
        if self._next + rounded > self._end:
            total = max(self.segment_bytes, rounded)
            self._next, self._end = self._end + MIB, self._end + MIB + total
            self.segments[self._next] = total
            self._entry("segment_alloc", self._next, total, frames or [])
        address, self._next = self._next, self._next + rounded
        self.blocks[address] = rounded, size, frames or []
        self._entry("alloc", address, size, frames or [])
        return address

    def free(self, address: int) -> None:
        _, size, _ = self.blocks.pop(address)
        self._entry("free_requested", address, size, stack(("free.py", 1, "free")))
        self._entry("free_completed", address, size, [])

    def empty_cache(self) -> None:
        for address, size in list(self.segments.items()):
            if not any(address <= block < address + size for block in self.blocks):
                del self.segments[address]
                self._entry("segment_free", address, size, [])
                if address + size == self._end:
                    self._next = self._end

    def fail(self, size: int, free: int) -> None:
        entry = {"action": "oom", "device_free": free, "size": size, "time_us": self._tick(), "frames": [], **_EXTRA}
        self.history.append(entry)

    def mark(self, name: str, stage: str) -> None:
        self.ranges.append({"name": name, "stage": stage, "device": self.device, "time_us": self._tick()})

    def snapshot(self, kept: int | None = None) -> dict[str, Any]:
        """Return the snapshot. ``kept`` is the number of entries that the history keeps, the latest ones."""
        segments = []
        for start, total in self.segments.items():
            blocks, at = [], start
            for address in sorted(address for address in self.blocks if start <= address < start + total):
                size, requested, frames = self.blocks[address]
                blocks += [_block(at, address - at)] if address > at else []
                blocks.append(_block(address, size, requested, "active_allocated", frames))
                at = address + size
            blocks += [_block(at, start + total - at)] if start + total > at else []
            segments.append({"device": self.device, "address": start, "total_size": total, "stream": 0,
                             "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False,
                             "frames": [], "blocks": blocks})  # fmt: skip
        history = self.history if kept is None else self.history[len(self.history) - kept :]
        return {
            "segments": segments,
            "device_traces": [history if number == self.device else [] for number in range(self.device + 1)],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": self.ranges,
        }

    def _entry(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        entry = {"action": action, "addr": address, "size": size, "time_us": self._tick(), "frames": frames, **_EXTRA}
        self.history.append(entry)

    def _tick(self) -> int:
        self._time_us += 7
        return self._time_us


def _block(
    address: int, size: int, requested: int = 0, state: str = "inactive", frames: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames or []}


def written(snapshot: dict[str, Any], path: Path) -> Path:
    path.write_bytes(pickle.dumps(snapshot))
    return path
