"""The conformance suite: functions for any test runner. They raise AssertionError if a check fails.

=====================  ==============================================================================================
check_source           A reader recognises only its own files; a damaged file raises a SourceError that names the file.
check_trace            The event table follows the rules of :mod:`perfkit_core.trace.model.schema`.
check_plugin           A plugin imports no framework. Its hooks and the parts of its frameworks are objects of the
                       documented types.
check_exporter         For each stack weight, exporting a trace twice gives the same bytes. For a trace without
                       events, the exporter returns a sentence about the missing data.
check_view             A view returns the declared columns with the right types, for traces with and without events.
check_round_trip       A trace is unchanged after storing and reading; pandas, polars and duckdb can read the file.
=====================  =============================================================================================="""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final, cast

import pandas as pd

from perfkit_core.base.operators.names import is_canonical
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.plugins import contracts, frameworks
from perfkit_core.plugins.contracts import Exporter, ExportOptions, Source, View, ViewRequest
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.plugins.manager import EntryPoint, Plugins, load
from perfkit_core.readers.load import read_with
from perfkit_core.testing.traces import check_round_trip, check_trace, require
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import GZIP_MAGIC, head
from perfkit_core.views.merging import table_of

__all__ = ["check_exporter", "check_plugin", "check_round_trip", "check_source", "check_trace", "check_view"]

FOREIGN: Final = {
    "empty": b"",
    "text": b"epoch,loss\n0,0.5\n",
    "json": b'{"cells": [], "nbformat": 4}',
    "list": b"[1, 2, 3]",
    "html": b"<!DOCTYPE html><title>report</title>",
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "zip": b"PK\x03\x04\x14\x00\x00\x00",
    "elf": b"\x7fELF\x02\x01\x01\x00",
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00",
}
"""The first bytes of files that do not come from a profiler."""
_PARTS: Final = {
    "recorder": frameworks.Recorder,
    "calibrator": frameworks.Calibrator,
    "native_tables": frameworks.NativeTables,
    "compiled_code": frameworks.CompiledCode,
    "checks": contracts.FrameworkChecks,
}
"""Part of a framework's record → its type."""
_UNKNOWN: Final = {"operator_names": "operator", "operator_formulas": "operator", "range_names": "range"}
"""Part of a framework's record that is a function of a name → what it names."""


