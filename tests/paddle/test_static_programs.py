"""FLOPs of annotated static programs against torch's FlopCounterMode, formulas by hand, and Paddle's own counter."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paddle", reason="needs paddle: pip install 'perfkit[paddle]'")
pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode

import perfkit
import perfkit.paddle
from perfkit_core.cli.main import main
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.devices import model_flops
from perfkit_core.views.operators.operator_work import operator_work
from perfkit_paddle import program_operators, static_programs
from tests.support.static_programs import CASES, Case

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore:Tensor do not have 'place'"),
    pytest.mark.filterwarnings("ignore:When training, we now always track"),
]
STEPS = 2


@pytest.fixture
def static(paddle: Any) -> Iterator[Any]:
    paddle.enable_static()
    yield paddle
    paddle.disable_static()


def trained(paddle: Any, program: Any, startup: Any, feeds: Any, fetch: Any, folder: Path) -> Any:
    executor = paddle.static.Executor()
    executor.run(startup)
    handler = perfkit.paddle.trace_handler(folder)
    with paddle.profiler.Profiler(targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=handler) as profiler:
        for _ in range(STEPS):
            executor.run(program, feed=feeds, fetch_list=[fetch])
            profiler.step()
    return perfkit.load(folder)


def recorded(paddle: Any, case: Case, folder: Path, open_sizes: bool = False) -> Any:
    program, startup, loss = case.build(open_sizes)
    with perfkit.paddle.annotate(program):
        return trained(paddle, program, startup, case.feeds(), loss, folder)


def products(trace: Any) -> int:
    """Return the FLOPs of matrix products."""
    work = operator_work(trace)
    return sum(work.works[number].flops for number in work.distinct.tolist() if work.works[number].matrix)


@pytest.mark.parametrize("open_sizes", [False, True], ids=["fixed sizes", "open sizes"])
@pytest.mark.parametrize("name", CASES)
def test_flops_of_a_training_step(static: Any, name: str, open_sizes: bool, tmp_path: Path) -> None:
    case = CASES[name]
    expected = case.model
    if not isinstance(expected, int):
        with FlopCounterMode(display=False) as counter:
            expected(*case.torch_inputs()).backward()
        expected = int(counter.get_total_flops())
    trace = recorded(static, case, tmp_path, open_sizes and case.open_sizes)
    assert not [finding for finding in trace.quality if finding.code == "operators-without-shapes"]
    (row,) = model_flops.table(trace, ViewRequest()).to_dict("records")
    assert row["model_flops"] == row["hardware_flops"] == STEPS * expected


def test_the_views_of_a_run(static: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(static, CASES["perceptron"], tmp_path)
    assert main(["summary", str(tmp_path), "--view", "roofline,gemm,model_flops", "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "pd_op.matmul_grad" in text
    assert "4×6, 6×8" in text


def test_paddles_own_counter(static: Any, tmp_path: Path) -> None:
    """``paddle.flops`` counts a multiply-add once. It adds the bias of a convolution, and counts a transposed
    convolution at the positions of its result, where most factors are 0."""
    from paddle import nn
    from paddle.hapi.dynamic_flops import register_hooks

    counted = []

    def count(layer: Any, given: Any, result: Any) -> None:
        sizes = SimpleNamespace(numel=lambda: int(np.prod(result.shape)))
        seen = SimpleNamespace(weight=layer.weight, bias=None, _groups=getattr(layer, "_groups", 1), total_ops=0)
        register_hooks[type(layer)](seen, given, sizes)
        counted.append(seen.total_ops)

    program, startup = static.static.Program(), static.static.Program()
    with static.static.program_guard(program, startup):
        x = static.static.data("x", [4, 4, 9, 9], "float32")
        model = nn.Sequential(nn.Conv2D(4, 8, 3, groups=2, stride=2), nn.Flatten(), nn.Linear(128, 16))
        for layer in (model[0], model[2]):
            layer.register_forward_post_hook(count)
        result = model(x)
    with perfkit.paddle.annotate(program):
        trace = trained(static, program, startup, {"x": np.ones((4, 4, 9, 9), "float32")}, result, tmp_path)
    assert len(counted) == 2
    assert products(trace) == STEPS * 2 * sum(counted)


def test_the_executor_is_wrapped_only_while_a_program_is_annotated(static: Any, tmp_path: Path) -> None:
    original = static.static.Executor.run
    program, startup, loss = CASES["perceptron"].build(False)
    annotation = perfkit.paddle.annotate(program)
    assert perfkit.paddle.annotate(program) is annotation
    assert static.static.Executor.run is not original
    annotation.remove()
    annotation.remove()
    assert static.static.Executor.run is original
    trace = trained(static, program, startup, CASES["perceptron"].feeds(), loss, tmp_path)
    assert products(trace) == 0
    annotation = perfkit.paddle.annotate(program)
    del program, loss
    gc.collect()
    assert annotation.model is None
    assert static.static.Executor.run is original


def test_operators_that_are_added_later(static: Any, tmp_path: Path) -> None:
    program, startup = static.static.Program(), static.static.Program()
    with static.static.program_guard(program, startup), perfkit.paddle.annotate(program):
        x = static.static.data("x", [4, 6], "float32")
        loss = static.nn.Linear(6, 8)(x).mean()
        static.optimizer.SGD(0.1).minimize(loss)
        trace = trained(static, None, startup, {"x": np.ones((4, 6), "float32")}, loss, tmp_path)
    assert products(trace) == STEPS * 2 * 2 * 4 * 6 * 8


def test_a_branch_leaves_operators_of_its_names_unknown(static: Any, tmp_path: Path) -> None:
    program, startup = static.static.Program(), static.static.Program()
    with static.static.program_guard(program, startup):
        x = static.static.data("x", [4, 6], "float32")
        inside = static.static.nn.cond(x.mean() > 0, lambda: static.matmul(x, x, transpose_y=True), lambda: x[:, :4])
        loss = (static.matmul(x, x, transpose_x=True).mean() + inside.mean()).exp()
    with perfkit.paddle.annotate(program):
        trace = trained(static, program, startup, {"x": np.ones((4, 6), "float32")}, loss, tmp_path)
    frame = trace.to_pandas()
    assert frame.loc[frame["name"] == "pd_op.matmul", "shapes"].isna().all()
    assert (frame.loc[frame["name"].isin(["pd_op.exp", "pd_op.exp_"]), "shapes"] == "[[]]").all()


def test_an_error_costs_only_the_arguments(static: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("unreadable")

    monkeypatch.setattr(static_programs, "_shape", broken)
    assert products(recorded(static, CASES["perceptron"], tmp_path / "feeds")) == 0
    monkeypatch.undo()
    monkeypatch.setattr(program_operators, "described", broken)
    trace = recorded(static, CASES["perceptron"], tmp_path / "operators")
    assert products(trace) == 0
    assert trace.rows("kind", "step").sum() >= STEPS


def test_a_program_of_the_old_ir_is_refused(static: Any) -> None:
    old = static.base.framework.Program()
    with pytest.raises(UsageError, match="old IR"):
        perfkit.paddle.annotate(old)
