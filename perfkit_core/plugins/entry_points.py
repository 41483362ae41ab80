"""The entry points of installed packages, read from their metadata folders.

``importlib.metadata`` does the same, but its imports slow ``perfkit --help`` (docs/decisions/0016)."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple


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
