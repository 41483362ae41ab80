"""Builds the library of a module in a checkout again if its functions have changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from perfkit_core.errors import UsageError

_STAMP: Final = re.compile(rb"perfkit functions ([0-9a-f]{64})")
_PACKAGES: Final = "perfkit_"
_HOW: Final = ("build.py", "compiled.py", "primitives.py", "signature.py")
"""Files of this folder that determine how functions are compiled and called."""


@runtime_checkable
class Marked(Protocol):
    """A function that has been marked for the build. ``python`` is the plain function."""

    python: Any
    traits: str


def functions_of(module: ModuleType) -> list[Any]:
    """Return the functions that a module has marked."""
    values = vars(module).values()
    return [value for value in values if isinstance(value, Marked) and value.__module__ == module.__name__]


def stamp(module: ModuleType) -> str:
    """Return the text that the library of a module contains. It has a digest of the files with the functions that it
    uses, of the constants that they use, of the way in which they are compiled, and of the platform."""
    files = {Path(__file__).with_name(name) for name in _HOW}
    values: set[str] = set()
    for function in functions_of(module):
        _collect(function, files, values, set())
    digest = hashlib.sha256("\n".join((sys.platform, platform.machine(), *sorted(values))).encode())
    for file in sorted(files, key=lambda file: file.name):
        digest.update(file.read_bytes())
    return f"perfkit functions {digest.hexdigest()}"


def is_fresh(path: Path, expected: str) -> bool:
    """Return whether a library has the stamp."""
    match = _STAMP.search(path.read_bytes()) if path.exists() else None
    return match is not None and match[0] == expected.encode()


def ensure_fresh(module: str, path: Path) -> None:
    """Build the library of a module if it is missing or out of date. Raises UsageError if it cannot be built."""
    expected = stamp(sys.modules[module])
    if is_fresh(path, expected):
        return
    try:
        path.parent.mkdir(exist_ok=True)
        with _locked(path.parent / ".lock"):
            if is_fresh(path, expected):  # another process has built it
                return
            print(f"perfkit: compiling {module}", file=sys.stderr, flush=True)
            root = os.pathsep.join(filter(None, (str(path.parents[2]), os.environ.get("PYTHONPATH"))))
            command = [sys.executable, "-P", "-m", "perfkit_core.base.runtime.build", module]
            code = subprocess.run(command, env={**os.environ, "PYTHONPATH": root}).returncode
    except OSError as error:
        raise UsageError(f"the compiled code of {module} cannot be built ({error})", "reinstall perfkit") from None
    if code or not is_fresh(path, expected):
        hint = 'the reason is above; a build needs a C compiler, and: pip install -e ".[dev]"'
        raise UsageError(f"the compiled code of {module} cannot be built", hint)


def _collect(function: Marked, files: set[Path], values: set[str], done: set[int]) -> None:
    """Add the file of a function, and its constants, and those of the functions that it calls."""
    if id(function) in done:
        return
    done.add(id(function))
    code, names = function.python.__code__, function.python.__globals__
    files.add(Path(code.co_filename))
    used = {name: names[name] for name in code.co_names if name in names}
    for module in [vars(value) for value in used.values() if isinstance(value, ModuleType)]:
        if module["__name__"].startswith(_PACKAGES):
            used |= {f"{module['__name__']}.{name}": module[name] for name in code.co_names if name in module}
    for name, value in used.items():
        if isinstance(value, Marked):
            _collect(value, files, values, done)
        elif isinstance(value, np.generic):
            values.add(f"{name} = {value.item()!r}")
        elif isinstance(value, int | float | bytes | str | tuple):
            values.add(f"{name} = {value!r}")
    for annotation in function.python.__annotations__.values():  # a record type may be defined elsewhere
        for name in re.findall(r"[A-Za-z_]\w*", annotation):
            for dtype in getattr(names.get(name), "__metadata__", ()):
                values.add(f"{name} = {getattr(dtype, 'descr', dtype)!r}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for other processes that build in the same folder."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
