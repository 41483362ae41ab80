"""Loading of plugins. A broken plugin is listed with its error and does not affect other plugins.

The entry points of installed packages are read from their metadata folders. ``importlib.metadata`` does the same, but
its imports slow ``perfkit --help`` (docs/decisions/0016)."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pluggy

from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins import hookspecs
from perfkit_core.plugins.frameworks import Framework, Recorder, absent
from perfkit_core.plugins.hookspecs import PROJECT

if TYPE_CHECKING:
    from perfkit_core.base.language.messages import Text
    from perfkit_core.plugins import contracts


class EntryPoint(NamedTuple):
    """A name that a package registered for an object. ``value`` is ``module`` or ``module:attribute``. ``package`` is
    the normalised name of the package, "" if it is unknown."""

    name: str
    value: str
    package: str = ""

    def load(self) -> Any:
        """Import the object. Raises whatever its module raises."""
        module, _, attribute = self.value.partition(":")
        loaded: Any = importlib.import_module(module.strip())
        for name in filter(None, attribute.strip().split(".")):
            loaded = getattr(loaded, name)
        return loaded


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group. Of a package that is installed twice, the first one on ``sys.path`` counts.
    Packages inside zip files are not searched."""
    points: list[EntryPoint] = []
    packages = set()
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            package = name.rpartition(".")[0].partition("-")[0].lower().replace(".", "_")
            if package in packages:
                continue
            packages.add(package)
            file = os.path.join(folder, name, "entry_points.txt")  # noqa: PTH118 faster than Path
            points.extend(_read(file, group, package))
    return points


def _read(path: str, group: str, package: str) -> Iterator[EntryPoint]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for line in text.splitlines() if f"[{group}]" in text else ():
        line = line.strip()
        if line.startswith("["):
            section = line[1:-1].strip()
        elif section == group and "=" in line and line[0] != "#":
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip(), package)  # without extras


DISABLE: Final = "PERFKIT_DISABLE_PLUGINS"
"""Environment variable: names of plugins that are not loaded, separated by commas. ``all`` stands for all plugins that
other packages than perfkit installed."""
ALL: Final = "all"
BUILTIN: Final = "perfkit_core.cli.builtin"
"""Module with perfkit's own plugin, which is loaded by name, like every plugin."""
PARTS: Final = tuple(part.name for part in fields(Framework) if part.name != "name")
"""The parts of a framework's record."""
_NAMING: Final = frozenset({"operator_names", "operator_formulas", "range_names"})
"""Parts that are functions of a name, which return None if they do not know it."""


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
    _frameworks: dict[str, Framework] | None = field(default=None, init=False, repr=False)

    def sources(self) -> list[contracts.Source]:
        return list(self._flat("perfkit_sources"))

    def frameworks(self) -> dict[str, Framework]:
        """Return a dict: name → what all plugins together provide for the framework, as :class:`Framework` says. The
        functions of its parts never raise. They remember their result."""
        if self._frameworks is None:
            records: dict[str, list[tuple[str, Framework]]] = {}
            for plugin, record in self._answers("perfkit_frameworks"):
                if isinstance(record, Framework):
                    records.setdefault(record.name, []).append((plugin, record))
                else:
                    self.listed[plugin].error = f"perfkit_frameworks: {record!r} is not a Framework"
            self._frameworks = {name: self._merged(name, records[name]) for name in records}
        return self._frameworks

    def framework(self, name: str | None) -> Framework:
        """Return what all plugins provide for a framework. It is a record without parts if no plugin knows the name."""
        return self.frameworks().get(name or "") or Framework(name or "")

    def _merged(self, name: str, records: list[tuple[str, Framework]]) -> Framework:
        empty = Framework(name)
        parts: dict[str, Any] = {
            part: functools.cache(functools.partial(self._part, part, records))
            for part in PARTS
            if any(getattr(record, part) is not getattr(empty, part) for _, record in records)
        }
        return Framework(name, **parts)

    def _part(self, part: str, records: list[tuple[str, Framework]]) -> Any:
        values: list[Any] = []
        for plugin, record in records:
            try:
                value = getattr(record, part)()
                values.append(tuple(value) if part == "remedies" else value)
            except Exception as error:  # a plugin may raise anything
                self.listed[plugin].error = f"perfkit_frameworks: {part} of {record.name}: {_reason(error)}"
        values = [value for value in values if value is not None]
        if part == "remedies":
            return sum(values, ())
        if part in _NAMING and len(values) > 1:
            return functools.partial(_first_answer, values)
        return values[0] if values else None

    def recordable(self) -> list[str]:
        """Return the frameworks that have a recorder, without importing the recorders."""
        return [name for name, framework in self.frameworks().items() if framework.recorder is not absent]

    def recorders(self) -> dict[str, Recorder]:
        """Return the recorders by framework."""
        recorders = {name: framework.recorder() for name, framework in self.frameworks().items()}
        return {name: recorder for name, recorder in recorders.items() if recorder is not None}

    def instead(self, framework: str | None, flag: str) -> Text | None:
        """Return what to do instead of a flag of ``perfkit record`` that the framework does not support, else None."""
        recorder = self.framework(framework).recorder()
        return recorder.instead.get(flag) if recorder else None

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

    def call_all(self) -> None:
        """Call every hook and make every part of a framework, so that ``listed`` has the error of each that fails."""
        for hook in (name for name in vars(hookspecs) if name.startswith("perfkit_")):
            list(self._answers(hook))
        for framework in self.frameworks().values():
            for part in PARTS:
                getattr(framework, part)()

    def _flat(self, hook: str) -> Iterator[Any]:
        return (answer for _, answer in self._answers(hook))

    def _answers(self, hook: str) -> Iterator[tuple[str, Any]]:
        """Yield what the plugins return from a hook, with their names."""
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            try:
                answers = list(implementation.function())
            except Exception as error:  # a plugin may raise anything
                self.listed[plugin].error = f"{hook}: {_reason(error)}"
            else:
                yield from ((plugin, answer) for answer in answers)


@functools.cache
def get_plugins() -> Plugins:
    return load(entry_points(PROJECT), os.environ.get(DISABLE, ""))


def load(points: Iterable[EntryPoint], disable: str = "") -> Plugins:
    """Load the built-ins, then the plugins of the entry points, perfkit's own first, then by name, without those that
    ``disable`` names as in :data:`DISABLE`. A name of no plugin is logged as a warning."""
    points = sorted(points, key=lambda point: (point.package != PROJECT, point.name))
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


def _first_answer(functions: Sequence[Callable[[str], Any]], name: str) -> Any:
    return next((answer for function in functions if (answer := function(name)) is not None), None)


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
