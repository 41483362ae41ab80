"""Rules 21 to 23: number formats. Which half type is proposed depends on the recorded device."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

_AUTOCAST: Final = code("""
    with torch.autocast(device.type, dtype=torch.bfloat16):  # once, around all of the forward pass
        loss = criterion(model(inputs), targets)
    loss.backward()
""")
_SCALED: Final = code("""
    scaler = torch.amp.GradScaler(device.type)  # once, before the loop
    with torch.autocast(device.type, dtype=torch.float16):  # once, around all of the forward pass
        loss = criterion(model(inputs), targets)
    scaler.scale(loss).backward()  # small gradients would become 0 in float16
    scaler.step(optimizer)
    scaler.update()
""")
_FLOAT16: Final = {"half": ("float16",)}
_UNKNOWN: Final = {"half": ("unknown",)}
_NO_BFLOAT16: Final = (
    "{device} has no matrix units for bfloat16: hence float16, with a scaled loss. Before 2.3: "
    "torch.cuda.amp.GradScaler()."
)
_NOT_RECORDED: Final = (
    "What the device multiplies was not recorded: bfloat16 needs compute capability 8.0, or MI200 and later; on older "
    "ones dtype=torch.float16 with torch.amp.GradScaler."
)
_ONE_REGION: Final = "Within one region a weight is cast once; every further region casts it again."
_NO_CASTS: Final = (
    "No casts at all: parameters in bfloat16, model.to(torch.bfloat16), with an optimizer that keeps float32 copies."
)
_LOSS: Final = "Compare the loss curves: rounding is coarser."
_BF16_API: Final = "torch.autocast(dtype=torch.bfloat16)"
_FP16_API: Final = "torch.autocast(dtype=torch.float16), torch.amp.GradScaler"

REMEDIES: Final = (
    Remedy(
        "casts",
        code("""
            model = torch.compile(model)  # casts become part of the kernels beside them
        """),
        "torch.compile",
        "2.0",
        note="Types that the model itself changes (a normalisation in float32, say) stay as they are. Weights in one "
        "type: model.to(torch.bfloat16) or, where the device has none, torch.float16, once before the first call.",
        when={"training": ("no",)},
    ),
    Remedy("casts", _SCALED, _FP16_API, "2.3", note=f"{_ONE_REGION} {_NO_BFLOAT16}", when=_FLOAT16),
    Remedy("casts", _AUTOCAST, _BF16_API, "1.10", note=f"{_ONE_REGION} {_NO_CASTS} {_NOT_RECORDED}", when=_UNKNOWN),
    Remedy("casts", _AUTOCAST, _BF16_API, "1.10", note=f"{_ONE_REGION} {_NO_CASTS}"),
    Remedy(
        "tensor-cores-unused",
        code("""
            padded = (features + 7) // 8 * 8  # what the products have in common: widths, vocabulary, batch × sequence
            layer = torch.nn.Linear(padded, padded)
            model = model.to(memory_format=torch.channels_last)  # for convolutions
        """),
        "torch.nn.Linear, torch.channels_last",
        "1.5",
        note="The numbers are of half precision already. Multiples of 8 (64 is better on newer devices), and tensors "
        "that begin at multiples of 16 bytes.",
        when={"numbers": ("half",)},
    ),
    Remedy("tensor-cores-unused", _SCALED, _FP16_API, "2.3", note=f"{_NO_BFLOAT16} {_LOSS}", when=_FLOAT16),
    Remedy("tensor-cores-unused", _AUTOCAST, _BF16_API, "1.10", note=f"{_NOT_RECORDED} {_LOSS}", when=_UNKNOWN),
    Remedy("tensor-cores-unused", _AUTOCAST, _BF16_API, "1.10", note=_LOSS),
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
)
