"""Loads plugins one by one under a guard: a broken one is listed, and takes nothing else down."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import pluggy

from perfkit_core.plugins import hookspecs
from perfkit_core.plugins.contracts import Calibrator, Exporter, Recorder, Remedy, Renderer, Rule, Source, View
from perfkit_core.plugins.hookspecs import PROJECT

BUILTIN: Final = "perfkit_core.cli.builtin"
"""Loaded by name, like every plugin: the manager knows nothing of what it manages."""


@dataclass(slots=True)
class Plugin:
    """An installed plugin. ``error`` says why it does not (fully) work, None when it does."""

    name: str
    origin: str
    hooks: tuple[str, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class Plugins:
    """All hooks of the loaded plugins, each call guarded."""

    manager: pluggy.PluginManager
    listed: dict[str, Plugin] = field(default_factory=dict)

    def sources(self) -> list[Source]:
        """All readers, built-ins first."""
        return list(self._flat("perfkit_sources"))

    def recorders(self) -> list[Recorder]:
        """All live captures."""
        return list(self._flat("perfkit_recorders"))

    def views(self) -> dict[str, View]:
        """Views by name, in the order of registration."""
        return {view.name: view for view in self._flat("perfkit_analyses")}

    def renderers(self) -> dict[str, Renderer]:
        """Renderers by name."""
        return {renderer.name: renderer for renderer in self._flat("perfkit_renderers")}

    def exporters(self) -> dict[str, Exporter]:
        """Exporters by name, in the order of registration."""
        return {exporter.name: exporter for exporter in self._flat("perfkit_exporters")}

    def commands(self) -> dict[str, Any]:
        """click commands by name."""
        return {command.name: command for command in self._flat("perfkit_commands")}

    def rules(self) -> dict[str, Rule]:
        """Rules of advice by id, in the order of their numbers."""
        return {rule.id: rule for rule in sorted(self._flat("perfkit_rules"), key=lambda rule: rule.number)}

    def remedies(self, framework: str | None) -> list[Remedy]:
        """What plugins say to write in a framework."""
        found = (given.get(framework, ()) for given in self._results("perfkit_remedies", dict))
        return [remedy for remedies in found for remedy in remedies]

    def remedied_frameworks(self) -> list[str]:
        """The frameworks for which plugins have remedies."""
        return sorted({name for given in self._results("perfkit_remedies", dict) for name in given})

    def step_timers(self) -> dict[str, Callable[[], Any]]:
        """What begins to time the steps of a training, by the framework's module."""
        return {name: start for given in self._results("perfkit_step_timers", dict) for name, start in given.items()}

    def calibrators(self) -> dict[str, Calibrator]:
        """What measures a machine, by framework."""
        return {calibrator.framework: calibrator for calibrator in self._flat("perfkit_calibrations")}

    def operator_names(self, framework: str | None) -> Callable[[str], str | None] | None:
        """The function that names a framework's operators canonically, None when no plugin has one."""
        for names in self._results("perfkit_operator_names", dict):
            if framework in names:
                found: Callable[[str], str | None] = names[framework]
                return found
        return None

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
    """The plugins of this installation, loaded once."""
    return load(entry_points(group=PROJECT))


def load(points: Iterable[EntryPoint]) -> Plugins:
    """Built-ins, then ``points`` in the order of their names."""
    plugins = Plugins(pluggy.PluginManager(PROJECT))
    plugins.manager.add_hookspecs(hookspecs)
    _register(plugins, "core", BUILTIN, lambda: importlib.import_module(BUILTIN))
    for point in sorted(points, key=lambda p: p.name):
        _register(plugins, point.name, point.value, point.load)
    return plugins


def _register(plugins: Plugins, name: str, origin: str, import_it: Callable[[], Any]) -> None:
    plugin = plugins.listed[name] = Plugin(name, origin)
    try:
        loaded = import_it()
        plugins.manager.register(loaded, name)
        plugins.manager.check_pending()
        plugin.hooks = tuple(sorted(caller.name for caller in plugins.manager.get_hookcallers(loaded) or ()))
    except Exception as error:
        plugin.error = _reason(error)
        if plugins.manager.get_plugin(name) is not None:
            plugins.manager.unregister(name=name)


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
