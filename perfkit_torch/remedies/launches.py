"""Rules 15, 16, 19 and 20: many small calls of the host, and what it does between them."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "launch-bound",
        code("""
            model = torch.compile(model, mode="reduce-overhead")  # fused kernels, replayed as one CUDA graph
        """),
        'torch.compile(mode="reduce-overhead")',
        "2.0",
        note="Shapes must stay the same: pad the last batch or drop it. By hand: "
        "torch.cuda.make_graphed_callables(model, (batch,)) (since 1.10). A larger batch costs no more launches.",
    ),
    Remedy(
        "elementwise-chain",
        code("""
            @torch.compile
            def activation(x, bias):
                return torch.nn.functional.gelu(x + bias) * 0.5  # one kernel, one pass over the memory
        """),
        "torch.compile",
        "2.0",
        note="Compile the function that holds the chain where the whole model cannot be compiled.",
    ),
    Remedy(
        "select-loop",
        code("""
            scores = [(row * weight).sum() for row in rows.unbind()]  # in place of rows[i] in every round
            scores = rows @ weight  # better, where no round needs the one before: all at once
        """),
        "torch.Tensor.unbind",
        note="What is predicted is the first: selected once. torch.vmap(f)(rows) turns a function of a row into one of "
        "all rows (since 2.0). Values that only Python looks at: rows.tolist() once, before the loop.",
    ),
    Remedy(
        "host-gap",
        "",
        "",
        note="Code is compiled already, so that what is left is your own loop, and the way into compiled code. Sum up "
        "and print in one of many steps, build lists and dictionaries before the loop, and look for code that is not "
        "compiled. py-spy shows which lines of Python it is.",
        when={"gaps": ("short",), "compiled": ("yes",)},
    ),
    Remedy(
        "host-gap",
        code("""
            model = torch.compile(model)  # the Python between its operators runs once, not in every step
        """),
        "torch.compile",
        "2.0",
        note="Compiled code runs without the Python between its operators. In your own loop: sum up and print in one "
        "of many steps, build lists and dictionaries before it. Stacks, which with_stack=True records, or py-spy show "
        "which lines of Python it is.",
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
        note="Checkpoints and files: in a thread. Stacks, which with_stack=True records, or py-spy show which lines of "
        "Python it is.",
    ),
)
