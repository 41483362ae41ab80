"""Loading of plugins. A broken plugin is listed with its error and does not affect other plugins."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import pluggy

from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins import hookspecs
from perfkit_core.plugins.entry_points import EntryPoint, entry_points
from perfkit_core.plugins.hookspecs import PROJECT

if TYPE_CHECKING:
    from perfkit_core.base.language.messages import Text
    from perfkit_core.plugins import benches, checks, contracts
    from perfkit_core.plugins.flops.registry import OperatorFormula

DISABLE: Final = "PERFKIT_DISABLE_PLUGINS"
"""Environment variable: names of plugins that are not loaded, separated by commas. ``all`` stands for all plugins that
other packages than perfkit installed."""
ALL: Final = "all"
BUILTIN: Final = "perfkit_core.cli.builtin"
"""Module with perfkit's own plugin, which is loaded by name, like every plugin."""


@dataclass(slots=True)
class Plugin:
    """An installed plugin. ``error`` says why the plugin does not fully work. It is None if the plugin works. A
    ``disabled`` plugin was not imported."""

    name: str
    origin: str
    hooks: tuple[str, ...] = ()
    error: str | None = None
    disabled: bool = False


@dataclass(slots=True)
class Plugins:
    """The hooks of all loaded plugins. ``listed`` contains the plugins by name, with their errors."""

    manager: pluggy.PluginManager
    listed: dict[str, Plugin] = field(default_factory=dict)

    def sources(self) -> list[contracts.Source]:
        return list(self._flat("perfkit_sources"))

    def recorders(self) -> list[contracts.Recorder]:
        return list(self._flat("perfkit_recorders"))

    def instead(self, framework: str | None, flag: str) -> Text | None:
        """Return what to do instead of a flag of ``perfkit record`` that the framework does not support, else None."""
        recorders = (recorder for recorder in self.recorders() if recorder.framework == framework)
        return next((recorder.instead.get(flag) for recorder in recorders), None)

    def views(self) -> dict[str, contracts.View]:
        return {view.name: view for view in self._flat("perfkit_views")}

    def renderers(self) -> dict[str, contracts.Renderer]:
        return {renderer.name: renderer for renderer in self._flat("perfkit_renderers")}

    def exporters(self) -> dict[str, contracts.Exporter]:
        return {exporter.name: exporter for exporter in self._flat("perfkit_exporters")}

    def commands(self) -> dict[str, Any]:
        return {command.name: command for command in self._flat("perfkit_commands")}

    def rules(self) -> dict[str, contracts.Rule[Any, Any]]:
        """Return a dict: id → rule, sorted by ``Rule.number``."""
        return {rule.id: rule for rule in sorted(self._flat("perfkit_rules"), key=lambda rule: rule.number)}

    def remedies(self, framework: str | None) -> list[contracts.Remedy]:
        return [remedy for by_framework in self._results("perfkit_remedies", dict)
                for remedy in by_framework.get(framework, ())]  # fmt: skip

    def remedied_frameworks(self) -> list[str]:
        return sorted({name for by_framework in self._results("perfkit_remedies", dict) for name in by_framework})

    def step_timers(self) -> dict[str, Callable[[], contracts.StepTimer]]:
        """Return the functions that start step timers, by the module name of the framework."""
        results = self._results("perfkit_step_timers", dict)
        return {name: start for by_framework in results for name, start in by_framework.items()}

    def calibrators(self) -> dict[str, benches.Calibrator]:
        return {calibrator.framework: calibrator for calibrator in self._flat("perfkit_calibrations")}

    def operator_names(self, framework: str | None) -> Callable[[str], str | None] | None:
        """Return the function that maps a framework's native operator names to canonical names, or None."""
        return cast("Callable[[str], str | None] | None", self._of_framework("perfkit_operator_names", framework))

    def operator_formulas(self, framework: str | None) -> Callable[[str], OperatorFormula | None] | None:
        """Return the function that maps a framework's native operator names to formulas of their FLOPs, or None."""
        formulas = self._of_framework("perfkit_operator_formulas", framework)
        return cast("Callable[[str], OperatorFormula | None] | None", formulas)

    def _of_framework(self, hook: str, framework: str | None) -> Any:
        return next((by_name[framework] for by_name in self._results(hook, dict) if framework in by_name), None)

    def range_names(self) -> dict[str, Callable[[str], contracts.RangeMeaning | None]]:
        """Return the functions that interpret the texts of NVTX ranges, by framework."""
        results = self._results("perfkit_range_names", dict)
        return {name: meaning for by_framework in results for name, meaning in by_framework.items()}

    def native_tables(self, framework: str | None) -> contracts.NativeTables:
        """Return how the framework's own profiler makes its tables."""
        for tables in self._results("perfkit_native_tables", dict):
            if framework in tables:
                return cast("contracts.NativeTables", tables[framework])
        from perfkit_core.plugins.contracts import NativeTables

        return NativeTables()

    def compiled_code(self, framework: str | None) -> contracts.CompiledCode | None:
        """Return what reads the compiled code of a framework, or None."""
        return next((code for code in self.all_compiled_code() if code.framework == framework), None)

    def all_compiled_code(self) -> list[contracts.CompiledCode]:
        return list(self._flat("perfkit_compiled_code"))

    def framework_checks(self) -> list[checks.FrameworkChecks]:
        return list(self._flat("perfkit_checks"))

    def call_all(self) -> None:
        """Call every hook, so that ``listed`` has the error of a plugin whose hook fails."""
        for hook in (name for name in vars(hookspecs) if name.startswith("perfkit_")):
            list(self._results(hook, lambda answer: dict(answer) if isinstance(answer, Mapping) else list(answer)))

    def _flat(self, hook: str) -> Iterator[Any]:
        for items in self._results(hook, list):
            yield from items

    def _results(self, hook: str, shape: Callable[[Any], Any]) -> Iterator[Any]:
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            try:
                yield shape(implementation.function())
            except Exception as error:  # a plugin may raise anything
                self.listed[implementation.plugin_name].error = f"{hook}: {_reason(error)}"


