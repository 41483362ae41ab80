"""Rules 1 to 5 and 11: tensors in the wrong place, and copies that need not be."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "tiny-ops-on-device",
        code("""
            count = paddle.to_tensor(0, place=paddle.CPUPlace())  # or a Python number
            count = count + 1  # operators run where their inputs are
            gradient = paddle.where(mask, gradient, paddle.zeros_like(gradient))  # in place of: if mask.any(): ...
        """),
        "paddle.to_tensor(place=), paddle.where",
        mode="eager",
        note="Several operators: with paddle.device.device_guard('cpu') (since 3.3); before, paddle.set_device('cpu') "
        "and back.",
    ),
    Remedy(
        "tiny-ops-on-device",
        code("""
            with paddle.static.device_guard("cpu"):
                count = paddle.full([1], 0, dtype="int64")
                limit = paddle.full([1], 100, dtype="int64")
                count = paddle.increment(count)
                going_on = paddle.less_than(count, limit)
        """),
        "paddle.static.device_guard",
        mode="static",
        note="All of the counter, its limit, the step and the comparison belong inside: one of them left on the device "
        "brings the copies back.",
    ),
    Remedy(
        "host-tensor-in-graph",
        code("""
            class Scaled(paddle.nn.Layer):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("scale", paddle.to_tensor(0.5), persistable=False)  # moves with the model

                def forward(self, x):
                    return x * self.scale
        """),
        "paddle.nn.Layer.register_buffer(persistable=)",
        note="A constant can also be a Python number, which becomes an attribute of the operator.",
    ),
    Remedy(
        "ping-pong-copies",
        code("""
            means = []
            for batch in loader:
                hidden = batch - batch.mean(axis=0)  # on the device, in place of batch.numpy() ... paddle.to_tensor
                means.append(hidden.detach().mean())
            means = paddle.stack(means).numpy()  # one copy, after the loop
        """),
        "paddle.Tensor.mean, paddle.stack",
        mode="eager",
    ),
    Remedy(
        "ping-pong-copies",
        code("""
            for _ in range(rounds):  # what a run fetches and the next is fed stays on the device
                (state,) = executor.run(program, feed=dict(x=state), fetch_list=[out], return_numpy=False)
        """),
        "paddle.static.Executor.run(return_numpy=False)",
        mode="static",
        note="Inside a program, an operator under device_guard('cpu') between two of the device copies both ways: take "
        "the guard away.",
    ),
    Remedy(
        "fill-then-copy",
        code("""
            mask = paddle.zeros(batch.shape)  # made on the device, in place of paddle.to_tensor(numpy.zeros(...))
            noise = paddle.randn(batch.shape)
        """),
        "paddle.zeros, paddle.randn",
        note="paddle.zeros(..., device=) since 3.2; before, they are made on the device of paddle.set_device.",
    ),
    Remedy(
        "cpu-fallback",
        code("""
            values = paddle.sort(batch, axis=-1)  # in place of numpy.sort(batch.numpy())
        """),
        "paddle.sort",
        note="Where a device has no kernel for an operator, Paddle runs it on the host and copies both ways "
        "(FLAGS_enable_api_kernel_fallback=0 raises instead and names it): do it in the dataset, or gather its "
        "inputs.",
    ),
    Remedy(
        "pageable-copies",
        code("""
            loader = paddle.io.DataLoader(dataset, batch_size=batch_size, use_buffer_reader=True)  # one ahead
            for batch in loader:
                train_step(batch)
        """),
        "paddle.io.DataLoader(use_buffer_reader=True)",
        note="The default, so look for use_buffer_reader=False and for paddle.to_tensor(array) in the loop. By hand: "
        "tensor.pin_memory().cuda(blocking=False).",
    ),
)
