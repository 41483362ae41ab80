"""The libraries that hold compiled functions. There is one for each module, in the folder ``_compiled`` of its package.

In a checkout, a library is built again if its functions have changed. Installed packages do not need this."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, get_type_hints, runtime_checkable

import numpy as np

from perfkit_core.errors import UsageError

_STAMP: Final = re.compile(rb"perfkit functions ([0-9a-f]{64}) of Python (\d+\.\d+)")
_PACKAGES: Final = "perfkit_"
BUILT: Final = "built"
"""Value of the environment variable ``PERFKIT_COMPILED`` if all libraries are known to be fresh. Tests set it, because
functions that they replace would look like edited functions."""


@runtime_checkable
class Marked(Protocol):
    """A function that has been marked for the build. ``python`` is the plain function, ``traits`` how to compile it."""

    python: Any
    traits: str


def library_path(module: str) -> Path:
    """Return the path of the library with the functions of an imported module."""
    package = sys.modules[module.partition(".")[0]]
    return Path(package.__path__[0]) / "_compiled" / f"{module}.so"


@functools.cache
def load(module: str) -> ctypes.CDLL:
    """Return the library of an imported module. Raises UsageError if it is missing or damaged, or cannot be built."""
    path = library_path(module)
    if os.environ.get("PERFKIT_COMPILED") != BUILT and (path.parents[2] / "pyproject.toml").exists():
        _ensure_fresh(module, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UsageError(f"compiled code of perfkit is missing or damaged ({error})", "reinstall perfkit") from None


def functions_of(module: ModuleType) -> list[Any]:
    """Return the functions that a module has marked."""
    values = vars(module).values()
    return [value for value in values if isinstance(value, Marked) and value.__module__ == module.__name__]


def stamp(module: ModuleType) -> str:
    """Return the text that the library of a module contains. It has a digest of the module's compiled functions and of
    the functions and constants that they use. The digest depends on the version of Python."""
    parts = [part for function in functions_of(module) for part in _described(function, set())]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()
    return f"perfkit functions {digest} of Python {sys.version_info[0]}.{sys.version_info[1]}"


def is_fresh(path: Path, wanted: str) -> bool:
    """Return whether a library has the stamp. A library that another version of Python made is not checked."""
    found = _STAMP.search(path.read_bytes()) if path.exists() else None
    expected = _STAMP.fullmatch(wanted.encode())
    return found is not None and expected is not None and (found[2] != expected[2] or found[1] == expected[1])


def _described(function: Marked, done: set[int]) -> Iterator[Any]:
    """Yield all that the machine code of a function depends on."""
    if id(function) in done:
        return
    done.add(id(function))
    code, names = function.python.__code__, function.python.__globals__
    hints = repr(get_type_hints(function.python, include_extras=True))
    yield code.co_name, code.co_code, code.co_consts, code.co_names, hints, function.traits
    used = [names[name] for name in code.co_names if name in names]
    modules = [vars(value) for value in used if isinstance(value, ModuleType)]
    ours = [module for module in modules if module["__name__"].startswith(_PACKAGES)]
    for value in used + [module[name] for module in ours for name in code.co_names if name in module]:
        if isinstance(value, Marked):
            yield from _described(value, done)
        elif isinstance(value, int | float | bytes | str | tuple | np.generic):
            yield value


def _ensure_fresh(module: str, path: Path) -> None:
    wanted = stamp(sys.modules[module])
    if is_fresh(path, wanted):
        return
    path.parent.mkdir(exist_ok=True)
    with _locked(path.parent / ".lock"):
        if is_fresh(path, wanted):  # another process has built it
            return
        print(f"perfkit: compiling {module}", file=sys.stderr, flush=True)
        root = os.pathsep.join(filter(None, (str(path.parents[2]), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "perfkit_core.runtime.build", module]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": root})
    if done.returncode:
        hint = 'the reason is above; a build needs a C compiler, and: pip install -e ".[dev]"'
        raise UsageError(f"the compiled code of {module} cannot be built", hint)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for other processes that build in the same folder."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
