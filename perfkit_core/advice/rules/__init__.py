"""The built-in rules of advice: one file a rule, named as its id."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.rules import (
    accumulation_sync,
    casts,
    conv_autotune,
    conv_bias_before_norm,
    cpu_fallback,
    data_parallel,
    device_malloc,
    device_sync,
    elementwise_chain,
    epoch_gap,
    exposed_communication,
    fill_then_copy,
    host_gap,
    host_sync,
    host_tensor_in_graph,
    launch_bound,
    layout_transposes,
    loader_workers,
    low_device_utilisation,
    memory_near_limit,
    more_workers,
    outlier_steps,
    pageable_copies,
    per_tensor_optimizer,
    ping_pong_copies,
    rank_skew,
    recompilation,
    select_loop,
    tensor_cores_unused,
    tf32_off,
    thread_oversubscription,
    tiny_ops_on_device,
    unaligned_matmul,
    unfused_attention,
    waiting_operator,
    zero_fill_gradients,
)
from perfkit_core.plugins.contracts import Rule

RULES: Final[tuple[Rule, ...]] = tuple(
    rule.RULE
    for rule in (
        tiny_ops_on_device, host_tensor_in_graph, ping_pong_copies, fill_then_copy, cpu_fallback, host_sync,
        device_sync, device_malloc, waiting_operator, loader_workers, pageable_copies, epoch_gap, more_workers,
        thread_oversubscription, launch_bound, elementwise_chain, per_tensor_optimizer, zero_fill_gradients,
        select_loop, host_gap, casts, tensor_cores_unused, tf32_off, unaligned_matmul, layout_transposes,
        conv_autotune, unfused_attention, conv_bias_before_norm, memory_near_limit, low_device_utilisation,
        exposed_communication, data_parallel, accumulation_sync, rank_skew, recompilation, outlier_steps,
    )
)  # fmt: skip
"""In the order of their numbers."""
