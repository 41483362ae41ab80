"""Tests of step times of scripts that do not use perfkit, with the real frameworks and with other start-up files of
Python."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit_core.measure.verify.runs import Metric, run_once
from perfkit_core.measure.verify.step_times import OptimizerSteps, StepTimes, environment, read
from perfkit_core.recording.throughput.loop import Throughput

TORCH = """
import sys, time
import torch
net = torch.nn.Linear(4, 2)
optimizers = [torch.optim.SGD(net.parameters()), torch.optim.Adam(net.parameters())]
def update():
    net(torch.ones(3, 4)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
"""
PADDLE = """
import sys, time
import paddle
net = paddle.nn.Linear(4, 2)
optimizers = [paddle.optimizer.SGD(parameters=net.parameters()), paddle.optimizer.Adam(parameters=net.parameters())]
def update():
    net(paddle.ones([3, 4])).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
"""
LOOP = """
update()
start = time.perf_counter_ns()
for _ in range(5):
    time.sleep(0.02)
    update()
print(time.perf_counter_ns() - start, sys.path[0], flush=True)
"""


def script(tmp_path: Path, framework: str) -> Path:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    path = tmp_path / "train.py"
    path.write_text({"torch": TORCH, "paddle": PADDLE}[framework] + LOOP, encoding="utf-8")
    return path


def timed(command: list[str], folder: Path, *frameworks: str, **more: str) -> tuple[str, list[StepTimes]]:
    folder.mkdir()
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}
    done = subprocess.run(
        command, env=environment(folder, frameworks, plain | more), capture_output=True, encoding="utf-8", check=True,
        timeout=600,
    )  # fmt: skip
    return done.stdout, read(folder)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_steps_lie_between_updates_of_the_first_optimizer(tmp_path: Path, framework: str) -> None:
    """Six updates are five steps of at least 20 ms. Together, the steps do not take longer than the loop."""
    path = script(tmp_path, framework)
    out, found = timed([sys.executable, str(path)], tmp_path / "times", "torch", "paddle")
    loop_ns, first_place = out.split()
    assert [one.framework for one in found] == [framework]
    steps = found[0].step_ns
    assert len(steps) == 5
    assert min(steps) >= 20_000_000
    # The loop is timed from the second optimizer's first update on, and the steps from the first optimizer's on.
    assert sum(steps[1:]) <= int(loop_ns)
    assert found[0].timed_by == "host clock"
    assert Path(first_place) == tmp_path


def test_the_median_step_of_a_command(tmp_path: Path) -> None:
    path = script(tmp_path, "torch")
    assert run_once(f"'{sys.executable}' '{path}'", Metric())[0] >= 20_000_000


def test_another_start_up_file_still_runs(tmp_path: Path) -> None:
    """A ``sitecustomize`` module that Python would find without perfkit is imported, and finds the same path."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.own = __file__\n", encoding="utf-8")
    code = "import sys, sitecustomize as s; print(sys.own == s.__file__, any('verification' in p for p in sys.path))"
    out, found = timed([sys.executable, "-c", code], tmp_path / "times", "torch", PYTHONPATH=str(tmp_path / "own"))
    assert out.split() == ["True", "False"]
    assert found == []


def test_a_python_without_perfkit_runs_as_it_is(tmp_path: Path) -> None:
    """``-I`` ignores the environment, and ``-S`` ignores installed packages."""
    for flag in ("-I", "-S"):
        out, found = timed([sys.executable, flag, "-c", "print('ran')"], tmp_path / f"times{flag}", "torch")
        assert (out, found) == ("ran\n", [])


def test_a_framework_that_cannot_be_timed_breaks_no_script(tmp_path: Path) -> None:
    """A module has the name of a framework but is not the framework. The error is logged in one line, and the script
    continues."""
    (tmp_path / "torch.py").write_text("name = 'no framework'\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch\nprint(torch.name)\n", encoding="utf-8")
    out, found = timed([sys.executable, str(tmp_path / "train.py")], tmp_path / "times", "torch")
    assert (out, found) == ("no framework\n", [])


def test_nothing_is_imported_for_scripts_without_a_framework(tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    out, _ = timed([sys.executable, "-c", code], tmp_path / "times", "torch", "paddle")
    assert not set(json.loads(out)) & {"numpy", "pandas", "pyarrow", "pluggy", "click", "msgspec", "torch", "paddle"}


def test_the_first_update_begins_the_first_step() -> None:
    """The clock is read at each update, at 5, 12 and 22, so the steps take 7 and 10."""
    clock = iter([5, 12, 22]).__next__
    steps = OptimizerSteps(Throughput(warmup=0, clock=clock))
    assert steps.times() == ((), "")
    for _ in range(3):
        steps.updated()
    found, timed_by = steps.times()
    assert (list(found), timed_by) == ([7, 10], "host clock")


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """A forked child has the optimizer of its parent, but only the steps of the parent count."""
    fork = "import os, sys\nif os.fork() == 0:\n    update(); update()\n    sys.exit()\nos.wait()\n"
    path = script(tmp_path, "torch")
    path.write_text("import torch; torch.set_num_threads(1)\n" + TORCH + LOOP + fork, encoding="utf-8")
    _, found = timed([sys.executable, str(path)], tmp_path / "times", "torch")
    assert [len(one.step_ns) for one in found] == [5]


@pytest.mark.filterwarnings("ignore:Tensor do not have 'place'")
def test_static_graphs_have_no_updates() -> None:
    """Building a static program calls ``minimize``, but trains nothing."""
    paddle = pytest.importorskip("paddle", reason="needs Paddle: pip install 'perfkit[paddle]'")
    from perfkit_paddle.framework import Updates

    seen: list[Any] = []
    updates = Updates(lambda: seen.append(SimpleNamespace()))
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            loss = paddle.static.nn.fc(paddle.static.data("x", [2, 3]), 1).sum()
            paddle.optimizer.SGD().minimize(loss)
    finally:
        paddle.disable_static()
        updates.end()
    assert seen == []
