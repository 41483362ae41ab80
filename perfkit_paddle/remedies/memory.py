"""Rule 8: the allocator asks the driver for memory again and again."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "device-malloc",
        code("""
            import os

            os.environ["FLAGS_allocator_strategy"] = "auto_growth"  # before paddle is imported
            os.environ["FLAGS_auto_growth_chunk_size_in_mb"] = "256"  # fewer and larger allocations
        """),
        "FLAGS_allocator_strategy, FLAGS_auto_growth_chunk_size_in_mb",
        note="Take paddle.device.cuda.empty_cache() out of the loop, and run one step with the largest batch first, so "
        "that all memory is there.",
    ),
)
