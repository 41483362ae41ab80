"""Does a plugin load, without any framework, and do its hooks return what they promise?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import cast

from perfkit_core.operator_names import is_canonical
from perfkit_core.plugins.contracts import Calibrator, Exporter, OperatorNames, Recorder, Renderer, Source, View
from perfkit_core.plugins.manager import Plugins, load
from perfkit_core.plugins.markers import PROJECT
from perfkit_core.testing.require import require

_PROBE = """
import importlib, json, sys
plugin = importlib.import_module(sys.argv[1])
for hook in ("perfkit_sources", "perfkit_recorders", "perfkit_analyses", "perfkit_operator_names", "perfkit_renderers",
             "perfkit_exporters", "perfkit_step_timers"):
    getattr(plugin, hook, list)()
for calibrator in getattr(plugin, "perfkit_calibrations", list)():
    calibrator.version()
print(json.dumps(sorted(sys.modules)))
"""


def check_plugin(module: ModuleType, frameworks: Sequence[str] = ()) -> None:
    """``module`` is what the entry point names. Neither importing it nor asking its hooks may import a framework:
    those it has operator names or recorders for, and ``frameworks``. Raises AssertionError.
    """
    name = module.__name__
    plugins = load([EntryPoint("under-test", name, PROJECT)])
    listed = plugins.listed["under-test"]
    require(listed.error is None, f"{name} does not load: {listed.error}")
    require(bool(listed.hooks), f"{name} implements no hook: decorate with @perfkit_core.plugins.hookimpl")
    _check_types(plugins)
    own = _check_operator_names(plugins)
    require(listed.error is None, f"a hook of {name} fails: {listed.error}")
    own |= {recorder.framework for recorder in plugins.recorders()} | set(frameworks)
    imported = own & set(_modules_after_import(name))
    require(not imported, f"importing {name} imports {', '.join(sorted(imported))}")


def _check_types(plugins: Plugins) -> None:
    for items, kind in (
        (plugins.sources(), Source),
        (plugins.recorders(), Recorder),
        (list(plugins.views().values()), View),
        (list(plugins.renderers().values()), Renderer),
        (list(plugins.exporters().values()), Exporter),
        (list(plugins.calibrators().values()), Calibrator),
    ):
        for item in items:
            require(isinstance(item, kind), f"{item!r} is not a {kind.__name__}")
    names = [source.name for source in plugins.sources()]
    require(len(names) == len(set(names)), f"two sources have one name: {names}")
    recorders = [recorder.framework for recorder in plugins.recorders()]
    require(len(recorders) == len(set(recorders)), f"two recorders for one framework: {recorders}")


def _check_operator_names(plugins: Plugins) -> set[str]:
    """Frameworks that the plugins have operator names for."""
    frameworks: set[str] = set()
    for implementation in plugins.manager.hook.perfkit_operator_names.get_hookimpls():
        names = cast(OperatorNames, implementation.function())
        for framework, function in names.items():
            require(function("no such operator, anywhere") is None, f"{framework}: an unknown operator must be None")
            frameworks.add(framework)
    return frameworks


def check_operator_name(plugins: Plugins, framework: str, native: str, canonical: str) -> None:
    """The framework's operator ``native`` has this canonical name, which is in the vocabulary."""
    function = plugins.operator_names(framework)
    if function is None:
        raise AssertionError(f"no plugin has operator names for {framework}")
    require(is_canonical(canonical), f"{canonical} is not in the vocabulary")
    require(function(native) == canonical, f"{native} is {function(native)}, not {canonical}")


def _modules_after_import(name: str) -> list[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", _PROBE, name], capture_output=True, encoding="utf-8", env=environment)
    require(done.returncode == 0, f"{name} cannot be imported on its own:\n{done.stderr}")
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules
