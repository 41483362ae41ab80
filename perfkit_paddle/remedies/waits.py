"""Rules 6, 7 and 9: hosts that wait for devices."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "host-sync",
        code("""
            total = paddle.zeros([])
            for step, batch in enumerate(loader):
                total += train_step(batch).detach()  # in place of loss.item() or loss.numpy()
                if step % 100 == 99:
                    print("loss", float(total) / 100)  # one wait in a hundred steps
                    total.zero_()
        """),
        "paddle.Tensor.detach",
        mode="eager",
        note="float(), print(tensor), if tensor:, nonzero() and masked_select() wait, too: use paddle.where.",
    ),
    Remedy(
        "host-sync",
        code("""
            for step, batch in enumerate(batches):
                fetched = executor.run(program, feed=dict(x=batch), fetch_list=[loss] if step % 100 == 99 else [])
        """),
        "paddle.static.Executor.run(fetch_list=)",
        mode="static",
        note="return_numpy=False leaves what is fetched on the device.",
    ),
    Remedy(
        "device-sync",
        code("""
            begin, end = paddle.device.Event(enable_timing=True), paddle.device.Event(enable_timing=True)
            for step, batch in enumerate(loader):
                begin.record()
                train_step(batch)
                end.record()  # in place of paddle.device.synchronize()
                if step % 100 == 99:
                    end.synchronize()
                    print("step_ms", begin.elapsed_time(end))
        """),
        "paddle.device.Event(enable_timing=True)",
        note="Streams keep their order by themselves: a synchronisation is only needed before the host reads a result. "
        "FLAGS_benchmark=1 waits after every operator: unset it.",
    ),
    Remedy(
        "waiting-operator",
        "",
        "",
        note="There is nothing to change in this operator: it waits for the device. Shorten what the device does "
        "before it (see the kernels of the step), or read its result later, as host-sync shows.",
    ),
)
