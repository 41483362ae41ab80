"""The public API: the exported names, and imports without a framework."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import perfkit
import perfkit_core
import perfkit_paddle
import perfkit_torch
from perfkit_core.recording.writer import CycleWriter
from perfkit_core.trace.storage.store import write_trace
from tests.support.paths import DATA
from tests.support.stepped_trace import MS, stepped_trace

pytestmark = pytest.mark.bare
ROOT = Path(__file__).resolve().parent.parent


CORE = {
    "CaptureError", "Comparison", "PerfkitError", "SourceError", "Trace", "UsageError",
    "advise", "compare", "export", "list_runs", "load", "summarize",
}  # fmt: skip
EXPORTED = {
    "perfkit": {
        *CORE, "Advice", "Advices", "Summary", "WhatIf", "__version__", "paddle", "profile", "report", "scrub",
        "to_mlflow", "to_tensorboard", "to_wandb", "sql", "torch",
        "what_if",
    },
    "perfkit_core": CORE,
    "perfkit_torch": {"Throughput", "annotate", "describe", "schedule", "trace_handler"},
    "perfkit_paddle": {
        "Throughput", "annotate", "annotate_collectives", "describe", "make_scheduler", "trace_handler",
    },
}  # fmt: skip
IMPORTS = """
import sys
import perfkit_core, perfkit_torch, perfkit_paddle
import perfkit_core.readers.load, perfkit_core.cli.main
import perfkit_torch.plugin, perfkit_paddle.plugin
from perfkit_core.plugins.manager import get_plugins
plugins = get_plugins()
plugins.sources(), plugins.recorders(), plugins.views()
plugins.framework("torch").operator_names(), plugins.framework("paddle").operator_names()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "paddle", "jax", "tensorflow"}))
"""


PACKAGES = [perfkit, perfkit_core, perfkit_torch, perfkit_paddle]
named = pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.__name__)


@named
def test_the_exported_names(package: ModuleType) -> None:
    """A change of these names affects every user and must be in the changelog."""
    assert set(package.__all__) == EXPORTED[package.__name__]
    framework = package.__name__.removeprefix("perfkit_")
    missing = framework in ("torch", "paddle") and importlib.util.find_spec(framework) is None
    for name in package.__all__:
        if missing:
            with pytest.raises(ImportError, match=r'pip install "perfkit\['):
                getattr(package, name)
        else:
            assert getattr(package, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_importing_perfkit_imports_no_framework() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_facade_imports_only_what_is_used() -> None:
    code = "import sys, perfkit, perfkit.torch, perfkit.paddle; dir(perfkit); perfkit.__version__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert {name for name in imported if name.startswith("perfkit")} == {"perfkit", "perfkit_torch", "perfkit_paddle"}
    assert imported & {"numpy", "pandas", "pyarrow", "click", "torch", "paddle"} == set()


def test_type_checkers_see_the_names_of_the_facade() -> None:
    """They do not run ``__getattr__``, so they need each name in the block that only they read."""
    block = next(node for node in ast.parse(Path(perfkit.__file__).read_text()).body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported | {"__version__"} == set(perfkit.__all__)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_without_the_framework_its_handler_fails_at_once_with_the_extra_to_install(framework: str) -> None:
    code = f"import sys; sys.modules[{framework!r}] = None; from perfkit.{framework} import trace_handler"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert f"perfkit_{framework}.trace_handler: No module named '{framework}'" in done.stderr
    assert f'pip install "perfkit[{framework}]"' in done.stderr


def test_the_facade_is_what_the_adapters_and_the_core_export() -> None:
    assert perfkit.load is perfkit_core.load
    for _ in range(2):  # the packages perfkit_core.compare and perfkit_core.output.report have the same names
        assert callable(perfkit.compare)
        assert callable(perfkit.report)
    for adapter, part in ((perfkit_torch, perfkit.torch), (perfkit_paddle, perfkit.paddle)):
        assert part.__all__ == adapter.__all__
        assert part.__name__ == f"perfkit.{adapter.__name__.removeprefix('perfkit_')}"
        assert set(adapter.__all__) <= set(dir(part))
        if importlib.util.find_spec(adapter.__name__.removeprefix("perfkit_")):
            assert part.trace_handler is adapter.trace_handler


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "perfkit", "--version"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == f"perfkit {perfkit.__version__}\n"


def test_comparisons_and_reports_take_paths_and_traces(tmp_path: Path) -> None:
    torch, paddle = DATA / "torch-mlp.json.gz", DATA / "paddle-mlp.pb"
    compared = perfkit.compare(torch, str(paddle))
    assert compared.operators.equals(perfkit.compare(perfkit.load(torch), perfkit.load(paddle)).operators)
    page = perfkit.report(torch, tmp_path / "page.html")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(perfkit.UsageError, match="a page is an HTML file"):
        perfkit.report(torch, tmp_path / "trace.json.gz")


def test_a_run_may_have_several_captures(tmp_path: Path) -> None:
    """The step times are those of all captures. A list of ranks is one capture, so it needs a list of its own."""
    base = stored(tmp_path / "main-1", [10, 12, 14])
    stored(tmp_path / "main-2", [20, 22])
    other = stored(tmp_path / "change", [11])
    several = [base, tmp_path / "main-2"]
    compared = perfkit.compare(several, other)
    assert compared.step_time.set_index("statistic")["base_ns"].to_dict() == {
        "median": 14 * MS, "mean": 78 * MS // 5, "minimum": 10 * MS, "maximum": 22 * MS,
    }  # fmt: skip
    assert [len(side) for side in compared.captures] == [2, 1]
    for same in (str(tmp_path / "main-*"), tmp_path / "main-*", [perfkit.load(base), [tmp_path / "main-2"]]):
        assert perfkit.compare(same, other).step_time.equals(compared.step_time)
    with pytest.raises(perfkit.SourceError, match="no file or folder matches; check the pattern"):
        perfkit.compare(str(tmp_path / "mian-*"), other)
    with pytest.raises(perfkit.UsageError, match="a run has no captures"):
        perfkit.compare([], other)
    ranks = [perfkit.load(base).with_meta(ranks=(rank,)) for rank in (0, 1)]
    with pytest.raises(perfkit.UsageError, match=r"different ranks; join them .* perfkit\.load"):
        perfkit.compare(ranks, other)


def stored(folder: Path, step_ms: list[float]) -> Path:
    folder.mkdir()
    write_trace(stepped_trace(step_ms), folder / "rank0-cycle00000.perfkit.parquet")
    return folder


def test_each_result_says_in_one_line_what_it_is() -> None:
    trace = perfkit.load(DATA / "examples" / "torch-mlp-base.perfkit.parquet")
    other = perfkit.load(DATA / "paddle-mlp.pb")
    advices, comparison = perfkit.advise(trace, outcomes=[]), perfkit.compare(trace, other)
    assert repr(trace) == f"<Trace 1,416 events, 6 steps, torch 2.13.0+cpu, {trace.meta.source}>"
    assert repr(trace.with_meta(ranks=(3,), source="run")).endswith("torch 2.13.0+cpu, 1 rank, run>")
    assert repr(comparison) == f"<Comparison 11.7 ms → 635 µs a step (-94.6%), {trace!r}, {other!r}>"
    (first,) = advices.advice
    saving = first.saves()
    assert saving.startswith(("saves ", "saving unknown"))
    assert repr(first) == f"<Advice {first.id}: {first.title}, {saving}>"
    unknown = f"{len(advices.not_evaluable)} rules not evaluable"
    assert repr(advices) == f"<Advices: {first.title}, {saving}; {unknown}>"
    assert repr(replace(advices, advice=(), not_evaluable={})) == "<Advices none; 0 rules not evaluable>"
    assert repr(trace.quality[0]) == "<Finding no-device-events: no device work was recorded: device times are 0>"
    assert re.fullmatch(
        r"<Alignment \d+ rows, step time matched: \S+% of base and \S+% of other>", repr(comparison.alignment)
    )
    assert repr(first.candidate).startswith("<Candidate 1 of 6 steps takes ")
    assert (
        repr(CycleWriter("run", lambda profiler, place: None)) == f"<trace_handler {Path('run').resolve()}, 0 cycles>"
    )


def test_both_adapters_have_files_of_the_same_names() -> None:
    """Equal file names help readers who know the other adapter."""
    shared = {
        "plugin",
        "framework",
        "on_trace_ready",
        "collectives",
        "operator_names",
        "record",
        "throughput",
        "calibration",
        "layers",
        "timed_schedule",
    }
    for package in (perfkit_torch, perfkit_paddle):
        files = {path.stem for folder in package.__path__ for path in Path(folder).glob("*.py")}
        assert files >= shared


@named
def test_what_is_installed_has_all_data_files(package: ModuleType) -> None:
    """Pages need templates, styles and scripts, and adapters need tables. A wheel must contain all of them."""
    own = {".css", ".j2", ".js", ".toml", ".typed"}
    checkout, installed = ROOT / package.__name__, Path(package.__path__[0])
    files = [path.relative_to(checkout) for path in checkout.rglob("*") if path.suffix in own]
    assert files
    assert [str(file) for file in files if not (installed / file).is_file()] == []
