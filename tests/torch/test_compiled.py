"""Kernels of ten models that torch.compile compiled. What perfkit says about them is what torch itself wrote: the stack
traces of kernels in its structured log, and the operators of the graph nodes that the code generator read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.cli.main import main
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import compiled
from tests.support import compiled_models
from tests.support.paths import ROOT

pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

MODELS = ("attention", "convnet", "cross_entropy", "embedding", "gated", "mlp", "norm_chain", "residual", "rnn_cell",
          "transformer")  # fmt: skip
SOURCE = compiled_models.__file__
COMPILER = [shutil.which("g++")] if shutil.which("g++") else []
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TORCH_TRACE": str(folder / "log"),
        "INDUCTOR_PROVENANCE": "1",
        "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_DEBUG_COMPILE": "1",  # -O0 compiles faster
    }
    command = [sys.executable, SOURCE, str(folder), *COMPILER]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    return folder


def logged(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each entry of torch's log, read line by line."""
    name, text = "", ""
    (log,) = (folder / "log").iterdir()
    for line in log.read_text().splitlines():
        if line.startswith("\t"):
            text += line[1:] + "\n"
            continue
        if name:
            yield name, text
        entry = json.loads(line.split("] ", 1)[1])
        name, text = entry.get("artifact", {}).get("name") or next(iter(entry)), ""
    yield name, text


