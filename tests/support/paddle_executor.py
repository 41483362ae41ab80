"""The executor of compiled Paddle programs, without threads of its own."""

from __future__ import annotations

from typing import Any


def run_in_one_thread(paddle: Any) -> None:
    """Let this process run compiled programs in the calling thread.

    If torch's profiler has been used before, the threads of the executor and Paddle's profiler damage the memory of the
    process: without perfkit, 2 of 120 processes crashed with Paddle 3.3.1 and torch 2.13, and none of 160 without
    torch.
    """
    paddle.set_flags({"FLAGS_enable_pir_in_executor_trace_run": True})
