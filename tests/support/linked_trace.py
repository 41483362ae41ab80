"""A small training in which everything leads to everything: two layers, their operators, kernels and lines of code, and
a data loader on the training thread, which is worth advice."""

from __future__ import annotations

from perfkit_core.trace.model.trace import Trace
from tests.support.device_steps import Op, steps_of

HOSTILE = 'void gemm<float, 1>(a/b "c" <i>&amp;%20)'
"""The name of a kernel with characters that have a meaning in addresses and in HTML."""


def linked() -> Trace:
    """Return four steps. In each, the layers ``net/first`` and ``net/second`` run ``fw::linear`` and ``fw::relu``.
    Before, a loop calls three operators for each of four items."""
    layers = [
        Op(
            operator,
            kernels=[(kernel, 30)],
            more={
                "module": f"net/{layer}",
                "phase": "forward",
                "stack": f"train.py({line}): forward;train.py(3): main",
            },
        )
        for layer, operator, kernel, line in (
            ("first", "fw::linear", HOSTILE, 12),
            ("second", "fw::relu", "relu_kernel", 14),
        )
    ]
    more = {"phase": "forward", "stack": "train.py(5): batches"}
    names = ("index", "mean", "softmax")
    items = [Op(f"fw::{name}", more=more) for _ in range(4) for name in names]
    return steps_of([[*items, *layers]] * 4, names=lambda name: name.removeprefix("fw::"))
