"""What a command or a Python call chooses for all profiles that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit_core import UsageError, load, summarize
from perfkit_core.cli.main import main
from perfkit_core.ranks import files
from perfkit_core.readers.load import load_one
from perfkit_core.readers.read_options import read_options
from tests.support.server_trace import Server, decode_and_prefill

KERNEL = "triton_poi_fused_add_0"


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Return a trace with a decode and a prefill step and a compiled kernel in each. The folder ``info`` has a line of
    the kernel."""
    server = Server()
    for number, name in enumerate(("step[DECODE bs=4]", "step[EXTEND bs=1 toks=9]")):
        server.range(name, 100 * number, 60)
        server.add("user_annotation", "## Call CompiledFxGraph abc ##", 100 * number + 5, 40)
        server.operator(KERNEL, 100 * number + 10, 20)
    (tmp_path / "info").mkdir()
    stack = 'File "model.py", line 7, in forward'
    (tmp_path / "info" / "kernel_information.json").write_text(json.dumps({KERNEL: {"stack_traces": [stack]}}))
    return server.write(tmp_path / "t.json")


def test_python_functions_take_what_the_command_takes(compiled: Path) -> None:
    info = compiled.parent / "info"
    assert summarize(compiled, "compiled")["lines"].isna().all()
    table = summarize(compiled, "compiled", compile_info=info)
    assert (table["lines"].tolist(), table["calls"].tolist()) == (["model.py:7"], [2])
    table = summarize(compiled, "compiled", compile_info=[info], step_kind="decode", by="step")
    assert (table["lines"].tolist(), table["step"].tolist()) == (["model.py:7"], [0])
    assert summarize(load(compiled, compile_info=info), "compiled")["lines"].tolist() == ["model.py:7"]
    steps = summarize(compiled, "steps", step_on="CompiledFxGraph")
    assert steps["dur_ns"].tolist() == [40_000, 40_000]


def test_options_do_not_apply_to_a_trace(compiled: Path) -> None:
    trace = load(compiled)
    for name in ("step_on", "step_kind", "graph_capture", "compile_info"):
        with pytest.raises(UsageError, match="apply when a source is read"):
            summarize(trace, "steps", **{name: "decode"})


def test_paths_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks may be read in a process with another current folder. A suggested command has the short path again."""
    path, given = decode_and_prefill(tmp_path / "t.json"), tmp_path / "captures.json"
    server = Server()
    for name, start in (("cudaStreamBeginCapture", 10), ("cudaLaunchKernel", 20), ("cudaStreamEndCapture", 30)):
        server.add("cuda_runtime", name, start, 2, correlation=start)
    server.write(given)
    monkeypatch.chdir(tmp_path)
    options = read_options(graph_capture="captures.json", compile_info=["info.log", "memory://info.log"])
    assert options.compile_info == (str(tmp_path / "info.log"), "memory://info.log")
    monkeypatch.chdir("/")
    trace = load_one(path, replace(options, compile_info=()))
    assert any("captures.json" in finding.message for finding in trace.quality)
    monkeypatch.chdir(tmp_path)
    command, part = ["summary", "t.json", "--graph-capture", "captures.json"], Path("a.perfkit.partial")
    assert main([*command, "--view", "serving", "--shard", "1/1", "-o", str(part)]) == 0
    assert files.read_all([part], partial=False).job.reading.graph_captures == (str(given),)
    assert main(command) == 0
    assert capsys.readouterr().out.rstrip().endswith("--graph-capture captures.json")


def test_partial_does_not_count_as_another_option_of_shards(
    compiled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(compiled.parent)
    options = ["--view", "serving", "--step-kind", "decode"]
    assert main(["summary", "t.json", *options, "--shard", "1/1", "-o", "a.perfkit.partial"]) == 0
    assert main(["summary", "a.perfkit.partial", "--partial", *options]) == 0
    assert main(["summary", "a.perfkit.partial", "--partial"]) == 0
    assert main(["summary", "a.perfkit.partial", "--view", "serving", "--step-kind", "prefill"]) == 2
    assert "written with other options" in capsys.readouterr().err
