"""Paddle's operators in the vocabulary. The same function has the same canonical name in both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import perfkit_core as perfkit
import perfkit_paddle
import perfkit_torch
from perfkit_core.base.operators.names import family, is_container
from perfkit_core.trace.model.schema import OPERATOR
from perfkit_paddle.operator_names import operator_name

UNMAPPED_AT_MOST = 0.01


def _installed() -> list[str]:
    """Return the operators of the installed Paddle: Python calls, operators of static graphs, and kernels."""
    core = paddle.base.core
    calls = {name for name in dir(paddle._C_ops) if not name.startswith(("_", "get_core_ops_"))}
    return sorted(calls | set(core.get_all_op_names()) | set(core._get_all_register_op_kernels("phi")))


def test_operators_of_the_installed_version_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The report lists the operators that no rule names."""
    names = _installed()
    unmapped = [name for name in names if operator_name(name) is None]
    with capsys.disabled():
        print(f"\npaddle {paddle.__version__}: {len(unmapped)} of {len(names)} unmapped: {' '.join(unmapped)}")
    assert len(names) > 1000
    assert len(unmapped) <= UNMAPPED_AT_MOST * len(names)


def test_gradients_are_of_the_family_of_their_operators() -> None:
    """Paddle lists both ``x`` and ``x_grad``."""
    names = set(_installed())
    pairs = [(name, f"{name}_grad") for name in names if f"{name}_grad" in names]
    assert len(pairs) > 300
    found = {name: (family(operator_name(name)), family(operator_name(grad))) for name, grad in pairs}
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}


def _functions(lib: Any, nn: Any) -> dict[str, Callable[[Any], Any]]:
    """Return functions with the same Python name in both frameworks, called on a 4 by 4 matrix of numbers between 0 and
    1."""
    plain = "exp log sqrt rsqrt abs sin cos tan floor ceil round sign sigmoid tanh square reciprocal sum mean max " \
            "min prod argmax sort any all diag tril isnan erf asin atan sinh cosh trunc"  # fmt: skip
    activations = "relu gelu silu leaky_relu elu softplus mish hardswish hardsigmoid selu softshrink"
    pairs = "add subtract multiply divide pow maximum minimum matmul"
    found: dict[str, Callable[[Any], Any]] = {name: getattr(lib, name) for name in plain.split()}
    found |= {name: getattr(nn, name) for name in activations.split()}
    found |= {name: _of_two(getattr(lib, name)) for name in pairs.split()}
    return found | {
        "softmax": lambda x: nn.softmax(x, -1),
        "log_softmax": lambda x: nn.log_softmax(x, -1),
        "bmm": lambda x: lib.bmm(x[None], x[None]),
        "flip": lambda x: lib.flip(x, [0]),
        "cumsum": lambda x: lib.cumsum(x, 0),
        "logsumexp": lambda x: lib.logsumexp(x, 0),
        "roll": lambda x: lib.roll(x, 1),
        "topk": lambda x: lib.topk(x, 2),
        "nonzero": lib.nonzero,
        "clip": lambda x: lib.clip(x, 0, 1),
        "where": lambda x: lib.where(x > 0, x, x),
        "stack": lambda x: lib.stack([x, x]),
        "inverse": lambda x: lib.linalg.inv(x + 9 * lib.eye(4)),
    }  # fmt: skip


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x, x)


TORCH = _functions(torch, torch.nn.functional)
PADDLE = _functions(paddle, paddle.nn.functional)


def _names(run: Path, label: str) -> dict[str, set[str]]:
    """Return the canonical names of the operators in the label of each function."""
    frame = perfkit.load(run).to_pandas()
    parent, names = frame["parent"].to_numpy(), frame["name"].to_numpy(object)
    found: dict[str, set[str]] = {}
    for row in np.flatnonzero((frame["kind"] == OPERATOR).to_numpy() & frame["op_name"].notna().to_numpy()):
        above = parent[row]
        while above >= 0 and not str(names[above]).startswith(label):
            above = parent[above]
        if above >= 0:
            found.setdefault(str(names[above]).removeprefix(label), set()).add(str(frame["op_name"].iloc[row]))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Record each function once in each framework, with the framework's own profiler, in a label of its own."""
    folder = tmp_path_factory.mktemp("functions")
    numbers = np.random.default_rng(0).random((4, 4), np.float32)
    with torch.profiler.profile(on_trace_ready=perfkit_torch.trace_handler(folder / "torch")):
        for name in TORCH:
            with torch.profiler.record_function(f"f:{name}"):
                TORCH[name](torch.from_numpy(numbers))
    tensor = paddle.to_tensor(numbers)
    with paddle.profiler.Profiler(on_trace_ready=perfkit_paddle.trace_handler(folder / "paddle")):
        for name in TORCH:
            with paddle.profiler.RecordEvent(f"f:{name}"):
                PADDLE[name](tensor)
    return _names(folder / "torch", "f:"), _names(folder / "paddle", "f:")


@pytest.mark.parametrize("name", TORCH)
def test_the_same_function_has_the_same_name(both: tuple[dict[str, set[str]], dict[str, set[str]]], name: str) -> None:
    """The frameworks implement a function differently, but at least one canonical operator is the same."""
    of_torch, of_paddle = both[0][name], both[1][name]
    assert of_torch & of_paddle, f"torch: {of_torch}, paddle: {of_paddle}"
    assert not any(is_container(found) for found in of_torch | of_paddle)
