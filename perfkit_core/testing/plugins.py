"""Does a plugin load, without any framework, and do its hooks return what they promise?

Does a view return the table that its contract promises?

Does an exporter write what its contract promises?
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import BinaryIO, cast

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.model.trace import Trace
from perfkit_core.operators.names import is_canonical
from perfkit_core.plugins.contracts import (
    Calibrator,
    Exporter,
    ExportOptions,
    OperatorNames,
    Recorder,
    Renderer,
    Source,
    View,
    ViewRequest,
)
from perfkit_core.plugins.hookspecs import PROJECT
from perfkit_core.plugins.manager import Plugins, load
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


def check_view(view: View, trace: Trace) -> None:
    """On the trace and on one without events, plain and by each grouping. Raises AssertionError."""
    require(bool(view.name and view.title and view.description), "a view needs a name, a title and a description")
    for some in (trace, trace.slice(0, 0)):
        for request in _requests(view):
            check_table(view, view.table(some, request))
        require(bool(view.explain_empty(some)), f"{view.name} does not say why it is empty")
    if view.groupings:
        _check_refused(view, trace)


def _requests(view: View) -> Iterator[ViewRequest]:
    yield ViewRequest()
    for grouping in view.groupings:
        yield ViewRequest(by=(grouping,))


def check_table(view: View, table: pd.DataFrame) -> None:
    """Columns are unique; ns, bytes and calls are integers; ratios are floats; the order is a column."""
    require(table.columns.is_unique, f"{view.name} has a column twice: {list(table.columns)}")
    require(view.order is None or view.order in table.columns, f"{view.name} has no column {view.order}")
    for name, kind in table.dtypes.items():
        column = str(name)
        if column.endswith(("_ns", "_bytes")) or column in ("calls", "bytes"):
            sound = pd.api.types.is_integer_dtype(kind) or not len(table)
            require(sound, f"{view.name}.{column} is {kind}, not an integer")
        if column.endswith("_ratio") and len(table):
            require(pd.api.types.is_float_dtype(kind), f"{view.name}.{column} is {kind}, not a float")


def _check_refused(view: View, trace: Trace) -> None:
    try:
        view.table(trace, ViewRequest(by=("no such grouping",)))
    except UsageError:
        return
    raise AssertionError(f"{view.name} accepts a grouping that it does not have")


class _Pipe(io.BytesIO):
    """A file that can only be written on and on, as a pipe."""

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("an exporter may not seek")


def check_exporter(exporter: Exporter, trace: Trace) -> None:
    """On the trace and on one without events, with each weight. Raises AssertionError."""
    require(bool(exporter.name and exporter.description), "an exporter needs a name and a description")
    require(bool(exporter.suffixes), f"{exporter.name} has no suffix")
    for suffix in exporter.suffixes:
        require(suffix.startswith(".") and suffix == suffix.lower(), f"not a suffix in small letters: {suffix!r}")
    empty = trace.slice(0, 0)
    for weight in (None, *exporter.weights):
        options = ExportOptions(weight)
        require(_written(exporter, trace, options) == _written(exporter, trace, options), "it differs each time")
        said = exporter.write(empty, cast("BinaryIO", _Pipe()), options)
        require(bool(said), f"{exporter.name} does not say why there is nothing in its file")


def _written(exporter: Exporter, trace: Trace, options: ExportOptions) -> bytes:
    file = _Pipe()
    said = exporter.write(trace, cast("BinaryIO", file), options)
    require(isinstance(said, str), f"{exporter.name} returns {said!r}, not text")
    return file.getvalue()
