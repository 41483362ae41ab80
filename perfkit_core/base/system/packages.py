"""Imports on first use, and a hook that runs after a module's first import."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports ``module`` when it is called, and calls the function ``name`` of the module."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def imported(module: str, name: str) -> Callable[[], Any]:
    """Return a function that imports ``module`` when it is called, and returns the object ``name`` of the module."""
    return lambda: getattr(importlib.import_module(module), name)


def installed(module: str) -> bool:
    """Return whether a top-level module is installed. The module is not imported. A folder without ``__init__.py`` does
    not count: a working folder may have one of this name, for example with the recordings of a framework."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def instances(cls: type) -> int:
    """Return the number of objects of a class and its subclasses. No Python code runs for each: it may be recorded."""
    counts, family = Counter(map(id, map(type, gc.get_objects()))), [cls]
    for of in family:
        family += type.__subclasses__(of)
    return sum(counts[number] for number in {*map(id, family)})


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from collecting garbage within the block, which creates many objects that stay. Each collection would
    scan them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def exported(package: str, name: str, homes: Mapping[str, str], extra: str) -> Any:
    """Import the module ``homes[name]`` of ``package`` and return its object ``name``. Raises AttributeError for an
    unknown name. Raises ImportError if the framework ``extra``, or another module, is missing. The message says to
    install this extra of perfkit."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    problem: object = None if installed(extra) else f"No module named {extra!r}"
    try:
        if problem is None:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
    except ModuleNotFoundError as error:
        problem = error
    raise ImportError(f'{package}.{name}: {problem}; install it with: pip install "perfkit[{extra}]"')


class FirstImport:
    """A finder for ``sys.meta_path`` that calls ``callback(name)`` once, after the first successful import of one of
    ``modules``. The modules are loaded by their regular loaders."""

    def __init__(self, modules: Collection[str], callback: Callable[[str], None]) -> None:
        self._modules = frozenset(modules)
        self._callback = callback
        self._searching = False

    def __enter__(self) -> FirstImport:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the other finders with its loader wrapped, or None for a module not in ``modules``."""
        if self._searching or fullname not in self._modules:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        loader: Any = spec and spec.loader
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                self.__exit__()
                with no_collection():  # what the callback imports stays
                    self._callback(fullname)

        loader.exec_module = exec_module
        return spec
