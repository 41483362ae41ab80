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
        note="All kernels became slower together, so it is the device and no line of code. Look at its clocks, its "
        "power and its temperature while it trains ({clocks}), and for other processes on it.",
        when={"outliers": ("clock",)},
    ),
    Remedy(
        "outlier-steps",
        "",
        "",
        note="In the late steps time passes in which nothing is recorded. Look at what the script does every N steps "
        "(checkpoints, evaluation, logging, garbage collection) and at other processes on the machine; py-spy shows "
        "what Python does then.",
        when={"outliers": ("outside",)},
    ),
    Remedy(
        "outlier-steps",
        "",
        "",
        note="What grew is named above: compare it in a late step and in a usual one (perfkit summary SOURCE --view "
        "steps, then --view operators --step N). The same calls that take longer tell of other inputs, of a wait for "
        "another rank or for a file, or of other processes on the machine.",
    ),
)
