"""The public API: the exported names, and imports without a framework."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import perfkit_core
import perfkit_paddle
import perfkit_torch

pytestmark = pytest.mark.bare
ROOT = Path(__file__).resolve().parent.parent


EXPORTED = {
    "perfkit_core": {
        "CaptureError", "Comparison", "PerfkitError", "SourceError", "Trace", "UsageError",
        "advise", "compare", "export", "list_runs", "load", "summarize",
    },
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
plugins.operator_names("torch"), plugins.operator_names("paddle")
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "paddle", "jax", "tensorflow"}))
"""


@pytest.mark.parametrize("package", [perfkit_core, perfkit_torch, perfkit_paddle], ids=lambda p: p.__name__)
def test_the_exported_names(package: object) -> None:
    """A change of these names affects every user and must be in the changelog."""
    assert set(package.__all__) == EXPORTED[package.__name__]
    framework = package.__name__.removeprefix("perfkit_")
    missing = framework != "core" and importlib.util.find_spec(framework) is None
    for name in package.__all__:
        if missing and name in ("annotate", "describe"):  # the others need the framework when they are used
            with pytest.raises(ImportError, match=r"pip install 'perfkit\["):
                getattr(package, name)
        else:
            assert getattr(package, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_importing_perfkit_imports_no_framework() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("package", [perfkit_core, perfkit_torch, perfkit_paddle], ids=lambda p: p.__name__)
def test_what_is_installed_has_all_data_files(package: ModuleType) -> None:
    """Pages need templates, styles and scripts, and adapters need tables. A wheel must contain all of them."""
    own = {".css", ".j2", ".js", ".toml"}
    checkout, installed = ROOT / package.__name__, Path(package.__path__[0])
    files = [path.relative_to(checkout) for path in checkout.rglob("*") if path.suffix in own]
    assert files
    assert [str(file) for file in files if not (installed / file).is_file()] == []
