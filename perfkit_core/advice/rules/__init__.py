"""The built-in rules of advice: one file for each rule, named after its id. Each file says what its rule detects in a
recording, and which step time it predicts."""

from __future__ import annotations

import importlib
from typing import Final

from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.plugins.contracts import Rule


def _rule(rule_id: str, number: int, version: int, title: str) -> Rule[RuleInput, Candidate]:
    module = importlib.import_module(f"{__name__}.{rule_id.replace('-', '_')}")
    return Rule(rule_id, number, version, title, module.find, getattr(module, "what_if", None))


RULES: Final[tuple[Rule[RuleInput, Candidate], ...]] = (
    _rule("tiny-ops-on-device", 1, 1, "Run tiny operators on the host"),
    _rule("host-tensor-in-graph", 2, 1, "Keep host tensors out of compiled code"),
    _rule("ping-pong-copies", 3, 1, "Keep data on the device"),
    _rule("fill-then-copy", 4, 1, "Create tensors on the device"),
    _rule("cpu-fallback", 5, 1, "Run this operator on the device"),
    _rule("host-sync", 6, 1, "Do not wait for results in every step"),
    _rule("device-sync", 7, 1, "Do not synchronise the device within a step"),
    _rule("device-malloc", 8, 1, "Reuse device memory instead of freeing it"),
    _rule("waiting-operator", 9, 1, "This operator waits: do not optimise it"),
    _rule("loader-workers", 10, 1, "Load data in worker processes"),
    _rule("pageable-copies", 11, 1, "Copy batches from pinned memory"),
    _rule("epoch-gap", 12, 1, "Keep loader workers between epochs"),
    _rule("more-workers", 13, 1, "Use more loader workers"),
    _rule("thread-oversubscription", 14, 1, "Use no more threads than cores"),
    _rule("launch-bound", 15, 1, "Launch many kernels with one call"),
    _rule("elementwise-chain", 16, 1, "Fuse elementwise operators"),
    _rule("per-tensor-optimizer", 17, 1, "Update all parameters in one call"),
    _rule("zero-fill-gradients", 18, 1, "Drop gradients instead of filling them with zeros"),
    _rule("select-loop", 19, 1, "Split the tensor once, not in every iteration"),
    _rule("host-gap", 20, 1, "Shorten the gaps between operators"),
    _rule("casts", 21, 1, "Keep tensors in one dtype"),
    _rule("tensor-cores-unused", 22, 1, "Use tensor cores"),
    _rule("tf32-off", 23, 1, "Allow TF32 for products in single precision"),
    _rule("unaligned-matmul", 24, 1, "Pad matrices to multiples of 8"),
    _rule("layout-transposes", 25, 1, "Keep tensors in one memory layout"),
    _rule("conv-autotune", 26, 1, "Let the library search for the fastest convolutions"),
    _rule("unfused-attention", 27, 1, "Use fused attention"),
    _rule("conv-bias-before-norm", 28, 1, "Leave out the bias before a batch norm"),
    _rule("memory-near-limit", 29, 1, "Free device memory"),
    _rule("exposed-communication", 31, 1, "Overlap communication with computation"),
    _rule("accumulation-sync", 33, 1, "Exchange gradients once per optimizer step"),
    _rule("rank-skew", 34, 1, "Make the slow rank as fast as the others"),
    _rule("recompilation", 35, 1, "Compile once, without graph breaks"),
    _rule("outlier-steps", 36, 1, "Find the cause of slow steps"),
    _rule("unbatched-loop", 37, 1, "Replace the loop by batched operators"),
    _rule("micro-batches", 38, 1, "Use larger batches instead of many small ones"),
    _rule("double-precision", 39, 1, "Compute in single precision"),
    _rule("emulated-precision", 40, 1, "Use single precision on this processor"),
    _rule("autograd-in-inference", 41, 1, "Turn gradients off"),
    _rule("rebuilt-constants", 42, 1, "Compute constant tensors once"),
    _rule("tensors-from-lists", 43, 1, "Make tensors from arrays, not from Python lists"),
    _rule("save-each-step", 44, 1, "Write checkpoints, logs and statistics less often"),
    _rule("conv-layout", 46, 1, "Use the channels-last layout for images"),
    _rule("repeated-forward", 47, 1, "Run the forward pass once"),
    _rule("data-on-training-thread", 48, 1, "Prepare batches in the workers"),
    _rule("decode-gap", 49, 1, "Prepare the next decode step while the device works"),
    _rule("decode-without-graph", 50, 1, "Replay decode steps as graphs"),
    _rule("small-decode-batch", 51, 1, "Increase the decode batch size"),
    _rule("exposed-copies", 52, 1, "Avoid copies, or copy while the device computes"),
    _rule("host-code", 53, 1, "Do this work while the device computes"),
    _rule("work-between-steps", 54, 1, "Shorten the work between the training steps"),
    _rule("recomputed-forward", 55, 1, "Keep results of the forward pass where memory allows"),
    _rule("slow-kernels", 56, 1, "Find faster kernels for these operators"),
)
"""All built-in rules, sorted by number."""
