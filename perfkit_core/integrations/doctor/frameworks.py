"""Checks of plugins, of the frameworks of their adapters, and of what the frameworks' profilers record."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from perfkit_core.base.system.failures import logger, one_line
from perfkit_core.integrations.doctor import child_process
from perfkit_core.integrations.doctor.distributions import DISTRIBUTION, elsewhere, installed, supported
from perfkit_core.plugins.contracts import PROBLEM, Check, FrameworkChecks
from perfkit_core.plugins.hookspecs import PROJECT
from perfkit_core.plugins.manager import DISABLE, get_plugins

_HERE = "perfkit_core.integrations.doctor.frameworks"
_UNINSTALL = "if you installed a plugin lately, uninstall it"


def plugins() -> Sequence[Check]:
    """Return a check of each plugin: whether it can be imported, and whether its hooks work."""
    return child_process.checks_of("plugin", f"{_HERE}:loaded_plugins", fix=_UNINSTALL)


def loaded_plugins() -> Iterator[Check]:
    """Yield a check of each plugin in this process."""
    manager = get_plugins()
    manager.call_all()
    points = {point.name: point for point in entry_points(group=PROJECT)}
    for plugin in manager.listed.values():
        package, name = _maker(points.get(plugin.name)), f"plugin.{plugin.name}"
        data = {"origin": plugin.origin, "package": package, "error": plugin.error, "disabled": plugin.disabled}
        if plugin.disabled:
            text = f"{plugin.name} ({package or plugin.origin}) is disabled by {DISABLE}"
            yield Check(name, "note", text, f"remove {plugin.name} from {DISABLE} to use it", data)
        elif plugin.error is None:
            yield Check(name, "ok", f"{plugin.name} ({package or plugin.origin})", data=data)
        else:
            fix = f"update or uninstall {package}" if package not in (None, DISTRIBUTION) else ""
            yield Check(name, PROBLEM, f"{plugin.name} ({plugin.origin}) does not work: {plugin.error}", fix, data)


def _maker(point: EntryPoint | None) -> str | None:
    dist = point.dist if point is not None else None
    return None if dist is None else dist.name


def framework(framework: str, checks: FrameworkChecks) -> Iterator[Check]:
    """Yield the checks of a framework: its packages, whether it can be imported, and whether it can be recorded."""
    name = f"framework.{framework}"
    present = {package: dist.version for package in checks.distributions if (dist := installed(package)) is not None}
    data = {"framework": framework, "distributions": present}
    if not present:
        text = f"{framework} is not installed: its recordings can be read, but not made"
        yield Check(name, "note", text, f'pip install "{DISTRIBUTION}[{framework}]"', data)
        return
    yield Check(name, "ok", ", ".join(f"{package} {version}" for package, version in present.items()), data=data)
    for package, version in present.items():
        needs = supported(version, (package, *checks.distributions))
        if needs is not None:
            text = f"{package} {version}, but perfkit supports {needs}"
            yield Check(f"{name}.version", PROBLEM, text, f'pip install "{package}{needs}"', {"requires": needs})
    try:
        yield from checks.installed()
    except Exception as error:  # a plugin may raise anything
        yield Check(f"{name}.installed", PROBLEM, f"the adapter's check failed: {one_line(error)}")
    fix = f"check that this works: python -c 'import {framework}'; if not, reinstall {' or '.join(present)}"
    target = f"{_HERE}:running"
    yield from child_process.checks_of(f"{name}.import", target, [framework], about=framework, fix=fix)


def running(framework: str) -> Iterator[Check]:
    """Yield the checks of the adapter that need its framework, in this process."""
    checks = get_plugins().framework(framework).checks()
    assert checks is not None
    try:
        importlib.import_module(framework)
    except Exception as error:  # importing a framework may raise anything
        present = list(filter(installed, checks.distributions))
        text = f"{framework} cannot be imported: {one_line(error)}{elsewhere(present[0], framework)}"
        yield Check(f"framework.{framework}.import", PROBLEM, text, f"reinstall {' or '.join(present)}")
        return
    yield from checks.running()


class _Log(logging.Handler):
    """Keeps the last message of perfkit's logger, which says why a handler recorded nothing."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def recorded(framework: str, record: Callable[[str], None], on_device: bool) -> Iterator[Check]:
    """Yield what the framework's profiler records. ``record(folder)`` records an operator through the adapter's
    ``trace_handler`` into a folder. ``on_device`` says whether the operator runs on a device."""
    from perfkit_core.errors import SourceError
    from perfkit_core.readers.load import load
    from perfkit_core.trace.model.schema import KERNEL, OPERATOR
    from perfkit_core.trace.storage import store

    name, log = f"framework.{framework}.recording", _Log()
    logger.addHandler(log)
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            record(folder)
            store.flush(Path(folder), None)
            trace = load(folder)
            operators, kernels = int(trace.rows("kind", OPERATOR).sum()), int(trace.rows("kind", KERNEL).sum())
    except SourceError as error:
        yield Check(name, PROBLEM, f"the profiler of {framework} recorded nothing ({log.last or error.message})")
        return
    except Exception as error:  # a framework may raise anything
        yield Check(name, PROBLEM, f"the profiler of {framework} does not work ({one_line(error)})")
        return
    finally:
        logger.removeHandler(log)
    data = {"operators": operators, "kernels": kernels if on_device else None}
    if not operators:
        yield Check(name, PROBLEM, f"the profiler of {framework} recorded no operators", data=data)
    elif not on_device:
        yield Check(name, "ok", f"the profiler of {framework} records operators", data=data)
    elif kernels:
        yield Check(name, "ok", f"the profiler of {framework} records operators and kernels of the device", data=data)
    else:
        text = f"the profiler of {framework} records operators, but no kernels of the device"
        fix = "see the checks of the GPU driver; another profiler of the GPU may be running"
        yield Check(name, PROBLEM, text, fix, data)
