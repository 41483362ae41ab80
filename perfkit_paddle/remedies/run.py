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
