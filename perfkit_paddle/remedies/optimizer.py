"""Rules 17 and 18: optimizers that go through their tensors one by one.

Which optimizer has ``use_multi_tensor`` is in the signatures of paddle.optimizer (2.6 to 3.3: Adam and Momentum). It is
recorded by the name of its operator.
"""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

_RULE: Final = "per-tensor-optimizer"
_SAME: Final = "The results are those of the loop over the parameters."

REMEDIES: Final = (
    Remedy(
        _RULE,
        code("""
            optimizer = paddle.optimizer.Adam(
                learning_rate=lr, parameters=model.parameters(), use_multi_tensor=True  # the rest as before
            )
        """),
        "paddle.optimizer.Adam(use_multi_tensor=True)",
        note=_SAME,
        when={"optimizer_class": ("adam",)},
    ),
    Remedy(
        _RULE,
        code("""
            optimizer = paddle.optimizer.Momentum(
                learning_rate=lr, parameters=model.parameters(), use_multi_tensor=True  # the rest as before
            )
        """),
        "paddle.optimizer.Momentum(use_multi_tensor=True)",
        note=_SAME,
        when={"optimizer_class": ("momentum",)},
    ),
    Remedy(
        _RULE,
        code("""
            optimizer = paddle.optimizer.Momentum(
                learning_rate=lr, momentum=0.0, parameters=model.parameters(), use_multi_tensor=True
            )
        """),
        "paddle.optimizer.Momentum(momentum=0.0, use_multi_tensor=True)",
        note="paddle.optimizer.SGD cannot update several tensors at once. Momentum without momentum takes the same "
        "steps, and keeps one more tensor for each parameter.",
        when={"optimizer_class": ("sgd",)},
    ),
    Remedy(
        _RULE,
        "",
        "",
        note="Only paddle.optimizer.Adam and Momentum take use_multi_tensor=True. The recorded {optimizer_class} "
        "does not, so that this is to be had by another optimizer only. AdamW is not Adam(weight_decay=...), which "
        "adds the decay to the gradient.",
    ),
    Remedy(
        "zero-fill-gradients",
        code("""
            optimizer.clear_grad(set_to_zero=False)
        """),
        "paddle.optimizer.Optimizer.clear_grad(set_to_zero=False)",
        note="set_to_zero=True is the default. Code that reads .grad must expect None. A static graph fills nothing.",
    ),
)