def written_lines(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Return key of the graph → kernel → innermost lines, from the log."""
    graphs = {}
    for name, text in logged(folder):
        if name == "inductor_provenance_tracking_kernel_stack_traces":
            lines: dict[str, set[str]] = {}
            for kernel, traces in json.loads(text).items():
                places = [re.findall(r'File "(.+)", line (\d+), in', trace)[-1] for trace in traces]
                lines.setdefault(kernel.split(":")[0], set()).update(f"{file}:{line}" for file, line in places)
        elif name.startswith("fx_graph_cache_"):
            graphs[json.loads(text).get("key")] = lines
    return graphs


def table(trace: Trace, *by: str) -> pd.DataFrame:
    return compiled.table(trace, ViewRequest(by=by))


def items(text: object) -> set[str]:
    return set(text.split(", ")) if isinstance(text, str) else set()


@pytest.mark.parametrize("model", MODELS)
def test_operators_and_lines_are_those_that_torch_wrote(folder: Path, model: str) -> None:
    origins = json.loads((folder / model / "origins.json").read_text())
    lines = written_lines(folder)
    live, file = load(folder / model / "run"), folder / model / "trace.json"
    shutil.copy(next((folder / "log").iterdir()), folder / model)  # next to the trace
    for trace in (live, load(file)):
        rows = table(trace, "graph")
        names = rows["name"].str.replace(r"graph_\d+_", "", regex=True)
        assert set(names) == set(origins), "every kernel of the graphs ran, and no other event is a kernel"
        for name, row in zip(names, rows.to_dict("records"), strict=True):
            key = re.search(r"CompiledFxGraph (\w+)", row["graph"])[1]
            assert items(row["operators"]) == set(origins[name])
            assert items(row["lines"]) == lines[key][name]
            # torch leaves out its own files, so a compiled GRUCell has no lines.
            assert {line.rpartition(":")[0] for line in items(row["lines"])} == {SOURCE} - {"rnn_cell": {SOURCE}}.get(
                model, set()
            )


def line_of(text: str, number: int = 0) -> str:
    lines = [at for at, line in enumerate(Path(SOURCE).read_text().splitlines(), 1) if text in line]
    return f"{SOURCE}:{lines[number]}"


def test_calls_of_one_kernel_belong_to_their_own_layers(folder: Path) -> None:
    """Both blocks of the transformer run the same kernel for GELU. It has one row, and a row for each layer."""
    trace = load(folder / "transformer" / "run")
    whole = table(trace)
    gelu = whole[whole["operators"] == "aten::gelu, aten::view"].iloc[0]
    assert items(gelu["lines"]) == {line_of("self.act(self.up(x))")}
    assert gelu["calls"] == 2 * 2  # steps × blocks
    by_layer = table(trace, "module")
    rows = by_layer[by_layer["name"] == gelu["name"]]
    assert dict(zip(rows["module"], rows["calls"], strict=True)) == {"blocks/0/mlp": 2, "blocks/1/mlp": 2}


def test_kernels_of_several_layers_belong_to_the_layer_around_them(folder: Path) -> None:
    """The expected layers follow from the source of the models: which parts of which lines a kernel computes."""
    rows = table(load(folder / "transformer" / "run"), "module").to_dict("records")
    layers: dict[str, set[str]] = {}
    for row in rows:
        layers.setdefault(re.sub(r"graph_\d+_cpp_fused_", "", row["name"]), set()).add(row["module"])
    blocks = [f"blocks/{number}" for number in (0, 1)]
    assert layers == {
        "native_layer_norm_0": {"blocks/0/norm"},
        "_softmax_abs_all_amax_div_eq_mul_ne_sub_1": {f"{block}/attention" for block in blocks},
        "_softmax_2": {f"{block}/attention" for block in blocks},
        "add_3": {"blocks/0"},  # the first residual connection
        "gelu_view_4": {f"{block}/mlp" for block in blocks},
        "add_mul_native_layer_norm_view_5": {"blocks"},  # end of block 0, and the norm of block 1
        "add_mul_view_6": {"blocks"},  # end of block 0, and the first residual connection of block 1
        "add_mul_view_7": {None},  # the end of the model
    }


def test_ready_made_operators_in_compiled_code_have_layers(folder: Path) -> None:
    trace = load(folder / "attention" / "run")
    module, names = trace.codes("module"), trace.codes("name")
    pairs = {
        (names.values[name], module.values[code])
        for name, code in zip(names.codes, module.codes, strict=True)
        if code >= 0
    }
    assert {layer for name, layer in pairs if name == "aten::addmm"} == {"q", "k", "v"}
    assert not [layer for name, layer in pairs if name == "aten::bmm"], "the compiled module itself calls it"


def test_one_line_of_the_compiled_code_view_has_the_time_of_its_kernels(folder: Path) -> None:
    from perfkit_core.views import code

    trace = load(folder / "norm_chain" / "run")
    rows = code.table(trace, ViewRequest())
    (line,) = rows[rows["line"] == int(line_of("torch.tanh(norm(x))").rpartition(":")[2])].to_dict("records")
    events = [event for event in json.loads((folder / "norm_chain" / "trace.json").read_text())["traceEvents"]
              if "cpp_fused_native_layer_norm_tanh" in event.get("name", "")]  # fmt: skip
    assert line["calls"] == len(events) == 2  # steps: one kernel computes all three layers
    assert line["total_cpu_ns"] == sum(round(event["dur"] * 1000) for event in events)


def test_the_option_names_files_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    shutil.copy(folder / "mlp" / "trace.json", trace)
    command = ["summary", str(trace), "--view", "compiled", "--format", "json"]

    def rows(*options: str) -> list[dict[str, object]]:
        assert main([*command, *options]) == 0
        return json.loads(capsys.readouterr().out)["views"]["compiled"]

    assert {row["lines"] for row in rows()} == {None}
    assert line_of("self.act(self.up(x))") in {row["lines"] for row in rows("--compile-info", str(folder / "log"))}
    assert main([*command, "--compile-info", str(tmp_path)]) == 2
    assert "has no compile information of torch" in capsys.readouterr().err
    assert main([*command, "--compile-info", str(tmp_path / "nothing")]) == 2


def test_kernels_that_a_compiler_made(folder: Path) -> None:
    """If there is a C++ compiler, it makes the kernels of one model. For other models, it is replaced."""
    rows = table(load(folder / compiled_models.REALLY_COMPILED / "run")).fillna({"modules": ""})
    assert sorted(zip(rows["modules"], rows["calls"], strict=True)) == [("", 2), ("inner", 2)]
