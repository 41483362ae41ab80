"""%%perfkit in a real kernel, with both frameworks: the recording, the variables, exceptions, and the options."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.frameworks import Recorded
from perfkit_core.plugins.manager import chosen_framework
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.store import write_trace
from tests.support.stepped_trace import stepped_trace

pytest.importorskip("IPython", reason="notebooks need IPython")
TORCH = """
import torch, perfkit
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train_step():
    loss = model(torch.ones(2, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
PADDLE = """
import warnings
warnings.simplefilter("ignore")
import paddle, perfkit
model = paddle.nn.Linear(8, 4)
optimizer = paddle.optimizer.SGD(parameters=model.parameters())

def train_step():
    loss = model(paddle.ones([2, 8])).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    return loss
"""
CELLS = {
    "recorded": "%%perfkit -o runs/a --shapes\nlosses = [float(train_step()) for _ in range(4)]\nlen(losses)",
    "variables": "print(len(losses), len(trace), trace.meta.source)",
    "failing": "%%perfkit -o runs/b --trace b --steps 2\nfor _ in 1, 2, 3:\n    train_step()\nraise KeyError('mine')",
    "kept": "print(len(b))",
    "function": "%%perfkit -o runs/c --step-on train_step\nfor _ in range(3):\n    train_step()",
    "unwrapped": "print(train_step.__name__, hasattr(train_step, '__wrapped__'))",
    "defined": "%%perfkit -o runs/d --step-on fwd\ndef fwd():\n    train_step()\nfor _ in range(3):\n    fwd()\n7;",
    "undecorated": "print(fwd.__name__, hasattr(fwd, '__wrapped__'), '__perfkit_step__' in globals())",
    "mistaken": "%%perfkit --framework jax\nprint('not run')",
    "shown": "trace",
}


def executed(cells: list[str], folder: Path) -> list[Any]:
    """Run cells in a new kernel in a folder, and return the outputs of each."""
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
    pytest.importorskip("ipykernel", reason="notebooks are run by ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=600, allow_errors=True, resources=resources).execute()
    return [cell.outputs for cell in notebook.cells]


def texts(outputs: Any, name: str) -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def html(outputs: Any) -> list[str]:
    return [output.data["text/html"] for output in outputs if "text/html" in getattr(output, "data", {})]


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the client of the kernel
@pytest.mark.parametrize(("framework", "setup"), [("torch", TORCH), ("paddle", PADDLE)])
def test_a_cell_is_recorded(framework: str, setup: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    of_setup, *outputs = executed([setup, *CELLS.values()], tmp_path)
    assert not [output for output in of_setup if output.output_type == "error"]
    of = dict(zip(CELLS, outputs, strict=True))

    # the verdict, the value of the last expression, and the trace of the run folder
    (verdict,) = html(of["recorded"])
    assert '<div class="perfkit"' in verdict
    assert framework in verdict
    assert "4" in [getattr(output, "data", {}).get("text/plain") for output in of["recorded"]]
    assert "Recorded in runs/a. The trace is in the variable trace." in texts(of["recorded"], "stdout")
    recorded = load(tmp_path / "runs" / "a")
    assert recorded.meta.framework == framework
    assert recorded.meta.options["record_shapes"] is True
    assert sorted(set(recorded.column("step").drop_null().to_pylist()))[:3] == [1, 2, 3]
    assert texts(of["variables"], "stdout").split() == ["4", str(len(recorded)), "runs/a"]

    # an exception is shown as usual, and the recording is kept; --steps ends it before
    (error,) = (output for output in of["failing"] if output.output_type == "error")
    assert (error.ename, error.evalue) == ("KeyError", "'mine'")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert "----> 3 raise KeyError('mine')" in plain
    assert "perfkit_core" not in plain
    assert len(html(of["failing"])) == 1
    kept = load(tmp_path / "runs" / "b")
    assert texts(of["kept"], "stdout").strip() == str(len(kept))
    assert set(kept.column("step").drop_null().to_pylist()) == {1, 2}

    # calls of a function end steps, while the cell runs
    assert len(html(of["function"])) == 1
    assert {1, 2} <= set(load(tmp_path / "runs" / "c").column("step").drop_null().to_pylist())
    assert texts(of["unwrapped"], "stdout").split() == ["train_step", "False"]

    # so do calls of a function that the cell defines; a semicolon hides the last value; the cell ends inside a step
    assert {1, 2} <= set(load(tmp_path / "runs" / "d").column("step").drop_null().to_pylist())
    assert texts(of["undecorated"], "stdout").split() == ["fwd", "False", "False"]
    assert "7" not in [getattr(output, "data", {}).get("text/plain") for output in of["defined"]]
    assert "partial-step" not in "".join(html(of["defined"]))

    assert "unknown framework 'jax'; known: " in texts(of["mistaken"], "stderr")
    assert "not run" not in texts(of["mistaken"], "stdout")
    assert html(of["shown"]) == html(of["defined"])


def framework_of(cell: str, **namespace: Any) -> str:
    from perfkit_core.notebook.magic import _used

    return chosen_framework(("one", "two"), None, "give one", _used(ast.parse(cell), namespace))


def test_the_framework_is_the_one_that_the_cell_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = ModuleType("one"), ModuleType("two.nn")
    model = type("Net", (type("Layer", (), {"__module__": "two.nn.layer"}),), {})()
    functions: dict[str, Any] = {"one": one, "model": model}
    exec("def train():\n    return inner()\ndef inner():\n    return model()", functions)
    assert framework_of("import one.nn") == "one"
    assert framework_of("from two.nn import Linear") == "two"
    assert framework_of("model(1)", model=model) == "two"
    assert framework_of("x = one.ones(); x", one=one, two=two) == "one"
    assert framework_of("train()", **functions) == "two"
    assert framework_of("for x in data: y = one.f(x)", one=one, x=model, y=model) == "one", "x and y are assigned"
    with pytest.raises(UsageError, match="no framework is imported; give one"):
        framework_of("print(1)")
    monkeypatch.setitem(sys.modules, "one", one)
    assert framework_of("print(1)") == "one"
    with pytest.raises(UsageError, match="one and two are used; give one"):
        framework_of("one.f(model)", one=one, model=model)


def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.error import UsageError as OneLineError
    from IPython.core.interactiveshell import InteractiveShell

    from perfkit_core.notebook import magic

    for name in ("ps1", "ps2", "ps3"):  # a shell sets them, as if Python were interactive
        monkeypatch.setattr(sys, name, "", raising=False)
    shell = InteractiveShell()
    monkeypatch.setattr(magic, "get_ipython", lambda: shell)
    monkeypatch.chdir(tmp_path)
    for line, message in {
        "--steps 0": "--steps must be 1 or more",
        "--trace 2x": "the name of a variable",
        "--nothing": "unrecognized arguments",
        "--framework nothing": "unknown framework 'nothing'",
        "--step-on train.py:step --framework torch": "train.py is not the script",
        "--step-on forwrad": "the notebook has no function forwrad, and no cell labels a range with this name; did you "
        "mean forward? ",
        "--step-on __main__:backward": "the notebook has no function backward",
        "--step-on json:lods": "json has no function lods; did you mean loads or load? ",
        "--step-on no_module:f": "no_module cannot be imported",
    }.items():
        with pytest.raises(OneLineError, match=re.escape(message)):
            magic.perfkit(line, "def forward(): pass")
    with pytest.raises(OneLineError, match="a cell with await outside functions cannot be recorded; "):
        magic.perfkit("", "import asyncio\nawait asyncio.sleep(0)")
    with pytest.raises(SyntaxError, match="'return' outside function"):
        magic.perfkit("", "return 1")
    assert not list(tmp_path.iterdir())
    shell.history_manager.end_session()


def step_end(target: str, cell: str, *cells: str, **namespace: Any) -> str:
    """Return ``function NAME`` or ``range NAME``."""
    from perfkit_core.notebook.magic import _step_end

    end = _step_end(target, ast.parse(cell), namespace, [cell, *cells])
    return f"range {end}" if isinstance(end, str) else f"function {end}"


def test_the_end_of_a_step_is_a_function_or_a_range() -> None:
    label = 'with record_function("part"): pass'
    assert step_end("f", "def f(): pass") == step_end("f", "", f=print) == "function f"
    assert step_end("Net.fit", "class Net:\n    def fit(self): pass") == "function Net.fit"
    assert step_end("json:loads", "") == "function json:loads"
    assert step_end("part", label) == step_end("part", "", label) == "range part"
    assert step_end("'part of it'", "") == step_end('"part of it"', "") == "range part of it"
    assert step_end("Optimizer.step#SGD.step", "") == "range Optimizer.step#SGD.step"


class Ended:
    """A recording of a cell that has ended."""

    def __init__(self, run_dir: Path, error: Exception | None = None) -> None:
        self.run_dir = run_dir
        self._error = error

    def end(self) -> Recorded:
        if self._error is not None:
            raise self._error
        return Recorded(1)


def test_an_error_of_perfkit_does_not_reach_the_cell(capsys: pytest.CaptureFixture[str]) -> None:
    from perfkit_core.notebook import magic

    magic._show(Ended(Path("runs/a"), KeyError("disk")), Path("runs/a"), "trace", {})
    assert capsys.readouterr().err == "perfkit: error: the recording in runs/a cannot be shown (KeyError: 'disk')\n"


def test_that_a_cell_ends_inside_a_step_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfkit_core.notebook import magic

    findings = Finding("partial-step", "the recording ended inside step 3"), Finding("other", "a problem")
    recorded = stepped_trace([10, 10]).with_findings(*findings)
    write_trace(recorded, tmp_path / "rank0-cycle00000.perfkit.parquet")
    namespace: dict[str, Any] = {}
    monkeypatch.setattr(magic, "display", lambda summary: None)
    magic._show(Ended(tmp_path), tmp_path, "trace", namespace)
    notes = {finding.code: finding.note for finding in namespace["trace"].quality}
    assert (notes["partial-step"], notes["other"]) == (True, False)