@functools.cache
def get_plugins() -> Plugins:
    return load(entry_points(PROJECT), os.environ.get(DISABLE, ""))


def load(points: Iterable[EntryPoint], disable: str = "") -> Plugins:
    """Load the built-ins, then the plugins of the entry points, sorted by name, without those that ``disable`` names as
    in :data:`DISABLE`. A name of no plugin is logged as a warning."""
    points = sorted(points, key=lambda point: point.name)
    disabled = _disabled(points, disable)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    plugins = Plugins(manager)
    for point in (EntryPoint("core", BUILTIN), *points):
        plugin = plugins.listed[point.name] = Plugin(point.name, point.value)
        if point in disabled:
            plugin.disabled = True
            continue
        try:
            loaded = point.load()
            manager.register(loaded, point.name)
            manager.check_pending()
            plugin.hooks = tuple(sorted(caller.name for caller in manager.get_hookcallers(loaded) or ()))
        except Exception as error:
            plugin.error = _reason(error)
            if manager.get_plugin(point.name) is not None:
                manager.unregister(name=point.name)
    return plugins


def _disabled(points: Sequence[EntryPoint], disable: str) -> list[EntryPoint]:
    names = {name for part in disable.split(",") if (name := part.strip())}
    if unknown := names - {ALL} - {point.name for point in points}:
        import logging  # would slow down --help

        from perfkit_core.base.system.failures import tell

        shown = ", ".join(map(repr, sorted(unknown)))
        installed = ", ".join(point.name for point in points)
        tell(f"{DISABLE}: there is no plugin {shown}; use {ALL}, or: {installed}", logging.WARNING)
    return [point for point in points if point.name in names or (ALL in names and point.package != PROJECT)]


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def chosen_framework(frameworks: Collection[str], requested: object, hint: str, used: Collection[str] = ()) -> str:
    """Return the name of a framework. ``requested``: the name, or None. ``used``: names of top-level modules that the
    code uses. ``hint``: how to give a name. Raises UsageError if the name is not in ``frameworks``, or if nothing is
    requested, and none or several of ``frameworks`` are used or imported."""
    __tracebackhide__ = True
    if requested is not None:
        if requested not in frameworks:
            raise UsageError(f"unknown framework {requested!r}", spelled_like(str(requested), frameworks))
        return str(requested)
    of_code = sorted({*used}.intersection(frameworks))
    names = of_code or sorted(name for name in frameworks if name in sys.modules)
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError("no framework is imported", hint)
    raise UsageError(f"{' and '.join(names)} are {'used' if of_code else 'imported'}", hint)
