"""Remedies in Paddle: every rule has a remedy, the named API exists, and the code has the promised effect."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.remedies import read_remedies, remedied
from perfkit_core.plugins.contracts import Remedy
from tests.support.remedy_code import FILL, filled, ident, of

REMEDIES = read_remedies("perfkit_paddle")
CODED = [remedy for remedy in REMEDIES if remedy.code]
NOT_ON_A_CPU = {"device-sync"}
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::UserWarning:paddle.*"
    ),  # warnings on a host without devices, and with one process
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def test_a_rule_with_a_remedy_for_one_mode_has_one_for_the_other() -> None:
    modes = {(remedy.rule, remedy.mode) for remedy in REMEDIES}
    for rule, mode in modes:
        assert mode == "any" or {(rule, "eager"), (rule, "static")} <= modes


def test_remedies_name_arguments_that_paddles_optimizers_have(paddle) -> None:
    """The recorded name of an optimizer's operator is its class name in lower case."""
    known = {name: one for name, one in vars(paddle.optimizer).items() if isinstance(one, type)}
    assert {"SGD", "AdamW", "Momentum"} <= set(known)
    for name, one in known.items():
        remedy = remedied(
            REMEDIES, "per-tensor-optimizer", "eager", {"optimizer_class": name.lower(), "embeddings": "no"}
        )
        has = "use_multi_tensor" in inspect.signature(one).parameters
        assert (f"paddle.optimizer.{name}(" in remedy.code) == has
        assert "{" not in str(remedy.note)


@pytest.fixture
def scope(paddle, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the variables that the code of remedies needs: those of a small training."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    paddle.seed(0)
    model = paddle.nn.Linear(8, 8)
    data = paddle.randn([256, 8])
    rows = [row.numpy() for row in data]
    yield {
        "paddle": paddle, "model": model, "dataset": rows, "batch": data[:4], "epochs": 1, "workers": 1,
        "optimizer": paddle.optimizer.SGD(0.1, parameters=model.parameters()), "loader": data.split(256),
        "batch_size": 4, "inputs": data[:4], "targets": data[4:8], "hidden": data[:4], "features": 8, "classes": 5,
        "criterion": paddle.nn.functional.mse_loss, "blocks": [model, paddle.nn.ReLU()], "accumulate": 4,
        "logged": (logged := []), "log": lambda loss: logged.append(1),
        "train_step": (loss := lambda batch: model(batch if paddle.is_tensor(batch) else batch[0]).sum()),
        "compute_loss": loss, "rows": data[:4], "weight": data[4], "mask": data[:4] > 0,
        "gradient": data[:4], "query": paddle.randn([2, 3, 2, 4]), "key": paddle.randn([2, 3, 2, 4]),
        "value": paddle.randn([2, 3, 2, 4]), "joint": paddle.randn([2, 3, 24]), "heads": 2, "lr": 0.01,
        "queries": list(paddle.randn([3, 4, 8])), "keys": list(paddle.randn([3, 5, 8])), "values": paddle.randn([6, 8]),
        "sizes": [3, 4], "width": 8, "ids": paddle.to_tensor([[2, 0], [0, 3]]), "input_size": 8, "hidden_size": 4,
        "sequences": paddle.randn([2, 3, 8]),
        "labels": np.ones((4, 8)), "attention_mask": paddle.triu(paddle.full([3, 3], -1e4), 1),
        "indices": [0, 2], "array": np.ones((4, 8)), "numpy": np,
        "noise": data[:4], "results": [], "x": data[:4],
        "prepare": lambda one: one + 1,
    }  # fmt: skip
    paddle.incubate.autotune.set_config({"kernel": {"enable": False}})


def ran(scope: dict[str, Any], rule: str, mode: str | None = None) -> dict[str, Any]:
    """Return the variables after the code of a rule has run."""
    exec(compile(filled(of(REMEDIES, rule, mode)), rule, "exec"), scope)
    return scope


RUNS = [one for one in CODED if one.mode != "static" and one.rule not in NOT_ON_A_CPU | {"accumulation-sync"}]


@pytest.mark.parametrize("remedy", RUNS, ids=ident)
def test_the_code_runs_on_the_host(remedy: Remedy, scope: dict[str, Any]) -> None:
    try:
        exec(compile(filled(remedy), remedy.rule, "exec"), scope)
    except (NotImplementedError, RuntimeError) as error:  # Paddle 2.6 has no CPU kernels for attention with masks
        if not re.search("only supports GPU|`flash_attn` is not registered", str(error)):
            raise
        pytest.skip(f"this Paddle has no kernel for hosts: {error}"[:200])
    check: Callable[[dict[str, Any]], Any] = CHECKS.get(ident(remedy)) or CHECKS[remedy.rule]
    assert check(scope)


def _attention(left: dict[str, Any]) -> bool:
    heads = [left[name].numpy().transpose(0, 2, 1, 3) for name in ("query", "key", "value")]
    scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) / 2  # 2 is the square root of the width
    scores = np.exp(np.where(np.tri(3, dtype=bool), scores, -np.inf))
    expected = scores / scores.sum(-1, keepdims=True) @ heads[2]
    return np.allclose(left["out"].numpy(), expected.transpose(0, 2, 1, 3), atol=1e-5)


