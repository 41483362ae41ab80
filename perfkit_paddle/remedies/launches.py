"""Rules 8 and 15 to 20: many small calls of the host, and what it does between them."""

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
    Remedy(
        "launch-bound",
        code("""
            model = paddle.jit.to_static(model, full_graph=True)
        """),
        "paddle.jit.to_static",
        mode="eager",
        note="backend='CINN' fuses kernels, too. With shapes that stay the same, one CUDA graph: "
        "paddle.device.cuda.cuda_graphed_layer.CUDAGraphedLayer(model). A larger batch costs no more launches.",
    ),
    Remedy(
        "launch-bound",
        code("""
            import os

            os.environ["FLAGS_new_executor_use_cuda_graph"] = "1"  # before paddle is imported
        """),
        "FLAGS_new_executor_use_cuda_graph",
        mode="static",
        note="Feeds must keep their shapes and addresses. FLAGS_use_cinn=1 fuses kernels, where Paddle was built with "
        "CINN.",
    ),
    Remedy(
        "elementwise-chain",
        code("""
            @paddle.jit.to_static(backend="CINN")
            def activation(x, bias):
                return paddle.nn.functional.gelu(x + bias) * 0.5  # one kernel, one pass over the memory
        """),
        "paddle.jit.to_static(backend=)",
        note="CINN is part of the builds for CUDA. Ready-made: paddle.incubate.nn.functional.fused_bias_act and its "
        "like.",
    ),
    Remedy(
        "per-tensor-optimizer",
        code("""
            optimizer = paddle.optimizer.Adam(
                learning_rate=1e-3, parameters=model.parameters(), use_multi_tensor=True
            )
        """),
        "paddle.optimizer.Adam(use_multi_tensor=True), paddle.optimizer.Momentum",
        note="Only Adam and Momentum have it. AdamW has none: Adam(weight_decay=...) adds the decay to the gradient, "
        "which is not the same. The results are those of the loop over the parameters.",
    ),
    Remedy(
        "zero-fill-gradients",
        code("""
            optimizer.clear_grad(set_to_zero=False)
        """),
        "paddle.optimizer.Optimizer.clear_grad(set_to_zero=False)",
        note="set_to_zero=True is the default. Code that reads .grad must expect None. A static graph fills nothing.",
    ),
    Remedy(
        "select-loop",
        code("""
            scores = [(row * weight).sum() for row in paddle.unbind(rows)]  # in place of rows[i] in every round
            scores = paddle.matmul(rows, weight)  # better, where no round needs the one before: all at once
        """),
        "paddle.unbind",
        note="What is predicted is the first: selected once. Paddle has no vmap: write the operation for all rows. "
        "Values that only Python looks at: rows.tolist() once, before the loop.",
    ),
    Remedy(
        "host-gap",
        code("""
            import gc

            gc.freeze()  # what lives as long as the training is not looked at again
            gc.disable()
            for step, batch in enumerate(loader):
                loss = train_step(batch)
                if step % 100 == 99:
                    log(loss)  # what is logged, counted or saved: not in every step
                    gc.collect()
        """),
        "gc.freeze, gc.disable",
        note="Checkpoints and files: in a thread. Paddle's profiler records no stacks: py-spy shows which lines of "
        "Python it is.",
    ),
)
