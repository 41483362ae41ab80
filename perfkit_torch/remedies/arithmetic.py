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
            # in place of contiguous() or reshape() of what is transposed: views, which the next operator reads
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in joint.chunk(3, dim=-1))
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            out = out.transpose(1, 2).flatten(2)  # the one copy that is left
        """),
        "torch.Tensor.unflatten, transpose, flatten",
        "2.0",
        note="The example below is attention. Elsewhere, too: matmul and reductions read transposed views, "
        "contiguous() before them only copies. view() in place of reshape() raises where a copy would be made. Key and "
        "value heads that many query heads share: enable_gqa=True (since 2.5) in place of repeating them.",
        when={"layout": ("copies",)},
    ),
    Remedy(
        "layout-transposes",
        code("""
            model = model.to(memory_format=torch.channels_last)
            images = images.to(memory_format=torch.channels_last)
        """),
        "torch.Tensor.to(memory_format=torch.channels_last)",
        "1.5",
        note="Convolutions of half types on matrix units want the channels last. Operators without such a kernel "
        "transpose back: see that none are left.",
        when={"layout": ("convolutions",)},
    ),
    Remedy(
        "layout-transposes",
        "",
        "",
        note="No convolution was recorded around them: the operators that launch these kernels change the layout "
        "inside. perfkit summary SOURCE --view kernels names them; keep the order that the next operator reads, or "
        "fuse both (torch.compile).",
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
