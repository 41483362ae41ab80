"""Rules 15, 16, 19 and 20: many small calls of the host, and what it does between them."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
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
        "",
        "",
        note="Code is compiled already, so that what is left is your own loop, and the way into compiled code. Sum up "
        "and print in one of many steps, build lists and dictionaries before the loop, and look for code that is not "
        "compiled. py-spy shows which lines of Python it is.",
        mode="eager",
        when={"gaps": ("short",), "compiled": ("yes",)},
    ),
    Remedy(
        "host-gap",
        code("""
            model = paddle.jit.to_static(model, full_graph=True)  # Python runs between its operators once
        """),
        "paddle.jit.to_static",
        note="Compiled code runs without the Python between its operators. In your own loop: sum up and print in one "
        "of many steps, build lists and dictionaries before it. Paddle's profiler records no stacks: py-spy shows "
        "which lines of Python it is.",
        mode="eager",
        when={"gaps": ("short",)},
    ),
    Remedy(
        "host-gap",
        code("""
            for step, batch in enumerate(batches):
                fetched = executor.run(
                    program, feed=dict(x=batch), fetch_list=[loss] if step % 100 == 99 else [], return_numpy=False
                )
        """),
        "paddle.static.Executor.run(fetch_list=, return_numpy=)",
        mode="static",
        note="Between two runs of a program Python feeds, fetches and does what your loop says: py-spy shows which "
        "lines of it take the time.",
        when={"gaps": ("short",)},
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
