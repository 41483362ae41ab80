"""Remedies in PyTorch: every rule has a remedy, the named API exists, and the code has the promised effect."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core import load
from perfkit_core.advice.engine import advise
from perfkit_core.advice.remedies import read_remedies, remedied
from perfkit_core.plugins.contracts import Remedy
from perfkit_torch import trace_handler
from tests.support.remedy_code import FILL, filled, ident, names, of, unknown_arguments

torch = pytest.importorskip("torch")
REMEDIES = read_remedies("perfkit_torch")
ON_NPU = [remedy for remedy in REMEDIES if remedy.when.get("backend") == ("npu",)]
CODED = [remedy for remedy in REMEDIES if remedy.code and remedy not in ON_NPU]
NOT_ON_A_CPU = {"device-sync"}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),  # from torch.compile
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # few cores
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def test_remedies_name_arguments_that_torchs_optimizers_have() -> None:
    """The remedy uses ``fused`` if the optimizer has this argument, else ``foreach`` if it has that argument, else
    neither."""
    known = {name for name, one in vars(torch.optim).items() if isinstance(one, type) and name != "Optimizer"}
    assert {"SGD", "AdamW", "LBFGS"} <= known
    for name in known:
        has = inspect.signature(getattr(torch.optim, name)).parameters
        words = {"optimizer_class": name, "runtime": "none", "backend": "cpu"}
        remedy = remedied(REMEDIES, "per-tensor-optimizer", "eager", words)
        expected = next((word for word in ("fused", "foreach") if word in has), None)
        assert [word for word in ("fused", "foreach") if f"{word}=True" in remedy.code] == [expected] * bool(expected)
        assert f"torch.optim.{name}(" in remedy.code or expected is None


def test_adagrad_has_a_fused_kernel_for_hosts_first() -> None:
    words = {"optimizer_class": "Adagrad", "runtime": "cuda", "backend": "cuda"}
    on_device = remedied(REMEDIES, "per-tensor-optimizer", "eager", words)
    assert ("foreach=True" in on_device.code, on_device.since) == (True, "1.12")


def test_no_remedy_for_an_npu_names_what_only_other_devices_have() -> None:
    words = ("cuda", "cudnn", "nccl", "nvidia", "tf32", "torch.compile", "fused=true")
    for remedy in REMEDIES:
        if "npu" in remedy.when.get("backend", ("npu",)):
            text = f"{remedy.code} {remedy.api} {remedy.note}".lower()
            assert not [word for word in words if word in text]


def test_a_wrong_name_and_a_wrong_argument_are_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        list(names("torch.optim.Nothing()", "torch"))
    assert unknown_arguments("torch.optim.SGD(p, nothing=1)", "torch") == ["torch.optim.SGD(nothing=)"]


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the variables that the code of remedies needs: those of a small training."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    torch.manual_seed(0)
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    model = torch.nn.Linear(8, 8)
    data = torch.randn(256, 8)
    yield {
        "torch": torch, "device": torch.device("cpu"), "model": model, "dataset": data, "batch": data[:4], "epochs": 1,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loader": list(data.split(1)), "workers": 1,
        "processes": 1, "batch_size": 4, "inputs": data[:4], "targets": data[4:8], "hidden": data[:4], "features": 8,
        "criterion": torch.nn.functional.mse_loss, "blocks": [model, torch.nn.ReLU()], "classes": 5,
        "logged": (logged := []), "log": lambda loss: logged.append(1),
        "train_step": lambda batch: model(batch).sum(), "compute_loss": lambda batch: model(batch).sum(),
        "rows": data[:4], "weight": data[4], "mask": data[:4] > 0, "gradient": data[:4], "accumulate": 4,
        "images": torch.randn(2, 3, 4, 4), "query": torch.randn(2, 2, 3, 4), "key": torch.randn(2, 2, 3, 4),
        "value": torch.randn(2, 2, 3, 4), "joint": torch.randn(2, 3, 24), "heads": 2, "lr": 0.01,
        "queries": list(torch.randn(3, 4, 8)), "keys": list(torch.randn(3, 5, 8)), "values": torch.randn(6, 8),
        "indices": [0, 2], "sizes": [3, 4], "width": 8, "ids": torch.tensor([[2, 0], [0, 3]]), "input_size": 8,
        "hidden_size": 4, "sequences": torch.randn(2, 3, 8),
        "array": np.ones((4, 8)), "labels": np.ones((4, 8)), "numpy": np, "noise": data[:4], "results": [],
        "attention_mask": torch.ones(3, 3, dtype=torch.bool).tril(), "prepare": lambda one: one + 1,
        "ema": torch.nn.Linear(8, 8).apply(lambda layer: layer.requires_grad_(False).weight.zero_()), "decay": 0.9,
        "pipe": lambda inputs, **options: [options] * len(inputs),
    }  # fmt: skip
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = False


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the environment variables of torchrun for one process on the host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def ran(scope: dict[str, Any], rule: str) -> dict[str, Any]:
    """Return the variables after the code of a rule has run."""
    exec(compile(filled(of(REMEDIES, rule)), rule, "exec"), scope)
    return scope


SEVERAL = {"exposed-communication", "accumulation-sync", "rank-skew"}
RUNS = [remedy for remedy in CODED if remedy.rule not in NOT_ON_A_CPU | SEVERAL]


@pytest.mark.parametrize("remedy", RUNS, ids=ident)
def test_the_code_runs_on_the_host(remedy: Remedy, scope: dict[str, Any]) -> None:
    with torch.compiler.set_stance("force_eager"):  # the compiled result is not under test
        exec(compile(filled(remedy), remedy.rule, "exec"), scope)
        check: Callable[[dict[str, Any]], Any] = CHECKS.get(ident(remedy), lambda left: True)
        assert check(scope) is not False


def _attention(left: dict[str, Any]) -> bool:
    weights = left["query"] @ left["key"].transpose(-2, -1) / 2  # 2 is the square root of the width
    weights = weights.masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf"))
    return torch.allclose(left["out"], weights.softmax(-1) @ left["value"], atol=1e-5)


def _no_gradients(left: dict[str, Any]) -> bool:
    return all(parameter.grad is None for parameter in left["model"].parameters())


def _same_update(left: dict[str, Any]) -> bool:
    """One step for all tensors equals the loop over the parameters."""
    model, twin = left["model"], torch.nn.Linear(8, 8)
    twin.load_state_dict(model.state_dict())
    plain = type(left["optimizer"])(twin.parameters(), lr=left["lr"], foreach=False)
    for one, optimizer in ((model, left["optimizer"]), (twin, plain)):
        one(left["batch"]).sum().backward()
        optimizer.step()
    return all(torch.allclose(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def _steps(left: dict[str, Any]) -> bool:
    before = left["model"].weight.detach().clone()
    left["model"](left["batch"]).sum().backward()
    left["update"]()
    return not torch.equal(before, left["model"].weight)


def _joint_attention(left: dict[str, Any]) -> bool:
    """Two heads of width 4 come from one projection. Query, key and value are views of the projection."""
    joint = left["joint"]
    parts = [part.reshape(2, 3, 2, 4).permute(0, 2, 1, 3).contiguous() for part in joint.chunk(3, dim=-1)]
    scores = (parts[0] @ parts[1].transpose(-2, -1) / 2).softmax(-1)
    views = all(left[name].untyped_storage().data_ptr() == joint.data_ptr() for name in ("query", "key", "value"))
    return views and torch.allclose(left["out"], (scores @ parts[2]).transpose(1, 2).reshape(2, 3, 8), atol=1e-5)


def _scaled(left: dict[str, Any]) -> bool:
    """The optimizer has made a step with gradients of the same type as the parameters."""
    return left["scaler"].is_enabled() and left["model"].weight.grad.dtype == torch.float32


def _bias_is_lost(left: dict[str, Any]) -> bool:
    """A bias before the norm does not change the result."""
    images = torch.randn(2, 3, 8, 8)
    conv = left["block"][0]
    return torch.allclose(left["block"](images), left["block"][1](conv(images) + 3.0), atol=1e-4)


def _same_gradient(left: dict[str, Any]) -> bool:
    start = torch.randn(4, 8, requires_grad=True)
    scope = {"torch": torch, "blocks": left["blocks"], "hidden": start}
    exec(filled(of(REMEDIES, "memory-near-limit")), scope)
    again, *_ = torch.autograd.grad(scope["hidden"].sum(), start)
    plain, *_ = torch.autograd.grad(torch.relu(left["model"](start)).sum(), start)
    return torch.equal(again, plain)


def _products(left: dict[str, Any]) -> bool:
    products = [query @ key.T for query, key in zip(left["queries"], left["keys"], strict=True)]
    return torch.allclose(left["scores"], torch.stack(products), atol=1e-6)


def _lookups(left: dict[str, Any]) -> bool:
    """The second field begins after the three rows of the first one."""
    return torch.equal(left["vectors"], left["table"].weight[torch.tensor([[2, 3], [0, 6]])])


def _averaged(left: dict[str, Any]) -> bool:
    """The average of the weights was 0 before."""
    return torch.allclose(left["ema"].weight, 0.1 * left["model"].weight)


def _once(left: dict[str, Any]) -> bool:
    """The outputs serve metrics and still have gradients."""
    left["loss"].backward()
    return left["model"].weight.grad is not None and left["predicted"].shape == (4,)


CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tiny-ops-on-device": lambda left: int(left["count"]) == 1 and not left["gradient"][~left["mask"]].any(),
    "host-tensor-in-graph": lambda left: (
        left["Scaled"]()(torch.ones(1)).item() == 0.5 and not left["Scaled"]().state_dict()
    ),
    "fill-then-copy": lambda left: left["mask"].shape == left["noise"].shape == (4, 8),
    "ping-pong-copies": lambda left: left["means"].shape == (256,) and left["means"].abs().max() < 1e-6,
    "cpu-fallback": lambda left: bool((left["values"].diff() >= 0).all()),
    "host-sync": lambda left: left["step"] == 255 and float(left["total"]) != 0,
    "device-malloc": lambda left: os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True",
    "device-malloc-hip": lambda left: os.environ["PYTORCH_HIP_ALLOC_CONF"] == "roundup_power2_divisions:4",
    "loader-workers": lambda left: left["loader"].num_workers == int(FILL["workers"]),
    "epoch-gap": lambda left: left["loader"].persistent_workers,
    "more-workers": lambda left: left["loader"].num_workers == 2 and left["loader"].prefetch_factor == 4,
    "thread-oversubscription": lambda left: torch.get_num_threads() == int(FILL["threads"]),
    "launch-bound": lambda left: left["model"](left["batch"]).shape == (4, 8),
    "elementwise-chain": lambda left: left["activation"](torch.zeros(2), torch.zeros(2)).tolist() == [0, 0],
    "per-tensor-optimizer-Adam": _same_update,
    "per-tensor-optimizer-SGD": _same_update,
    "per-tensor-optimizer-Adagrad-none": _same_update,
    "per-tensor-optimizer-Adagrad": _same_update,
    "per-tensor-optimizer": _steps,
    "zero-fill-gradients": _no_gradients,
    "select-loop": lambda left: torch.allclose(
        left["scores"], torch.stack([(row * left["weight"]).sum() for row in left["rows"]])
    ),
    "host-gap": lambda left: left["logged"] == [1, 1],
    "casts": lambda left: left["model"].weight.grad.dtype == torch.float32,
    "casts-float16": _scaled,
    "tensor-cores-unused-float16": _scaled,
    "tensor-cores-unused-half": lambda left: left["layer"].in_features == 8,
    "tf32-off": lambda left: torch.get_float32_matmul_precision() == "high",
    "unaligned-matmul": lambda left: left["head"].out_features == 8 and left["logits"].shape == (4, 5),
    "layout-transposes-copies": _joint_attention,
    "layout-transposes-convolutions": lambda left: left["images"].is_contiguous(memory_format=torch.channels_last),
    "conv-autotune": lambda left: torch.backends.cudnn.benchmark,
    "unfused-attention": _attention,
    "conv-bias-before-norm": _bias_is_lost,
    "memory-near-limit": _same_gradient,
    "host-sync-no": lambda left: len(left["results"]) == 256,
    "unbatched-loop-updates": _averaged,
    "unbatched-loop-time-steps": lambda left: left["outputs"].shape == (2, 3, 4),
    "unbatched-loop-lookups": _lookups,
    "unbatched-loop-products": _products,
    "micro-batches": lambda left: left["loader"].batch_size == 32,
    "double-precision": lambda left: (
        left["inputs"].dtype == left["targets"].dtype == left["model"].weight.dtype == torch.float32
    ),
    "emulated-precision": lambda left: left["model"].weight.grad.dtype == torch.float32,
    "autograd-in-inference": lambda left: left["outputs"].is_inference(),
    "rebuilt-constants": lambda left: (
        left["Masked"](4)(torch.zeros(3, 3)).isinf().tolist() == torch.ones(3, 3).triu(1).bool().tolist()
    ),
    "tensors-from-lists": lambda left: left["batch"].dtype == torch.float32 and left["batch"].shape == (2, 8),
    "save-each-step": lambda left: left["logged"] == [1, 1],
    "conv-layout": lambda left: left["images"].is_contiguous(memory_format=torch.channels_last),
    "repeated-forward": _once,
    "data-on-training-thread": lambda left: torch.equal(left["Prepared"](left["rows"])[1], left["rows"][1] + 1),
    "recompilation": lambda left: left["model"](torch.ones(3, 8)).shape == (3, 8),
}


@pytest.mark.parametrize("rule", ["exposed-communication", "rank-skew"])
def test_the_code_for_several_processes_runs_in_one(rule: str, scope: dict[str, Any], one_process: None) -> None:
    torch.distributed.init_process_group("gloo")
    ran(scope, rule)
    wrapped = isinstance(scope["model"], torch.nn.parallel.DistributedDataParallel)
    assert wrapped == (rule != "rank-skew")
    assert rule != "rank-skew" or len(scope["loader"].dataset) == len(scope["dataset"])


def test_gradients_are_reduced_once_in_an_accumulation(scope: dict[str, Any], one_process: None) -> None:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(scope["model"])
    reduced = []

    def hook(state, bucket):  # without annotations: torch would inspect them, and they are strings here
        reduced.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)
    scope |= {"model": model, "loader": scope["loader"][:8], "compute_loss": lambda batch: model(batch).sum()}
    ran(scope, "accumulation-sync")
    assert len(reduced) == 2  # 8 micro-steps with 4 per update, and one bucket


def test_the_number_of_threads_is_recorded(tmp_path: Path) -> None:
    """The rule about threads fires, because the recorded number of threads exceeds the cores."""
    before, threads = torch.get_num_threads(), 4 * os.cpu_count()
    torch.set_num_threads(threads)
    try:
        with torch.profiler.profile(on_trace_ready=trace_handler(tmp_path)) as profiler:
            torch.ones(2) + 1
    finally:
        torch.set_num_threads(before)
    profiler.on_trace_ready.flush()
    found = advise(load(tmp_path), rules=["thread-oversubscription"])
    (advice,) = (*found.advice, *found.without_saving)  # the only operator is short
    assert advice.candidate.evidence["threads"] == threads
    assert advice.remedy is not None
    assert f"set_num_threads({advice.candidate.evidence['proposed_threads']})" in advice.remedy.code


def test_every_check_has_its_remedy() -> None:
    assert set(CHECKS) <= {ident(remedy) for remedy in REMEDIES}
