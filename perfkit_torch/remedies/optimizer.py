"""Rules 17 and 18: optimizers that go through their tensors one by one.

Which optimizer has ``fused`` or ``foreach`` is in the signatures of torch.optim; on which devices and since when, in
the release notes: fused Adam and AdamW since 2.0, SGD since 2.3, on hosts (and Adagrad there) since 2.4.
"""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

_RULE: Final = "per-tensor-optimizer"
_FUSED: Final = code("""
    optimizer = torch.optim.{optimizer_class}(model.parameters(), lr=lr, fused=True)  # the rest as before
""")
_FOREACH: Final = code("""
    optimizer = torch.optim.{optimizer_class}(model.parameters(), lr=lr, foreach=True)  # the rest as before
""")
_WITH_FOREACH: Final = (
    "Adagrad", "ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
)  # fmt: skip

REMEDIES: Final = (
    Remedy(
        _RULE,
        _FUSED,
        "fused=True of torch.optim.Adam and AdamW",
        "2.0",
        note="fused=True works on the CPU since 2.4. Before that, and where parameters are not of floating point or "
        "not on one device: foreach=True (since 1.12).",
        when={"optimizer_class": ("Adam", "AdamW")},
    ),
    Remedy(
        _RULE,
        _FUSED,
        "torch.optim.SGD(fused=True)",
        "2.3",
        note="fused=True works on the CPU since 2.4. Before 2.3: foreach=True (since 1.12).",
        when={"optimizer_class": ("SGD",)},
    ),
    Remedy(
        _RULE,
        _FUSED,
        "torch.optim.Adagrad(fused=True)",
        "2.4",
        note="fused=True does not take sparse gradients, as embeddings with sparse=True have them.",
        when={"optimizer_class": ("Adagrad",), "runtime": ("none",)},
    ),
    Remedy(
        _RULE,
        _FOREACH,
        "foreach=True of torch.optim",
        "1.12",
        note="foreach=True is the default on devices since 2.0, unless foreach=False or differentiable=True is given. "
        "While it works it needs memory for one more copy of the parameters. Adagrad has fused=True as well: on the "
        "CPU since 2.4, on CUDA in 2.13; the others have not.",
        when={"optimizer_class": _WITH_FOREACH},
    ),
    Remedy(
        _RULE,
        code("""
            @torch.compile(fullgraph=False)
            def update():  # in place of optimizer.step()
                optimizer.step()
        """),
        "torch.compile, torch._foreach_add_",
        "2.2",
        note="torch.optim has no fused or foreach version of the recorded {optimizer_class}. By hand: "
        "torch._foreach_add_(parameters, updates, alpha=-lr) and its like, one call for all tensors.",
    ),
    Remedy(
        "zero-fill-gradients",
        code("""
            optimizer.zero_grad(set_to_none=True)
        """),
        "torch.optim.Optimizer.zero_grad(set_to_none=True)",
        "1.7",
        note="The default since 2.0. Code that reads .grad must expect None.",
    ),
)  # fmt: skip
