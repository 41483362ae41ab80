"""Memory by category in live runs of both frameworks, compared with tensors and torch's own categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.output.report import pictures
from perfkit_core.readers.load import load
from tests.support.frameworks import Framework
from tests.support.torch_models import MODELS


def at_peak(source: Path) -> dict[str, int]:
    return summarize(source, "memory_categories").set_index("category")["bytes"].to_dict()


def _trained(torch: Any, net: Any, batch: Any) -> Any:
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        net(batch).square().sum().backward()
        optimizer.step()
    return net, optimizer


@pytest.mark.parametrize("model", ["conv", "transformer"])
def test_categories_of_torchs_own_memory_profile(torch: Any, tmp_path: Path, model: str) -> None:
    """At the peak, torch's parameters, gradients, optimizer states and activations have as many bytes as perfkit's.
    torch's results of the backward pass that are no gradients are temporaries here. torch does not know workspace.
    torch calls the batch an input. It exists before and after all phases, and is unknown here."""
    from torch.profiler._memory_profiler import Category, TensorKey

    torch.manual_seed(0)
    options = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(**options) as profiler:
        net, batch = MODELS[model]()
        _trained(torch, net, batch)
    native = profiler._memory_profile()
    level, peak, best = Counter[Any](), Counter[Any](), 0
    created = set()

    def category(key: Any, version: int) -> Any:
        return native._categories.get(key, version) if isinstance(key, TensorKey) else None

    for _, action, (key, version), size in native.timeline:
        if action.name == "CREATE":
            created.add(key)
            level[category(key, version)] += size
        elif action.name == "DESTROY":
            level[category(key, version)] -= size
        elif action.name == "INCREMENT_VERSION" and key in created:
            level[category(key, version)] -= size
            level[category(key, version + 1)] += size
        if sum(level.values()) > best:
            best, peak = sum(level.values()), level.copy()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    mine = at_peak(tmp_path / "trace.json")
    start = summarize(tmp_path / "trace.json", "memory_places")["start_bytes"].iloc[0]  # of earlier recordings
    assert sum(mine.values()) - start == best
    assert mine["parameters"] == sum(part.nbytes for part in net.parameters())
    for name, theirs in (("gradients", Category.GRADIENT), ("optimizer_states", Category.OPTIMIZER_STATE),
                         ("activations", Category.ACTIVATION), ("parameters", Category.PARAMETER)):  # fmt: skip
        assert mine.get(name, 0) == pytest.approx(peak[theirs], abs=64), name  # torch also counts scalars
    others = sum(peak[each] for each in (Category.TEMPORARY, Category.AUTOGRAD_DETAIL, Category.INPUT, None))
    rest = sum(mine.get(name, 0) for name in ("temporaries", "workspace", "inputs", "unknown"))
    assert rest - start == pytest.approx(others, abs=64)


@pytest.fixture
def paddle_run(paddle: Any, tmp_path: Path) -> Callable[[bool], tuple[Path, Any, Any]]:
    """Return a function that records a training with Paddle, with or without the making of the model."""
    from perfkit_paddle import trace_handler

    def run(inside: bool) -> tuple[Path, Any, Any]:
        def model() -> tuple[Any, Any, Any]:
            net = paddle.nn.Sequential(paddle.nn.Conv2D(3, 8, 3), paddle.nn.ReLU(), paddle.nn.Flatten(),
                                       paddle.nn.Linear(8 * 14 * 14, 10))  # fmt: skip
            return net, paddle.optimizer.Adam(parameters=net.parameters()), paddle.randn([8, 3, 16, 16])

        paddle.seed(0)
        parts = None if inside else model()
        folder = tmp_path / str(inside)
        with paddle.profiler.Profiler(
            scheduler=None if inside else (2, 4), profile_memory=True, on_trace_ready=trace_handler(folder)
        ) as profiler:
            net, optimizer, batch = parts = parts or model()
            for _ in range(5):
                net(batch).square().sum().backward()
                optimizer.step()
                optimizer.clear_grad()
                profiler.step()
        return folder, net, optimizer

    return run


@pytest.mark.parametrize("inside", [True, False])
def test_categories_of_a_training_with_paddle(paddle_run: Callable[..., Any], inside: bool) -> None:
    """The bytes of parameters and of Adam's moments are those of the tensors, also if they were made before the
    recording. The largest workspace is the matrix of the convolution: 27 values for each of 14 × 14 places."""
    folder, net, optimizer = paddle_run(inside)
    mine = at_peak(folder)
    weights = sum(int(np.prod(part.shape)) * 4 for part in net.parameters())
    moments = sum(int(np.prod(state.shape)) * 4 for name, states in optimizer._accumulators.items()
                  if "moment" in name for state in states.values())  # fmt: skip
    assert mine["parameters"] == weights
    assert moments == 2 * weights
    assert mine["optimizer_states"] == pytest.approx(moments, abs=128)  # powers of the betas are states, too
    assert weights <= mine["gradients"] <= 2 * weights
    assert sum(mine.values()) == summarize(folder, "memory_places")["peak_bytes"].iloc[0]
    picture = pictures.category_section(load(folder)).table
    assert picture["workspace_bytes"].max() == 27 * 14 * 14 * 4
    assert pd.api.types.is_integer_dtype(picture["workspace_bytes"])


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_the_next_micro_batch_is_an_input(native: Framework, tmp_path: Path, micro_batches: int) -> None:
    """Gradients are accumulated. While a micro-batch is allocated, the one before it is alive. The gradients are those
    of a layer of 32 to 4."""
    model = native.module.nn.Linear(32, 4)
    optimizer = native.optimizer("SGD", model)

    def step() -> None:
        for _ in range(micro_batches):
            batch = native.module.randn([64, 32])
            model(batch).square().sum().backward()
        optimizer.step()
        native.clear_gradients(optimizer)

    step()
    stacks = {"record_shapes": True, "with_stack": True} if native.name == "torch" else {}
    native.record(tmp_path, step, profile_memory=True, **stacks)
    mine = at_peak(tmp_path)
    assert (mine["gradients"], mine["inputs"]) == (4 * (32 * 4 + 4), 2 * 4 * 64 * 32)
