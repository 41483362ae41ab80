"""Rules 24 to 28: sizes, memory layouts, and operators for which there is a faster one."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
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
            # attention that takes (batch, sequence, heads, width): nothing is transposed before it
            query, key, value = (part.reshape([0, 0, heads, -1]) for part in joint.chunk(3, axis=-1))
            out = paddle.nn.functional.scaled_dot_product_attention(query, key, value)
            scores = paddle.matmul(hidden, weight, transpose_y=True)  # in place of weight.transpose([1, 0])
        """),
        "paddle.nn.functional.scaled_dot_product_attention, paddle.matmul(transpose_y=)",
        note="transpose() copies: keep the order that the next operator reads. matmul transposes itself, and sum, mean "
        "and softmax take an axis.",
        when={"layout": ("copies",)},
    ),
    Remedy(
        "layout-transposes",
        code("""
            block = paddle.nn.Sequential(
                paddle.nn.Conv2D(3, 64, 3, data_format="NHWC"),
                paddle.nn.BatchNorm2D(64, data_format="NHWC"),
            )
        """),
        'data_format="NHWC"',
        note="Convolutions of half types on matrix units want the channels last; inputs are (batch, height, width, "
        "channels). paddle.incubate.autotune.set_config({'layout': {'enable': True}}) tries it for you, in eager "
        "mode.",
        when={"layout": ("convolutions",)},
    ),
    Remedy(
        "layout-transposes",
        "",
        "",
        note="No convolution was recorded around them: the operators that launch these kernels change the layout "
        "inside. perfkit summary SOURCE --view kernels names them; keep the order that the next operator reads.",
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
