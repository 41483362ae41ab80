"""Memory snapshots of torch without a history, and without any content.

``torch.cuda.memory._dump_snapshot`` writes them when ``_record_memory_history`` was not called, was called with
``enabled=None``, or in a process that never allocated.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

from tests.data.reports.formats import Content

MADE: Final = [{"filename": "/home/u/train.py", "line": 99, "name": "made"}]
SETTINGS: Final = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                   "expandable_segments": False, "pinned_num_register_threads": 1, "last_allocator_settings": "",
                   "roundup_power2_divisions": {"1": 0}}  # fmt: skip
SIZES: Final = {"L": (5242880, 5242880), "M": (1048576, 1048576), "S": (70144, 70000), "K": (4096, 4096),
                "h": (512, 512), "t": (512, 100)}  # fmt: skip
"""Sizes of blocks that are used: of the block, and as requested."""
STATE: Final = """4096 L S t M M t L L L 512 h 1024 S 70144 K 4096 K t L 140288 M 1048576 t 1048576 M S h t t 140800 S
    70656 h 1049088 M L h L L L 512 L L 70144 K K K K K K 227328"""
"""The blocks of a segment: letters are blocks that are used, numbers the bytes of free blocks."""
NO_TRACES: Final = """512 L 6291968 S t 512 K 8192 M M S 1048576 M h S S h S h S 6291968 L 8192 K 3145728 M L K t L t
    512 L 5242880 h L h 512 h t t h t 512 S S S S 8696832"""


def segment(blocks: str, device: int = 0, address: int = 139637976727552, frames: Any = None) -> dict[str, Any]:
    """Return a segment. Its free blocks have no frames."""
    content: list[dict[str, Any]] = []
    at = address
    for word in blocks.split():
        size, requested = SIZES.get(word) or (int(word), 0)
        state = "active_allocated" if word in SIZES else "inactive"
        content.append({"address": at, "size": size, "requested_size": requested, "state": state,
                        "frames": (MADE if frames is None else frames) if word in SIZES else []})  # fmt: skip
        at += size
    used = [block for block in content if block["state"] != "inactive"]
    allocated, requested = (sum(block[key] for block in used) for key in ("size", "requested_size"))
    return {"address": address, "total_size": at - address, "device": device, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "allocated_size": allocated, "active_size": allocated,
            "requested_size": requested, "is_expandable": False, "frames": [], "blocks": content}  # fmt: skip


def snapshot(*segments: dict[str, Any], traces: Any = ((),), settings: Any = SETTINGS) -> bytes:
    """Return a snapshot with these segments and without a history."""
    content = {"segments": list(segments), "device_traces": [list(trace) for trace in traces],
               "allocator_settings": settings, "external_annotations": []}  # fmt: skip
    return pickle.dumps(content)


def requested_bytes(blocks: str) -> int:
    """Return the sum of the bytes that the program holds."""
    return sum(SIZES[word][1] for word in blocks.split() if word in SIZES)


SMALL, SECOND = "K 512 t t 1024 h", "L 4096 S S"

FILES: Final[dict[str, Content]] = {
    "r32_state_only.pickle": lambda: snapshot(segment(STATE)),
    "r32_second_device.pickle": lambda: snapshot(
        segment(SMALL), segment(SECOND, 1, 140_000_000_000_000), traces=((), ())
    ),
    "r32_without_frames.pickle": lambda: snapshot(
        segment(SECOND, frames=[]), segment(SMALL, address=140_000_000_000_000, frames=[])
    ),
    "r32_empty.pickle": lambda: snapshot(settings={}),
    "r32_no_keys.pickle": lambda: pickle.dumps({"segments": [], "device_traces": []}),
    "r32_free_segment.pickle": lambda: snapshot(segment("2097152")),
    "m4_no_traces.pickle": lambda: snapshot(segment(NO_TRACES), traces=()),
    "m4_compressed.pickle.gz": lambda: snapshot(segment(SMALL), traces=()),
}
