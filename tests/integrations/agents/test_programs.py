"""``record`` and ``verify`` run scripts below the roots, in a new process, with a time limit, and only if allowed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit_core.base.system import processes
from perfkit_core.integrations.agents.server import offered, result
from perfkit_core.integrations.agents.session import Roots, Session
from tests.support.paths import DATA
from tests.support.processes import gone

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


NESTED = """
import os, subprocess, sys
code = "import os, time; open('pids.new', 'w').write(f'{os.getpid()} {os.getppid()}'); os.rename('pids.new', 'pids')"
subprocess.run([sys.executable, "-c", code + "; time.sleep(1000)"])
"""
"""A script whose child writes the ids of both processes, and waits."""
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look for processes")


def all_gone(folder: Path) -> bool:
    return all(gone(int(pid)) for pid in (folder / "pids").read_text(encoding="utf-8").split())


@needs_proc
def test_the_time_limit_ends_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over when both processes run, so that the test does not depend on speed."""
    script(tmp_path, "train.py", NESTED)
    wait = processes.wait
    begun = (tmp_path / "pids").exists
    monkeypatch.setattr(processes, "wait", lambda process, seconds, stop: wait(process, 600, begun))
    made = call(tmp_path, "record", script="train.py", seconds=3)
    assert text(made) == "The script was stopped at the time limit of 3 s; nothing was recorded."
    assert made["structuredContent"]["exit_code"] is None
    assert all_gone(tmp_path)


@needs_proc
@pytest.mark.parametrize(
    ("tool", "end"),
    [("record", "SIGTERM"), ("record", "SIGHUP"), ("record", "SIGKILL"), ("record", "close"), ("record", "cancel"),
     ("verify", "SIGKILL"), ("verify", "cancel")],
)  # fmt: skip
def test_no_script_outlives_its_server(tmp_path: Path, tool: str, end: str) -> None:
    pytest.importorskip("mcp", reason="the server needs an extra")
    script(tmp_path, "train.py", NESTED)
    one = {"script": "train.py"}
    client = {"name": "a", "version": "1"}
    sent = {"initialize": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client},
            "tools/call": {"name": tool, "arguments": one if tool == "record" else {"base": one, "change": one}},
            "notifications/cancelled": {"requestId": "tools/call"}}  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-m", "perfkit", "mcp", "--allow-run"], cwd=tmp_path, env=processes.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup, under which tests may run, ignores it
    )  # fmt: skip
    assert server.stdin is not None

    def send(method: str) -> None:
        notice = {} if method.startswith("notifications") else {"id": method}
        message = {"jsonrpc": "2.0", "method": method, "params": sent.get(method, {})} | notice
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()

    with server:
        for method in ("initialize", "notifications/initialized", "tools/call"):
            send(method)
        while not (tmp_path / "pids").exists():
            assert server.poll() is None
            time.sleep(0.01)
        if end == "close":
            server.stdin.close()
        elif end == "cancel":
            send("notifications/cancelled")
        else:
            server.send_signal(getattr(signal, end))
        assert all_gone(tmp_path)
        if end == "cancel":
            assert server.poll() is None  # the server goes on
            server.stdin.close()
        assert server.wait(120) == {"SIGTERM": -15, "SIGHUP": -1, "SIGKILL": -9}.get(end, 0)


def test_modules_of_the_project_do_not_hide_those_of_perfkit(tmp_path: Path) -> None:
    script(tmp_path, "click.py", "raise RuntimeError('the wrong file')")
    script(tmp_path, "helper.py", "NAME = 'found'")
    script(tmp_path, "train.py", "import helper; print(helper.NAME)")
    document = call(tmp_path, "record", script="train.py")["structuredContent"]
    assert document["output"][0] == "found"


def test_only_what_this_run_recorded_counts(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(DATA / "examples" / "torch-mlp-base.perfkit.parquet", tmp_path / "run")
    script(tmp_path, "train.py", "")
    made = call(tmp_path, "record", script="train.py", output="run")
    assert made["structuredContent"]["run"] is None
    assert text(made).endswith("nothing was recorded.")


def test_a_metric_is_verified(tmp_path: Path) -> None:
    """Two scripts print constant numbers, so the saving is exact."""
    script(tmp_path, "base.py", "print('loss_ms: 20')")
    script(tmp_path, "change.py", "import sys; print('loss_ms:', sys.argv[1])")
    made = call(
        tmp_path, "verify", base={"script": "base.py"}, change={"script": "change.py", "arguments": ["5"]},
        metric="loss_ms", rounds=3, warmup=0,
    )  # fmt: skip
    document = made["structuredContent"]
    assert text(made) == "Verdict: helps."  # nothing was predicted
    sides = {row["side"]: row for row in document["views"]["sides"]}
    assert (sides["base"]["median_value"], sides["change"]["median_value"]) == (20, 5)
    assert document["verify"]["verdict"] == "helps"


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


@pytest.mark.live
@pytest.mark.parametrize("framework", OPTIMIZERS)
@pytest.mark.parametrize("limit", [False, True])
def test_a_script_that_goes_on_is_stopped(
    tmp_path: Path, framework: str, limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped when the steps are recorded, or else at the time limit; the recording is kept."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    code = TRAIN.format(framework=framework, optimizer=OPTIMIZERS[framework])
    endless = code.replace("range(6)", "iter(int, 1)") + "    open('steps', 'a').write('1')"
    script(tmp_path, "train.py", endless)
    if limit:  # the time is over after some steps
        wait, steps = processes.wait, tmp_path / "steps"
        begun = lambda: steps.exists() and steps.stat().st_size > 5  # noqa: E731
        monkeypatch.setattr(processes, "wait", lambda process, seconds, stop: wait(process, 600, begun))
    made = call(tmp_path, "record", script="train.py", output="run", steps=10**6 if limit else 3)
    document = made["structuredContent"]
    assert (made["isError"], document["exit_code"], document["run"]) == (False, None, str(tmp_path / "run"))
    assert ("at the time limit of 600 s" if limit else "after 3 recorded steps") in text(made)
    (steps,) = perfkit.list_runs(tmp_path / "run")["steps"]
    assert steps > 3 if limit else steps == 3
