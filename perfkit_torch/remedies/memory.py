"""Rule 8: the allocator asks the driver for memory again and again.

On which devices segments can grow is in c10/cuda/CUDAAllocatorConfig.h: with AMD's runtime only since ROCm 7, in
PyTorch 2.13; without it they are ignored, with a warning. That header also reads both names of the variable.
"""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

_ALL_AT_ONCE: Final = (
    "First see that the cache is not switched off (PYTORCH_NO_CUDA_MEMORY_CACHING in the environment): then each "
    "tensor costs calls of the driver. Take torch.cuda.empty_cache() out of the loop, and run one step with the "
    "largest batch first, so that all memory is there."
)

REMEDIES: Final = (
    Remedy(
        "device-malloc",
        code("""
            import os

            for name in ("PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):  # newer versions read the second
                os.environ[name] = "roundup_power2_divisions:4"  # before the first tensor on the device
        """),
        "PYTORCH_HIP_ALLOC_CONF=roundup_power2_divisions:4",
        "1.13",
        note=f"{_ALL_AT_ONCE} Sizes are rounded up, so that batches of nearly the same size share memory: up to a "
        "quarter more of it. expandable_segments:True needs ROCm 7 and PyTorch 2.13; before, it is ignored with a "
        "warning.",
        when={"runtime": ("hip",)},
    ),
    Remedy(
        "device-malloc",
        code("""
            import os

            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before the first tensor on the device
        """),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "2.1",
        note=_ALL_AT_ONCE,
    ),
)
