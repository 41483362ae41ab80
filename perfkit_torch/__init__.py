"""perfkit for PyTorch: pass :func:`trace_handler` as ``on_trace_ready``. Importing this does not import torch."""

from perfkit_torch.capture import trace_handler

__all__ = ["trace_handler"]
