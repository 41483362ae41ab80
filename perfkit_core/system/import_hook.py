"""When does a process import one of some modules? Told right after the import, without importing anything itself."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class FirstImport(importlib.abc.MetaPathFinder):
    """Calls ``found(name)`` once, right after the first successful import of one of ``wanted`` has finished.

    The module is loaded by its own loader, as without us; only the end of the import is noticed.
    """

    def __init__(self, wanted: Collection[str], found: Callable[[str], None]) -> None:
        self._wanted = frozenset(wanted)
        self._found = found
        self._looking = False

    def __enter__(self) -> FirstImport:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, its loader watched."""
        if self._looking or fullname not in self._wanted:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._watch(fullname, spec.loader)
        return spec

    def _watch(self, name: str, loader: object) -> None:
        execute = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[attr-defined]
            execute(module)
            if self in sys.meta_path:
                self.__exit__()
                self._found(name)

        loader.exec_module = exec_module  # type: ignore[attr-defined]
