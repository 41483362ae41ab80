"""Rules 29, 30, 35 and 36: memory, batch size, and steps that are not like the others."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "memory-near-limit",
        code("""
            from torch.utils.checkpoint import checkpoint

            for block in blocks:
                hidden = checkpoint(block, hidden, use_reentrant=False)  # computed again in the backward pass
        """),
        "torch.utils.checkpoint.checkpoint(use_reentrant=False)",
        "1.11",
        note="Costs up to a second forward pass, and makes room for a larger batch. Smaller, too: "
        "optimizer.zero_grad(set_to_none=True), half precision, and sharded states (torch.distributed.fsdp).",
    ),
    Remedy(
        "low-device-utilisation",
        code("""
            loader = torch.utils.data.DataLoader(dataset, batch_size=4 * batch_size, shuffle=True)
        """),
        "DataLoader(batch_size=)",
        note="Compare samples a second, not steps. The learning rate has to follow the batch size. First remove what "
        "keeps the device waiting: the other advice.",
    ),
    Remedy(
        "recompilation",
        code("""
            model = torch.compile(model, dynamic=True)  # one graph for all sizes, in place of one for each
        """),
        "torch.compile(dynamic=True)",
        "2.0",
        note="TORCH_LOGS=recompiles,graph_breaks says which line and why (since 2.1). Otherwise pad batches to a few "
        "sizes, and mark only what varies: torch._dynamo.mark_dynamic(batch, 0).",
    ),
    Remedy(
        "outlier-steps",
        "",
        "",
        note="No line of code removes it, since the cause lies outside of the steps that were compared. Look at what "
        "happens every N steps (checkpoints, evaluation, garbage collection), at other processes on the machine, "
        "and at the device's clocks: nvidia-smi -q -d CLOCK,PERFORMANCE.",
    ),
)
