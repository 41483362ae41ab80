"""Advice on recordings that engineers judged, against bounds computed from the raw events without perfkit.

``SENT`` lists advice that could be sent, with the range in which the saving must lie, as a share of the step. The upper
end is the bound from the raw events. ``WRONG`` lists advice on a waste that is not there, or with a fix that cannot
help. ``CAUSES`` lists large wastes with the share of the step that their advice must name; their saving is unknown."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from perfkit_core.advice.advice import Advice, Advices
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import Message, render

TRACES: Final = Path(os.environ.get("PERFKIT_TRACES", "../shared/traces"))
SENT: Final = [
    ("torch-judged/gtx-luatil04", "tensor-cores-unused", 0.10, 0.42),
    # a pipeline prepares five batches, and nothing runs while it prepares the first one: at most 40%
    ("torch-judged/h100-owlv2", "loader-workers", 0.25, 0.41),
    ("torch-judged/h100-owlv2", "unfused-attention", 0.10, 0.41),
    ("torch-judged/param-linear", "launch-bound", 0.40, 0.63),
    ("torch-judged/param-linear", "zero-fill-gradients", 0.05, 0.16),
    ("torch-judged/v100-test", "tensor-cores-unused", 0.03, 0.15),
    ("torch/a100-nccl-process-groups", "launch-bound", 0.30, 0.76),
    ("torch/b200-eager-rank0of8", "launch-bound", 0.40, 0.87),
    ("torch/dlrm-8xv100", "per-tensor-optimizer", 0.03, 0.10),
    ("torch/gpu-user-annotation-steps", "launch-bound", 0.40, 0.97),
    ("torch/gpu-user-annotation-steps", "zero-fill-gradients", 0.04, 0.15),
    ("torch/h100-bert-small", "launch-bound", 0.40, 0.93),
    ("torch/h100-qwen05b", "elementwise-chain", 0.12, 0.40),
    ("torch/h100-vit", "launch-bound", 0.40, 0.84),
    ("torch/mi250-minitoy-train", "fill-then-copy", 0.01, 0.06),
    ("torch/mi300x-bert-small", "launch-bound", 0.40, 0.90),
    ("torch/mi300x-ddp-resnet18-train", "device-malloc", 0.80, 0.93),  # the device works for 7% of a step
    ("torch/mi300x-qwen05b", "elementwise-chain", 0.12, 0.40),
    ("torch/mi300x-vit", "launch-bound", 0.40, 0.77),
    ("torch/pairs/resnet50-workers0", "loader-workers", 0.20, 0.43),
    ("torch/pairs/resnet50-workers0", "per-tensor-optimizer", 0.04, 0.11),
    ("torch/pairs/resnet50-workers0", "zero-fill-gradients", 0.01, 0.05),
    ("torch/pairs/resnet50-workers4", "pageable-copies", 0.01, 0.05),
    ("torch/pairs/resnet50-workers4", "zero-fill-gradients", 0.01, 0.05),
    ("torch/resnet-param", "more-workers", 0.35, 0.60),
    ("torch/resnet-param", "pageable-copies", 0.01, 0.05),
    ("torch/v100-ns-resolution", "tensor-cores-unused", 0.20, 0.50),
    ("nsys/mfu-2gpu-before", "elementwise-chain", 0.03, 0.15),
    ("paddle/gpu-synthetic", "conv-bias-before-norm", 0.02, 0.08),
    ("real/gin", "per-tensor-optimizer", 0.05, 0.12),
    ("real/prec", "unbatched-loop", 0.05, 0.13),
]  # fmt: skip
WRONG: Final = [
    ("torch-judged/h100-owlv2", "unbatched-loop"),
    ("torch-judged/h100-owlv2", "unaligned-matmul"),
    ("torch-judged/param-linear", "elementwise-chain"),
    ("torch-judged/v100-test", "double-precision"),
    ("torch-judged/zero-durations", "launch-bound"),
    ("torch/alexnet-cuda-sync", "device-malloc"),
    ("torch/event-sync", "launch-bound"),
    ("torch/gpu-user-annotation-steps", "elementwise-chain"),
    ("torch/mi250-minitoy-train", "elementwise-chain"),
    ("torch/h100-qwen05b", "device-sync"),  # the wait of the harness for what ran before
    ("torch/mi300x-qwen05b", "device-sync"),
    ("serving/vllm-decode-graph.capture", "unbatched-loop"),
    ("nsys/mfu-2gpu-before", "pageable-copies"),
    ("real/fastai2", "tensors-from-lists"),
    ("real/gin", "unbatched-loop"),
    ("real/hapi", "too-few-threads"),
    ("real/prec", "per-tensor-optimizer"),
    ("real/prec", "too-few-threads"),
    ("real/sft", "save-each-step"),
]
CAUSES: Final = [
    ("nsys/h100-2gpu-1s", "exposed-copies", 0.90, "HtoD"),
    ("torch-judged/h100-owlv2", "host-code", 0.40, "zoom_shift"),
    ("torch-judged/v100-test", "exposed-copies", 0.10, "DtoD"),
    ("torch/cpu-only-rank34", "exposed-communication", 0.70, ""),
    ("torch/mi300x-resnet-act-checkpoint-steps", "exposed-communication", 0.60, "2.04"),
]


def file(name: str) -> Path:
    path = next((TRACES / f"{name}{end}" for end in ("", ".json.gz", ".json", ".sqlite")
                 if (TRACES / f"{name}{end}").exists()), None)  # fmt: skip
    if path is None:
        pytest.skip(f"{name} is not in {TRACES}")
    return path


@functools.cache
def advices(name: str) -> Advices:
    return advise(file(name))


def by_rule(name: str, rule: str) -> list[Advice]:
    return [item for item in advices(name).advice if item.rule == rule]


@pytest.mark.parametrize(("name", "rule", "least", "most"), SENT)
def test_advice_that_could_be_sent_keeps_a_plausible_saving(name: str, rule: str, least: float, most: float) -> None:
    (item,) = by_rule(name, rule)
    assert item.prediction.saving_ratio is not None
    assert least <= item.prediction.saving_ratio <= most


@pytest.mark.parametrize(("name", "rule"), WRONG)
def test_advice_that_was_wrong_is_gone(name: str, rule: str) -> None:
    assert by_rule(name, rule) == []


@pytest.mark.parametrize(("name", "rule", "share", "word"), CAUSES)
def test_large_causes_are_named_with_their_size(name: str, rule: str, share: float, word: str) -> None:
    items = [item for item in by_rule(name, rule) if word in f"{render(item.candidate.what)} {item.candidate.evidence}"]
    (item,) = items
    assert item.prediction.saving_ns is None
    assert (item.prediction.ceiling_ns or 0) >= share * item.prediction.base_ns
    assert item.id == advices(name).advice[0].id or rule != "exposed-communication"


RECORDINGS: Final = sorted({row[0] for row in (*SENT, *WRONG, *CAUSES)})


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_rule_fails(name: str) -> None:
    assert [rule for rule, why in advices(name).not_evaluable.items() if "the rule failed" in str(why)] == []


def messages(text: Any) -> Iterator[Message]:
    if isinstance(text, Message):
        yield text
        for value in text.values.values():
            yield from messages(value)


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_part_is_larger_than_its_whole(name: str) -> None:
    found = advices(name)
    for item in (*found.advice, *found.without_saving):
        for said in messages(item.candidate.what):
            whole = said.values.get("step", said.values.get("busy"))
            if "part" in said.values and whole is not None and "summed" not in said.template:
                assert said.values["part"] <= whole, render(item.candidate.what)
        p = item.prediction
        if p.ceiling_ns is not None:
            assert max(p.saving_ns or 0, p.saving_p90_ns or 0) <= p.ceiling_ns <= p.base_ns


@pytest.mark.parametrize("name", RECORDINGS)
def test_all_advice_together_saves_at_most_the_sum_and_the_step(name: str) -> None:
    found = advices(name)
    if found.combined is not None and found.combined.saving_ns is not None:
        alone = {item.id: item.prediction.saving_ns or 0 for item in found.advice}
        rest = {name: after.saving_ns for name, after in found.after.items()}
        assert found.combined.saving_ns <= found.combined.base_ns
        assert all(rest[name] <= alone[name] for name in rest if name in alone)


def accounts() -> dict[str, dict[str, Any]]:
    path = TRACES.parent / "account" / "expected.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["file"]: row for row in rows if "total_ns" in row}


ON_HOST: Final = {"launch-bound", "device-malloc", "loader-workers", "pageable-copies", "host-sync", "device-sync"}


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith("torch")])
def test_savings_of_host_work_are_at_most_the_time_in_which_the_device_waits_for_the_host(name: str) -> None:
    """The account is that of an independent program. It has no ranks, and its window is the recording without steps."""
    account = accounts().get(file(name).name)
    if account is None or (account["windows"] > 1 and "mi300x-resnet" in name):
        pytest.skip("no account of this recording")
    waits_ns = sum(account[word] for word in ("host", "latency", "tail", "copy"))
    device_ns, base = account["compute"] + account["communication"], advices(name).base
    assert base is not None
    if abs(account["total_ns"] - account["windows"] * base.recorded_ns) > 0.05 * account["total_ns"] or "qwen" in name:
        device_ns = 0  # the windows are not the steps, or hold work that was launched before the recording
    for item in advices(name).advice:
        if item.rule in ON_HOST and item.prediction.saving_ns is not None:
            assert item.prediction.saving_ns <= 1.05 * waits_ns / account["windows"]
            assert (item.prediction.p10_ns or 0) >= 0.97 * device_ns / account["windows"], "the device works as long"
