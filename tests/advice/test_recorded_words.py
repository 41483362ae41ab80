"""The remedy fits the recorded run: its optimizer, its devices, their runtime, and the purpose of copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from perfkit_core.advice.advice import Remedied
from perfkit_core.advice.engine import advise
from perfkit_core.advice.remedies import recorded_words, remedied
from perfkit_core.advice.rules.per_tensor_optimizer import class_of
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

NVIDIA = {"computeMinor": 0, "warpSize": 32}


def on(name: str | None, call: str = "cudaLaunchKernel", **properties: int) -> Trace:
    """Return a recording of one kernel on a device of this name."""
    rows = [host(call, "runtime", 0, 5, correlation=1), device("gemm", "kernel", 10, 5, 1)]
    found = trace(rows)
    devices = (Device("cuda:0", name, properties=properties),) if name else ()
    return replace(found, meta=msgspec.structs.replace(found.meta, devices=devices), _cache=None)


@pytest.mark.parametrize(
    ("name", "major", "half"),
    [
        ("Quadro GP100", 6, "float16"),
        ("Tesla V100-SXM2-32GB", 7, "float16"),
        ("NVIDIA GeForce RTX 2080 Ti", 7, "float16"),
        ("NVIDIA A100-SXM4-40GB", 8, "bfloat16"),
        ("NVIDIA H100 80GB HBM3", 9, "bfloat16"),
    ],
)
def test_bfloat16_from_compute_capability_8_on(name: str, major: int, half: str) -> None:
    words = recorded_words(on(name, computeMajor=major, **NVIDIA))
    assert (words["half"], words["device"], words["runtime"]) == (half, name, "cuda")


@pytest.mark.parametrize(
    ("phases", "training"),
    [(["forward"], "no"), (["forward", "backward"], "yes"), (["forward", "optimizer"], "yes"), ([None], "unknown")],
)
def test_training_has_a_backward_pass_or_an_optimizer(phases: list[str | None], training: str) -> None:
    rows = [host("mm", "operator", 10 * i, 5, phase=phase) for i, phase in enumerate(phases)]
    assert recorded_words(trace(rows))["training"] == training


@pytest.mark.parametrize(
    ("host_event", "kernel", "training"),
    [
        ("FullyShardedDataParallel.forward", "cutlass_gemm", "no"),
        ("RegisterPostBackwardFunction", "cutlass_gemm", "no"),
        ("forward", "cudnn_dgrad_engine", "no"),  # a transposed convolution
        ("backward", "cutlass_gemm", "yes"),
        ("a range", "sm90_xmma_wgrad_implicit_gemm", "yes"),
        ("a range", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "yes"),
    ],
)
def test_without_phases_names_show_a_training(host_event: str, kernel: str, training: str) -> None:
    rows = [host(host_event, "operator", 0, 5), device(kernel, "kernel", 10, 5)]
    assert recorded_words(trace(rows))["training"] == training


def test_the_remedy_for_casts_in_inference_has_no_loss(traces: Path) -> None:
    found = advise(load(traces / "torch" / "h100-qwen05b.json.gz"), rules=["casts"])
    (one,) = found.advice
    assert one.remedy is not None
    assert "backward" not in one.remedy.code


@pytest.mark.parametrize(
    ("name", "half"),
    [("AMD Instinct MI100", "float16"), ("AMD Instinct MI210", "bfloat16"), ("AMD Instinct MI300X VF", "bfloat16"),
     ("AMD Radeon Graphics", "unknown")],
)  # fmt: skip
def test_bfloat16_from_mi200_on(name: str, half: str) -> None:
    """An AMD device of capability 9.0 is an MI100 or an MI200; only the device name distinguishes them."""
    words = recorded_words(on(name, "hipLaunchKernel", computeMajor=9, computeMinor=0, warpSize=64))
    assert (words["half"], words["runtime"], words["clocks"].split()[0]) == (half, "hip", "amd-smi")


def test_words_without_recorded_devices() -> None:
    assert recorded_words(on(None))["half"] == "unknown"
    assert recorded_words(on("ARTEMIS"))["half"] == "unknown"
    on_host = recorded_words(trace([host("aten::mm", "operator", 0, 10)]))
    assert (on_host["half"], on_host["runtime"]) == ("bfloat16", "none")


@pytest.mark.parametrize(
    ("name", "kind", "steps", "words"),
    [
        ("Torch-Compiled Region: 0/0", "annotation", (0, 1, 2), "yes"),
        ("CompiledFunction", "operator", (1, 2), "yes"),
        ("CompiledFunction", "operator", (0,), "no"),  # of the warm-up
        ("torch/_dynamo/eval_frame.py(1): is_compiled", "python", (0, 1, 2), "no"),
        ("torch/_dynamo/__init__.py(1): <module>", "python", (1, 2), "no"),
    ],
)
def test_compiled_code_runs_in_most_steps(name: str, kind: str, steps: tuple[int, ...], words: str) -> None:
    rows = [host("step", "step", 100 * at, 100, step=at) for at in range(3)]
    rows += [host("mm", "operator", 100 * at + 20, 30) for at in range(3)]
    rows += [host(name, kind, 100 * at + 10, 50) for at in steps]
    assert recorded_words(trace(rows))["compiled"] == words


@pytest.mark.parametrize(("eager", "words"), [(0, "yes"), (9, "yes"), (10, "no")])
def test_compiled_code_does_a_tenth_of_the_work(eager: int, words: str) -> None:
    rows = [host("step", "step", 0, 1000, step=0)]
    for at, name in enumerate(["triton_poi_fused_add_mul_0", *["gemm"] * eager]):
        rows += [host("cuLaunchKernel", "runtime", 10 * at, 5, correlation=at)]
        rows += [device(name, "kernel", 10 * at + 5, 5, correlation=at)]
    found = trace(rows)
    found = replace(found, meta=msgspec.structs.replace(found.meta, framework="torch"), _cache=None)
    assert recorded_words(found)["compiled"] == words


@pytest.mark.parametrize(
    ("recorded", "whole", "name"),
    [("Optimizer.step#SGD.step", False, "SGD"), ("AdamW.step", False, "AdamW"), ("adam_ dygraph", True, "adam"),
     ("pd_op.sgd_", True, "sgd"), ("Optimization Step", False, "optimizer")],
)  # fmt: skip
def test_the_class_of_an_optimizer(recorded: str, whole: bool, name: str) -> None:
    assert class_of(recorded, whole) == name


NARROW = (
    Remedy("a", "{b} or {c}", "api of {b}", when={"b": ("1", "2"), "c": ("3",)}),
    Remedy("a", "for 1", "", when={"b": ("1",)}),
    Remedy("a", "for all", ""),
)


@pytest.mark.parametrize(
    ("words", "code"),
    [({"b": "2", "c": "3"}, "2 or 3"), ({"b": "1", "c": "4"}, "for 1"), ({"b": "3"}, "for all"), ({}, "for all")],
)
def test_the_first_remedy_that_fits_all_words(words: dict[str, str], code: str) -> None:
    found = remedied(NARROW, "a", "eager", words)
    assert found is not None
    assert found.code == code
    assert remedied(NARROW[:2], "a", "eager", {}) is None


def advised(file: Path, rule: str) -> Remedied:
    """Return the remedy of the first advice of a rule on a recording."""
    found = advise(load(file), rules=[rule])
    (one, *_) = (*found.advice, *found.without_saving)
    assert one.remedy is not None
    return one.remedy


def test_the_optimizer_of_the_recording(traces: Path) -> None:
    found = advised(traces / "torch" / "pairs" / "resnet50-workers0.json.gz", "per-tensor-optimizer")
    assert "torch.optim.SGD(model.parameters(), lr=lr, fused=True)" in found.code
    assert found.api == "torch.optim.SGD(fused=True)"
    found = advised(traces / "torch" / "dlrm-8xv100" / "rank0.json", "per-tensor-optimizer")
    assert "torch.optim.Adagrad(model.parameters(), lr=lr, foreach=True)" in found.code


def test_a_v100_gets_float16_and_a_scaler(traces: Path) -> None:
    found = advised(traces / "torch" / "v100-ns-resolution.json.gz", "tensor-cores-unused")
    assert "torch.float16" in found.code
    assert "GradScaler" in found.code
    assert str(found.note).startswith("Tesla V100-SXM2-32GB has no matrix units for bfloat16")


def test_an_allocator_of_the_runtime_of_the_recording(traces: Path) -> None:
    """Without a cache, settings of the cache do nothing."""
    found = advised(traces / "torch" / "mi300x-ddp-resnet18-train.json.gz", "device-malloc")
    assert "PYTORCH_NO_HIP_MEMORY_CACHING" in found.code
    words = {"backend": "cuda", "cache": "on"}
    hip, cuda = (
        remedied(get_plugins().framework("torch").remedies(), "device-malloc", "eager", {**words, "runtime": runtime})
        for runtime in ("hip", "cuda")
    )
    assert hip is not None
    assert "PYTORCH_HIP_ALLOC_CONF" in hip.code
    assert "expandable_segments" not in hip.code
    assert cuda is not None
    assert "expandable_segments:True" in cuda.code


def test_copies_of_a_language_model_are_no_convolutions(traces: Path) -> None:
    copies = advised(traces / "torch" / "h100-qwen05b.json.gz", "layout-transposes")
    assert "channels_last" not in copies.code
    assert "transpose(1, 2)" in copies.code
    convolutions = advised(traces / "torch" / "mi300x-resnet-act-checkpoint-steps.json.gz", "layout-transposes")
    assert "channels_last" in convolutions.code
