"""Rules 29, 30, 35 and 36: memory, batch size, and steps that are not like the others."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "memory-near-limit",
        code("""
            from paddle.distributed.fleet.utils import recompute

            for block in blocks:
                hidden = recompute(block, hidden)  # computed again in the backward pass
        """),
        "paddle.distributed.fleet.utils.recompute",
        note="Costs up to a second forward pass, and makes room for a larger batch. Smaller, too: "
        "optimizer.clear_grad(set_to_zero=False), half precision, and sharded states "
        "(paddle.distributed.sharding.group_sharded_parallel).",
    ),
    Remedy(
        "low-device-utilisation",
        code("""
            loader = paddle.io.DataLoader(dataset, batch_size=4 * batch_size, shuffle=True)
        """),
        "paddle.io.DataLoader(batch_size=)",
        note="Compare samples a second, not steps. The learning rate has to follow the batch size. First remove what "
        "keeps the device waiting: the other advice.",
    ),
    Remedy(
        "recompilation",
        code("""
            spec = paddle.static.InputSpec([None, features], "float32")  # one program for all sizes
            model = paddle.jit.to_static(model, input_spec=[spec], full_graph=True)
        """),
        "paddle.jit.to_static(input_spec=, full_graph=True)",
        note="full_graph=True raises where the graph would break, and names the line. Otherwise pad batches to a few "
        "sizes, and mark helpers that only Python can run by paddle.jit.not_to_static.",
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
