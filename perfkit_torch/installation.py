"""Checks of the installed torch for ``perfkit doctor``: its devices, and a short recording."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from perfkit_core.integrations.doctor.frameworks import recorded
from perfkit_core.plugins.contracts import Check
from perfkit_torch import framework
from perfkit_torch.on_trace_ready import trace_handler

_SIZE: Final = 64


def running() -> Iterator[Check]:
    """Import torch, and yield its build, the devices that it sees, and what its profiler records."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler prints a line whenever it starts or stops
    torch = framework.torch()
    build = _build(torch)
    text = f"torch {torch.__version__} can be imported; built for {build or 'CPUs only'}"
    yield Check("framework.torch.import", "ok", text, data={"version": str(torch.__version__), "build": build})
    yield _devices(torch, build)
    yield from recorded("torch", lambda folder: _record(torch, folder), _accelerator(torch) is not None)


def _build(torch: Any) -> str | None:
    if getattr(torch.version, "hip", None):
        return f"ROCm {torch.version.hip}"
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return "Intel XPU" if getattr(torch.version, "xpu", None) else None


def _accelerator(torch: Any) -> Any:
    """Return the module of the device that works, such as ``torch.cuda``, or None."""
    modules = (getattr(torch, name, None) for name in ("cuda", "xpu"))
    return next((module for module in modules if module is not None and module.is_available()), None)


def _devices(torch: Any, build: str | None) -> Check:
    name, module = "framework.torch.devices", _accelerator(torch)
    if module is not None:
        names = [str(module.get_device_name(at)) for at in range(module.device_count())]
        return Check(name, "ok", f"torch sees {', '.join(names)}", data={"devices": len(names), "names": names})
    data = {"devices": 0, "names": []}
    if build is None:
        return Check(name, "note", "torch sees no GPU, because this build is for CPUs only", data=data)
    reason = "it gives no reason"
    try:
        torch.zeros(1, device="xpu" if build == "Intel XPU" else "cuda")
    except Exception as error:  # torch raises several types
        reason = " ".join(str(error).split())
    fix = "check that the driver is installed and new enough, and CUDA_VISIBLE_DEVICES"
    return Check(name, "warning", f"torch sees no GPU: {reason}", fix, data)


def _record(torch: Any, folder: str) -> None:
    module = _accelerator(torch)
    device = "cpu" if module is None else module.__name__.rpartition(".")[2]
    with torch.profiler.profile(on_trace_ready=trace_handler(folder)):
        torch.ones(_SIZE, _SIZE, device=device).mm(torch.ones(_SIZE, _SIZE, device=device)).sum().item()
