"""Rules 1 to 7, 9 and 11: tensors in the wrong place, copies, and hosts that wait for devices."""

from __future__ import annotations

from inspect import cleandoc as code
from typing import Final

from perfkit_core.plugins.contracts import Remedy

REMEDIES: Final = (
    Remedy(
        "tiny-ops-on-device",
        code("""
            count = torch.zeros((), device="cpu")  # or a Python number: what only steers the loop stays on the host
            count += 1
            gradient = torch.where(mask, gradient, torch.zeros_like(gradient))  # in place of: if mask.any(): ...
        """),
        "device=, torch.where(condition, input, other)",
        note="Under torch.set_default_device every new tensor is on the device: name device='cpu' where it is made. "
        "Python numbers beat tensors on the host wherever no operator needs a tensor.",
    ),
    Remedy(
        "host-tensor-in-graph",
        code("""
            class Scaled(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("scale", torch.tensor(0.5), persistent=False)  # moves with model.to(device)

                def forward(self, x):
                    return x * self.scale
        """),
        "torch.nn.Module.register_buffer(persistent=)",
        "1.6",
        note="A constant can also be a Python number, or be made on the device: torch.tensor(0.5, device=x.device).",
    ),
    Remedy(
        "ping-pong-copies",
        code("""
            means = []
            for batch in loader:
                hidden = batch - batch.mean(dim=0)  # on the device, in place of batch.cpu() ... .to(device)
                means.append(hidden.detach().mean())
            means = torch.stack(means).cpu()  # one copy, after the loop
        """),
        "torch.Tensor.mean, torch.stack",
        note="Nearly every function of numpy has one in torch: what looks at the values can stay on the device.",
    ),
    Remedy(
        "fill-then-copy",
        code("""
            mask = torch.zeros(batch.shape, device=batch.device)  # in place of torch.zeros(batch.shape).to(device)
            noise = torch.randn_like(batch)
        """),
        "device=, torch.randn_like",
    ),
    Remedy(
        "cpu-fallback",
        code("""
            values, order = torch.sort(batch, dim=-1)  # in place of numpy.sort(batch.cpu().numpy())
        """),
        "torch.sort",
        note="Where a device has no kernel for an operator, do it in the dataset (its workers have time), or gather "
        "its inputs and copy once. Unset PYTORCH_ENABLE_MPS_FALLBACK to be told which operators fall back.",
    ),
    Remedy(
        "host-sync",
        code("""
            total = torch.zeros((), device=device)
            for step, batch in enumerate(loader):
                total += train_step(batch).detach()  # in place of total += loss.item()
                if step % 100 == 99:
                    print("loss", total.item() / 100)  # one wait in a hundred steps
                    total.zero_()
        """),
        "torch.Tensor.detach",
        note="nonzero(), masks as an index and unique() wait, too: use torch.where. "
        'torch.cuda.set_sync_debug_mode("warn") names every line that waits (since 1.10).',
    ),
    Remedy(
        "device-sync",
        code("""
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for step, batch in enumerate(loader):
                begin.record()
                train_step(batch)
                end.record()  # in place of torch.cuda.synchronize()
                if step % 100 == 99:
                    end.synchronize()
                    print("step_ms", begin.elapsed_time(end))
        """),
        "torch.cuda.Event(enable_timing=True)",
        note="Streams keep their order by themselves: a synchronisation is only needed before the host reads a result.",
    ),
    Remedy(
        "waiting-operator",
        "",
        "",
        note="There is nothing to change in this operator: it waits for the device. Shorten what the device does "
        "before it (see the kernels of the step), or read its result later, as host-sync shows.",
    ),
    Remedy(
        "pageable-copies",
        code("""
            loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, pin_memory=True)
            for batch in loader:
                batch = batch.to(device, non_blocking=True)
        """),
        "DataLoader(pin_memory=True), torch.Tensor.to(non_blocking=True)",
        note="Without a DataLoader: batch.pin_memory(). Do not write to the host tensor before the copy is done.",
    ),
)
