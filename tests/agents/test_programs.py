"""``record`` and ``verify`` run scripts below the roots, in a new process, with a time limit, and only if allowed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.agents.roots import Roots
from perfkit_core.agents.server import offered, result
from perfkit_core.agents.session import Session

pytestmark = pytest.mark.slow


def call(folder: Path, tool: str, allow_run: bool = True, **arguments: Any) -> dict[str, Any]:
    return result(Session(Roots([folder]), allow_run), tool, arguments, 20_000)


def text(made: dict[str, Any]) -> str:
    shown: str = made["content"][0]["text"]
    return shown


def script(folder: Path, name: str, code: str) -> str:
    (folder / name).write_text(code, encoding="utf-8")
    return name


def test_running_must_be_allowed(tmp_path: Path) -> None:
    script(tmp_path, "train.py", "open('ran', 'w')")
    for tool, arguments in (
        ("record", {"script": "train.py"}),
        ("verify", {"base": {"script": "train.py"}, "change": {"script": "train.py"}}),
    ):
        made = call(tmp_path, tool, allow_run=False, **arguments)
        assert made["isError"]
        assert "--allow-run" in text(made)
    assert not (tmp_path / "ran").exists()
    assert not {"record", "verify"} & set(offered(Session(Roots([tmp_path]))))
    assert {"record", "verify"} <= set(offered(Session(Roots([tmp_path]), True)))


def test_only_scripts_below_the_roots_run(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    script(tmp_path, "outside.py", "open('ran', 'w')")
    (tmp_path / "root" / "link.py").symlink_to(tmp_path / "outside.py")
    for name in ("../outside.py", "link.py", str(tmp_path / "outside.py")):
        made = call(tmp_path / "root", "record", script=name)
        assert "outside of the folders" in text(made)
    made = call(tmp_path / "root", "record", script="missing.py")
    assert "no such script" in text(made)
    script(tmp_path / "root", "train.py", "")
    made = call(tmp_path / "root", "record", script="train.py", output="../elsewhere")
    assert "outside of the folders" in text(made)


def test_a_script_that_records_nothing(tmp_path: Path) -> None:
    script(tmp_path, "train.py", "import sys; print('héllo', sys.argv[1:]); sys.exit(3)")
    made = call(tmp_path, "record", script="train.py", arguments=["--option", "-x", "a b"])
    document = made["structuredContent"]
    assert document["exit_code"] == 3
    assert document["run"] is None
    assert document["output"][0] == "héllo ['--option', '-x', 'a b']"


def test_the_time_limit_ends_all_processes(tmp_path: Path) -> None:
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    script(tmp_path, "train.py", code)
    made = call(tmp_path, "record", script="train.py", seconds=3)
    assert "the time limit of 3 s is over" in text(made)


def test_a_metric_is_verified(tmp_path: Path) -> None:
    """Two scripts print constant numbers, so the saving is exact."""
    script(tmp_path, "base.py", "print('loss_ms: 20')")
    script(tmp_path, "change.py", "import sys; print('loss_ms:', sys.argv[1])")
    made = call(
        tmp_path, "verify", base={"script": "base.py"}, change={"script": "change.py", "arguments": ["5"]},
        metric="loss_ms", rounds=3, warmup=0,
    )  # fmt: skip
    document = made["structuredContent"]
    assert text(made) == "Verdict: verified."
    sides = {row["side"]: row for row in document["views"]["sides"]}
    assert (sides["base"]["median_value"], sides["change"]["median_value"]) == (20, 5)
    assert document["verify"]["verdict"] == "verified"


TRAIN = """
import {framework} as framework
layer = framework.nn.Linear(8, 8)
optimizer = {optimizer}
for _ in range(6):
    layer(framework.ones([4, 8])).sum().backward()
    optimizer.step()
"""
OPTIMIZERS = {
    "torch": "framework.optim.SGD(layer.parameters(), lr=0.1)",
    "paddle": "framework.optimizer.SGD(0.1, parameters=layer.parameters())",
}


@pytest.mark.live
@pytest.mark.parametrize("framework", OPTIMIZERS)
def test_a_recording_can_be_read(tmp_path: Path, framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    script(tmp_path, "train.py", TRAIN.format(framework=framework, optimizer=OPTIMIZERS[framework]))
    at = Session(Roots([tmp_path]), allow_run=True)
    made = result(at, "record", {"script": "train.py", "output": "run", "steps": 3}, 20_000)
    assert made["structuredContent"]["run"] == str(tmp_path / "run"), json.dumps(made)
    steps = result(at, "view", {"sources": ["run"], "view": "steps"}, 20_000)["structuredContent"]["views"]["steps"]
    assert len(steps) == 3
