"""Rules 21 to 28: number formats, memory layouts, and operators for which there is a faster one."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "casts",
        code("""
            model, optimizer = paddle.amp.decorate(models=model, optimizers=optimizer, level="O2", dtype="bfloat16")
            with paddle.amp.auto_cast(level="O2", dtype="bfloat16"):
                loss = criterion(model(inputs), targets)
            loss.backward()
        """),
        'paddle.amp.decorate(level="O2"), paddle.amp.auto_cast',
        note="Parameters are kept in bfloat16 and are not cast again in each step; the optimizer keeps float32 copies.",
    ),
    Remedy(
        "tensor-cores-unused",
        code("""
            with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
                loss = criterion(model(inputs), targets)
            loss.backward()
        """),
        'paddle.amp.auto_cast(dtype="bfloat16")',
        note="bfloat16 needs compute capability 8.0. Before that: dtype='float16' with paddle.amp.GradScaler. Compare "
        "the loss curves: rounding is coarser.",
    ),
    Remedy(
        "tf32-off",
        code("""
            import os

            os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # before paddle is imported
        """),
        "NVIDIA_TF32_OVERRIDE",
        note="Paddle uses TF32 unless told otherwise: by NVIDIA_TF32_OVERRIDE=0 in the environment, or in the code by "
        "paddle.base.core.set_cublas_switch(False) and set_cudnn_switch(False). There is nothing else to switch "
        "on.",
    ),
    Remedy(
        "unaligned-matmul",
        code("""
            padded = (classes + 7) // 8 * 8
            head = paddle.nn.Linear(features, padded)
            logits = head(hidden)[..., :classes]
        """),
        "paddle.nn.Linear",
        note="Multiples of 8 for half types (64 is better on newer devices): vocabulary, hidden size, batch × "
        "sequence.",
    ),
    Remedy(
        "layout-transposes",
        code("""
            # kernels that convert for convolutions: keep the channels last
            block = paddle.nn.Sequential(
                paddle.nn.Conv2D(3, 64, 3, data_format="NHWC"),
                paddle.nn.BatchNorm2D(64, data_format="NHWC"),
            )
            # copies by transpose(): keep the order that the next operator reads; matmul transposes itself
        """),
        'data_format="NHWC"',
        note="Convolutions of half types on tensor cores want the channels last; inputs are (batch, height, width, "
        "channels). paddle.incubate.autotune.set_config({'layout': {'enable': True}}) tries it for you, in eager "
        "mode.",
    ),
    Remedy(
        "conv-autotune",
        code("""
            paddle.incubate.autotune.set_config({"kernel": {"enable": True, "tuning_range": [1, 10]}})
        """),
        "paddle.incubate.autotune.set_config",
        note="For shapes that stay the same. For all steps: FLAGS_cudnn_exhaustive_search=1. Which algorithm wins can "
        "differ between runs, and with it the last bits of the results.",
    ),
    Remedy(
        "unfused-attention",
        code("""
            out = paddle.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        """),
        "paddle.nn.functional.scaled_dot_product_attention",
        note="Shapes (batch, sequence, heads, width): heads after the sequence. The fast kernel is for half types.",
    ),
    Remedy(
        "conv-bias-before-norm",
        code("""
            block = paddle.nn.Sequential(
                paddle.nn.Conv2D(3, 64, 3, bias_attr=False),  # the norm subtracts it again, and has a bias of its own
                paddle.nn.BatchNorm2D(64),
            )
        """),
        "paddle.nn.Conv2D(bias_attr=False)",
        note="Stored weights lose a key: fold the bias into the norm's running mean when they are loaded.",
    ),
)
