"""Rules 21 to 23: number formats. Which half type is proposed depends on the recorded device."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

_KEPT: Final = code("""
    model, optimizer = paddle.amp.decorate(models=model, optimizers=optimizer, level="O2", dtype="bfloat16")
    with paddle.amp.auto_cast(level="O2", dtype="bfloat16"):
        loss = criterion(model(inputs), targets)
    loss.backward()
""")
_KEPT_SCALED: Final = code("""
    model, optimizer = paddle.amp.decorate(models=model, optimizers=optimizer, level="O2", dtype="float16")
    scaler = paddle.amp.GradScaler()  # once, before the loop
    with paddle.amp.auto_cast(level="O2", dtype="float16"):
        loss = criterion(model(inputs), targets)
    scaler.scale(loss).backward()  # small gradients would become 0 in float16
    scaler.step(optimizer)
    scaler.update()
""")
_AUTOCAST: Final = code("""
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        loss = criterion(model(inputs), targets)
    loss.backward()
""")
_SCALED: Final = code("""
    scaler = paddle.amp.GradScaler()  # once, before the loop
    with paddle.amp.auto_cast(level="O1", dtype="float16"):
        loss = criterion(model(inputs), targets)
    scaler.scale(loss).backward()  # small gradients would become 0 in float16
    scaler.step(optimizer)
    scaler.update()
""")
_FLOAT16: Final = {"half": ("float16",)}
_UNKNOWN: Final = {"half": ("unknown",)}
_NO_BFLOAT16: Final = "{device} has no matrix units for bfloat16: hence float16, with a scaled loss."
_NOT_RECORDED: Final = (
    "What the device multiplies was not recorded: bfloat16 needs compute capability 8.0, or MI200 and later; on older "
    "ones dtype='float16' with paddle.amp.GradScaler."
)
_ONCE: Final = (
    "Parameters are kept in half precision and are not cast again in each step; the optimizer keeps float32 copies."
)
_LOSS: Final = "Compare the loss curves: rounding is coarser."
_O2: Final = 'paddle.amp.decorate(level="O2"), paddle.amp.auto_cast'
_O1: Final = "paddle.amp.auto_cast"
_BF16: Final = f'{_O1}(dtype="bfloat16")'

REMEDIES: Final = (
    Remedy("casts", _KEPT_SCALED, f"{_O2}, paddle.amp.GradScaler", note=f"{_ONCE} {_NO_BFLOAT16}", when=_FLOAT16),
    Remedy("casts", _KEPT, _O2, note=f"{_ONCE} {_NOT_RECORDED}", when=_UNKNOWN),
    Remedy("casts", _KEPT, _O2, note=_ONCE),
    Remedy(
        "tensor-cores-unused",
        code("""
            padded = (features + 7) // 8 * 8  # what the products have in common: widths, vocabulary, batch × sequence
            layer = paddle.nn.Linear(padded, padded)
            convolution = paddle.nn.Conv2D(3, 64, 3, data_format="NHWC")
        """),
        'paddle.nn.Linear, data_format="NHWC"',
        note="The numbers are of half precision already. Multiples of 8 (64 is better on newer devices), and for "
        "convolutions channels that are last.",
        when={"numbers": ("half",)},
    ),
    Remedy(
        "tensor-cores-unused",
        _SCALED,
        f'{_O1}(dtype="float16"), paddle.amp.GradScaler',
        note=f"{_NO_BFLOAT16} {_LOSS}",
        when=_FLOAT16,
    ),
    Remedy("tensor-cores-unused", _AUTOCAST, _BF16, note=f"{_NOT_RECORDED} {_LOSS}", when=_UNKNOWN),
    Remedy("tensor-cores-unused", _AUTOCAST, _BF16, note=_LOSS),
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
)