def _same_update(left: dict[str, Any], as_sgd: bool = False) -> bool:
    """One step for many tensors equals the loop over the parameters."""
    paddle, model = left["paddle"], left["model"]
    twin = paddle.nn.Linear(8, 8)
    twin.set_state_dict(model.state_dict())
    plain = (paddle.optimizer.SGD if as_sgd else type(left["optimizer"]))(left["lr"], parameters=twin.parameters())
    for _ in range(2):  # the second run uses the variables of the first
        for one, optimizer in ((model, left["optimizer"]), (twin, plain)):
            one(left["batch"]).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    return all(np.allclose(one.numpy(), other.numpy(), rtol=1e-6) for one, other in pairs)


def _bias_is_lost(left: dict[str, Any]) -> bool:
    """A bias before the norm does not change the result."""
    images = left["paddle"].randn([2, 3, 8, 8])
    conv, norm = left["block"][0], left["block"][1]
    return np.allclose(left["block"](images).numpy(), norm(conv(images) + 3.0).numpy(), atol=1e-4)


def _channels_last(left: dict[str, Any]) -> bool:
    return left["block"](left["paddle"].randn([2, 8, 8, 3])).shape == [2, 6, 6, 64]


def _same_gradient(left: dict[str, Any]) -> bool:
    paddle = left["paddle"]
    start = paddle.randn([4, 8])
    start.stop_gradient = False
    scope = {"paddle": paddle, "blocks": left["blocks"], "hidden": start}
    exec(filled(of(REMEDIES, "memory-near-limit")), scope)
    scope["hidden"].sum().backward()
    again = start.grad.numpy()
    start.clear_gradient()
    paddle.nn.functional.relu(left["model"](start)).sum().backward()
    return np.array_equal(again, start.grad.numpy())


def _products(left: dict[str, Any]) -> bool:
    products = [query.numpy() @ key.numpy().T for query, key in zip(left["queries"], left["keys"], strict=True)]
    return np.allclose(left["scores"].numpy(), np.stack(products), atol=1e-6)


def _lookups(left: dict[str, Any]) -> bool:
    """The second field begins after the three rows of the first one."""
    return np.array_equal(left["vectors"].numpy(), left["table"].weight.numpy()[[[2, 3], [0, 6]]])


def _once(left: dict[str, Any]) -> bool:
    """The outputs serve metrics and still have gradients."""
    left["loss"].backward()
    return left["model"].weight.grad is not None and left["predicted"].shape == [4]


def _environment(name: str, value: str | None) -> Callable[[dict[str, Any]], bool]:
    return lambda left: os.environ.get(name) == value


CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tiny-ops-on-device-eager": lambda left: int(left["count"]) == 1 and left["count"].place.is_cpu_place(),
    "host-tensor-in-graph": lambda left: (
        float(left["Scaled"]()(left["paddle"].ones([]))) == 0.5 and not left["Scaled"]().state_dict()
    ),
    "ping-pong-copies-eager": lambda left: left["means"].shape == (256,),
    "fill-then-copy": lambda left: left["mask"].shape == left["noise"].shape == [4, 8],
    "cpu-fallback": lambda left: bool((np.diff(left["values"].numpy()) >= 0).all()),
    "pageable-copies": lambda left: left["loader"].use_buffer_reader,
    "host-sync-eager": lambda left: left["step"] == 255 and float(left["total"]) != 0,
    "host-sync-eager-no": lambda left: len(left["results"]) == 256,
    "unbatched-loop-time-steps": lambda left: left["outputs"].shape == [2, 3, 4],
    "unbatched-loop-lookups": _lookups,
    "unbatched-loop-products": _products,
    "micro-batches": lambda left: left["loader"].batch_sampler.batch_size == 32,
    "double-precision": lambda left: {str(left[one].dtype) for one in ("inputs", "targets")} == {"paddle.float32"},
    "emulated-precision": lambda left: left["model"].weight.grad is not None,
    "autograd-in-inference": lambda left: left["outputs"].stop_gradient,
    "rebuilt-constants": lambda left: (
        (left["Masked"](3)(left["paddle"].zeros([3, 3])).numpy() == 0).tolist() == np.tri(3, dtype=bool).tolist()
    ),
    "tensors-from-lists": lambda left: left["batch"].shape == [2, 8],
    "save-each-step": lambda left: left["logged"] == [1, 1],
    "conv-layout-cuda": _channels_last,
    "repeated-forward": _once,
    "data-on-training-thread": lambda left: np.array_equal(left["Prepared"]([np.ones(2)])[0], np.full(2, 2.0)),
    "loader-workers": lambda left: left["loader"].num_workers == int(FILL["workers"]),
    "epoch-gap": lambda left: left["loader"]._persistent_workers,
    "more-workers": lambda left: left["loader"].num_workers == 2 and left["loader"].prefetch_factor == 4,
    "thread-oversubscription": _environment("OMP_NUM_THREADS", FILL["threads"]),
    "device-malloc": _environment("FLAGS_allocator_strategy", "auto_growth"),
    "launch-bound-eager": lambda left: left["model"](left["batch"]).shape == [4, 8],
    "elementwise-chain-cuda": lambda left: callable(left["activation"]),
    "elementwise-chain": lambda left: np.allclose(
        left["out"].numpy(), (0.5 * left["x"] * (1 + left["paddle"].erf(left["x"] / 2**0.5))).numpy(), atol=1e-6
    ),
    "per-tensor-optimizer-adam": _same_update,
    "per-tensor-optimizer-momentum": _same_update,
    "per-tensor-optimizer-sgd": lambda left: _same_update(left, as_sgd=True),
    "zero-fill-gradients": lambda left: all(one.grad is None for one in left["model"].parameters()),
    "select-loop": lambda left: np.allclose(
        left["scores"].numpy(), [float((row * left["weight"]).sum()) for row in left["rows"]], atol=1e-5
    ),
    "host-gap": lambda left: left["logged"] == [1, 1],
    "casts": lambda left: float(left["loss"]) > 0,
    "tensor-cores-unused": lambda left: left["model"].weight.grad is not None,
    "tf32-off": _environment("NVIDIA_TF32_OVERRIDE", None),
    "unaligned-matmul": lambda left: left["logits"].shape == [4, 5],
    "layout-transposes": _channels_last,
    "layout-transposes-copies": lambda left: left["out"].shape == [2, 3, 2, 4] and left["scores"].shape == [4],
    "tensor-cores-unused-half": lambda left: left["layer"].weight.shape == [8, 8],
    "conv-autotune": lambda left: left["paddle"].get_flags("FLAGS_use_autotune")["FLAGS_use_autotune"],
    "unfused-attention-cuda": _attention,
    "conv-bias-before-norm": _bias_is_lost,
    "memory-near-limit": _same_gradient,
    "exposed-communication": lambda left: isinstance(left["model"], left["paddle"].DataParallel),
    "rank-skew": lambda left: len(left["loader"].dataset) == len(left["dataset"]),
    "recompilation": lambda left: left["model"](left["paddle"].ones([3, 8])).shape == [3, 8],
}


def test_gradients_are_reduced_once_in_an_accumulation(scope: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 8 micro-steps and 4 per update, so 2 updates. Gradients are reduced in 2 micro-steps only."""
    model = scope["paddle"].DataParallel(scope["model"])
    kept, updates = [], []
    plain = model.no_sync
    monkeypatch.setattr(model, "no_sync", lambda: kept.append(1) or plain())
    monkeypatch.setattr(scope["optimizer"], "step", lambda: updates.append(1))
    scope |= {"model": model, "loader": scope["loader"][:8], "compute_loss": lambda batch: model(batch).sum()}
    ran(scope, "accumulation-sync")
    assert (len(kept), len(updates)) == (6, 2)


@pytest.fixture
def static(paddle) -> Iterator[dict[str, Any]]:
    """Return the variables that the code for static graphs needs: those of a program that adds 1."""
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        x = paddle.static.data("x", [2], "float32")
        yield {"paddle": paddle, "program": program, "x": x, "out": x + 1, "executor": paddle.static.Executor()}
    paddle.disable_static()


def test_a_guarded_counter_counts(static: dict[str, Any]) -> None:
    ran(static, "tiny-ops-on-device", "static")
    feed = {"x": np.zeros(2, "float32")}
    count, going_on = static["executor"].run(
        static["program"], feed=feed, fetch_list=[static["count"], static["going_on"]]
    )
    assert (count.tolist(), going_on.tolist()) == ([1], [True])


def test_fetched_results_are_fed_again(static: dict[str, Any]) -> None:
    static |= {"state": np.zeros(2, "float32"), "rounds": 3}
    ran(static, "ping-pong-copies", "static")
    assert np.array(static["state"]).tolist() == [3, 3]


def test_one_step_in_a_hundred_fetches(static: dict[str, Any]) -> None:
    static |= {"batches": [np.zeros(2, "float32")] * 100, "loss": static["out"]}
    ran(static, "host-sync", "static")
    assert static["fetched"][0].tolist() == [1, 1]


def test_a_flag_switches_graphs_of_the_device_on(scope: dict[str, Any]) -> None:
    ran(scope, "launch-bound", "static")
    flag = "FLAGS_new_executor_use_cuda_graph"
    assert os.environ[flag] == "1"
    assert flag in scope["paddle"].get_flags(flag)


def test_every_check_has_its_remedy() -> None:
    assert set(CHECKS) <= {ident(remedy) for remedy in REMEDIES}