def check_source(source: Source, path: Path) -> None:
    """Check a reader. ``path`` is an intact file of its format."""
    require(bool(source.name and source.description), "a source must have a name and a description")
    require(source.sniff(path, head(path)) >= 1, f"{source.name} does not recognise {path.name}")
    intact = frozenset(read_with(source, path).quality)
    for name, start in FOREIGN.items():
        sniffed = source.sniff(Path(f"foreign-{name}"), start)
        require(sniffed == 0, f"{source.name} recognises a foreign file ({name})")
    data = path.read_bytes()
    third = len(data) // 3
    damaged = {
        "empty": b"",
        "garbage": bytes(range(255, -1, -1)) * 8,
        "json": FOREIGN["json"],
        "half": data[: len(data) // 2],
        "overwritten": data[:third] + b"\x00" * 4096 + data[third + 4096 :],
    }
    if data.startswith(GZIP_MAGIC):
        unpacked = gzip.decompress(data)
        damaged["half-inside"] = gzip.compress(unpacked[: len(unpacked) // 2], 1)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in damaged.items():
            file = Path(folder) / f"{name}-{path.name}"
            file.write_bytes(content)
            try:
                read_with(source, file)
            except SourceError as error:
                require(str(file) in str(error), f"the message does not name the file: {error}")
                require("\n" not in str(error), f"the message has more than one line: {error!r}")
            else:
                raise AssertionError(f"{source.name} reads a damaged file without an error ({file.name})")
            try:
                partial = read_with(source, file, True)
            except SourceError:
                continue
            require(isinstance(partial, Trace), "a partial read does not return a Trace")
            require(not intact.issuperset(partial.quality), f"no finding reports the damage of {file.name}")


_PROBE = """
import dataclasses, importlib, json, sys
plugin = importlib.import_module(sys.argv[1])
for hook in ("perfkit_sources", "perfkit_views", "perfkit_rules", "perfkit_renderers", "perfkit_exporters"):
    getattr(plugin, hook, list)()
for framework in getattr(plugin, "perfkit_frameworks", list)():
    for part in dataclasses.fields(framework)[1:]:
        getattr(framework, part.name)()
    if calibrator := framework.calibrator():
        calibrator.version()
    if checks := framework.checks():
        checks.installed()
print(json.dumps(sorted(sys.modules)))
"""


def check_plugin(module: ModuleType, frameworks: Sequence[str] = ()) -> None:
    """Check the module of an entry point. Importing it, calling its hooks, and making the parts of its frameworks must
    not import a framework: none of ``frameworks``, and none for which the module has a record."""
    name = module.__name__
    plugins = load([EntryPoint("under-test", name)])
    listed = plugins.listed["under-test"]
    require(listed.error is None, f"{name} does not load: {listed.error}")
    require(bool(listed.hooks), f"{name} implements no hook: decorate with @perfkit_core.plugins.hookimpl")
    records = plugins.frameworks()
    for items, kind in (
        (plugins.sources(), contracts.Source),
        (list(plugins.views().values()), contracts.View),
        (list(plugins.renderers().values()), contracts.Renderer),
        (list(plugins.exporters().values()), contracts.Exporter),
        ([remedy for record in records.values() for remedy in record.remedies()], contracts.Remedy),
    ):
        for item in items:
            require(isinstance(item, kind), f"{item!r} is not a {kind.__name__}")
    sources = [source.name for source in plugins.sources()]
    require(len(sources) == len(set(sources)), f"two sources have the same name: {sources}")
    for framework in records.values():
        _check_parts(framework)
    require(listed.error is None, f"a hook of {name} fails: {listed.error}")
    forbidden = {*records, *frameworks}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    probe = subprocess.run([sys.executable, "-c", _PROBE, name], capture_output=True, encoding="utf-8", env=environment)
    require(probe.returncode == 0, f"{name} cannot be imported on its own:\n{probe.stderr}")
    imported = forbidden.intersection(json.loads(probe.stdout.splitlines()[-1]))
    require(not imported, f"importing {name} imports {', '.join(sorted(imported))}")


def _check_parts(framework: Framework) -> None:
    """Check the types of the parts of a framework's record, and what its functions return for unknown names."""
    for part, kind in _PARTS.items():
        value = getattr(framework, part)()
        require(value is None or isinstance(value, kind), f"{framework.name}: {value!r} is not a {kind.__name__}")
    for part, unknown in _UNKNOWN.items():
        function = getattr(framework, part)()
        answer = None if function is None else function(f"no such {unknown}")
        require(answer is None, f"{framework.name}: {part} returns a value for an unknown {unknown}, not None")


def check_operator_name(plugins: Plugins, framework: str, native: str, canonical: str) -> None:
    """Check that ``canonical`` exists, and that it is the canonical name of the framework's operator ``native``."""
    function = plugins.framework(framework).operator_names()
    if function is None:
        raise AssertionError(f"no plugin has operator names for {framework}")
    require(is_canonical(canonical), f"{canonical} is not a canonical operator name")
    require(function(native) == canonical, f"the canonical name of {native} is {function(native)}, not {canonical}")


def check_view(view: View, trace: Trace) -> None:
    """Check the table of a view without a grouping and with each grouping, for ``trace`` and for an empty trace."""
    require(bool(view.name and view.title and view.description), "a view must have a name, a title and a description")
    for events in (trace, trace.slice(0, 0)):
        for by in ((), *((grouping,) for grouping in view.groupings)):
            _check_table(view, table_of(view, events, ViewRequest(by=by)))
        require(bool(view.explain_empty(events)), f"explain_empty of {view.name} returns no reason")
    if not view.groupings:
        return
    try:
        table_of(view, trace, ViewRequest(by=("no such grouping",)))
    except UsageError:
        return
    raise AssertionError(f"{view.name} accepts a grouping that it does not have")


def _check_table(view: View, table: pd.DataFrame) -> None:
    require(table.columns.is_unique, f"{view.name} has two columns of the same name: {list(table.columns)}")
    orders = (view.order,) if isinstance(view.order, str) else view.order or ()
    require(set(orders) <= set(table.columns), f"{view.name} has no column {view.order}")
    for name, kind in table.dtypes.items() if len(table) else ():
        column = str(name)
        if column.endswith(("_ns", "_bytes")) or column in ("calls", "bytes"):
            require(pd.api.types.is_integer_dtype(kind), f"{view.name}.{column} is {kind}, not an integer")
        if column.endswith("_ratio"):
            require(pd.api.types.is_float_dtype(kind), f"{view.name}.{column} is {kind}, not a float")


class _Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("an exporter must not seek")


def check_exporter(exporter: Exporter, trace: Trace) -> None:
    """Check an exporter's files with each stack weight that it supports, for ``trace`` and for an empty trace."""
    require(bool(exporter.name and exporter.description), "an exporter must have a name and a description")
    require(bool(exporter.suffixes), f"{exporter.name} has no suffix")
    for suffix in exporter.suffixes:
        require(suffix.startswith(".") and suffix == suffix.lower(), f"{suffix!r} is not a lower-case suffix")
    for weight in (None, *exporter.weights):
        options, contents = ExportOptions(weight), []
        for _ in range(2):
            file = _Pipe()
            missing = exporter.write(trace, cast("BinaryIO", file), options)
            require(isinstance(missing, str), f"{exporter.name} returns {missing!r}, not text")
            contents.append(file.getvalue())
        require(contents[0] == contents[1], f"{exporter.name} writes different bytes in a second call")
        missing = exporter.write(trace.slice(0, 0), cast("BinaryIO", _Pipe()), options)
        require(bool(missing), f"{exporter.name} returns no reason for a file without events")
