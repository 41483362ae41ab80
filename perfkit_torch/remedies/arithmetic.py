"""Rules 21 to 28: number formats, memory layouts, and operators for which there is a faster one."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "casts",
        code("""
            with torch.autocast(device.type, dtype=torch.bfloat16):  # once, around all of the forward pass
                loss = criterion(model(inputs), targets)
            loss.backward()
        """),
        "torch.autocast",
        "1.10",
        note="Within one region a weight is cast once; every further region casts it again. No casts at all: "
        "parameters in bfloat16, model.to(torch.bfloat16), with an optimizer that keeps float32 copies.",
    ),
    Remedy(
        "tensor-cores-unused",
        code("""
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = criterion(model(inputs), targets)
            loss.backward()
        """),
        "torch.autocast(dtype=torch.bfloat16)",
        "1.10",
        note="bfloat16 needs compute capability 8.0. Before that: dtype=torch.float16 with torch.amp.GradScaler (2.3; "
        "earlier torch.cuda.amp.GradScaler). Compare the loss curves: rounding is coarser.",
    ),
    Remedy(
        "tf32-off",
        code("""
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        """),
        "torch.set_float32_matmul_precision",
        "1.12",
        note="Products are rounded to 10 bits of mantissa and summed in float32.",
    ),
    Remedy(
        "unaligned-matmul",
        code("""
            padded = (classes + 7) // 8 * 8
            head = torch.nn.Linear(features, padded)
            logits = head(hidden)[..., :classes]
        """),
        "torch.nn.Linear",
        note="Multiples of 8 for half types (64 is better on newer devices): vocabulary, hidden size, batch × "
        "sequence.",
    ),
    Remedy(
        "layout-transposes",
        code("""
            # kernels that convert for convolutions: keep the channels last
            model = model.to(memory_format=torch.channels_last)
            images = images.to(memory_format=torch.channels_last)
            # copies by contiguous() or reshape(): keep the order that the next operator reads; reshape, then transpose
        """),
        "torch.Tensor.to(memory_format=torch.channels_last)",
        "1.5",
        note="Convolutions of half types on tensor cores want the channels last. Operators without such a kernel "
        "transpose back: see that none are left.",
    ),
    Remedy(
        "conv-autotune",
        code("""
            torch.backends.cudnn.benchmark = True
        """),
        "torch.backends.cudnn.benchmark",
        note="For shapes that stay the same: each new shape is measured anew. Which algorithm wins can differ between "
        "runs, and with it the last bits of the results.",
    ),
    Remedy(
        "unfused-attention",
        code("""
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        """),
        "torch.nn.functional.scaled_dot_product_attention",
        "2.0",
        note="Shapes (batch, heads, length, width). is_causal in place of a mask keeps the fastest kernel.",
    ),
    Remedy(
        "conv-bias-before-norm",
        code("""
            block = torch.nn.Sequential(
                torch.nn.Conv2d(3, 64, 3, bias=False),  # the norm subtracts it again, and has a bias of its own
                torch.nn.BatchNorm2d(64),
            )
        """),
        "torch.nn.Conv2d(bias=False)",
        note="Stored weights lose a key: load them with strict=False, or fold the bias into the norm's running mean. "
        "For inference: torch.nn.utils.fuse_conv_bn_eval.",
    ),
)
