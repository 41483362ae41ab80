"""Whose file is a recorded frame in: the user's, a library's, or that of the framework and Python itself?

Profilers write the files of installed packages in full, or without the folder of ``sys.path`` in which they lie. That
is the folder of all packages as well as that of the script, so that ``pack/file.py`` may be either: the name of the
package tells.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from enum import Enum
from typing import Final

from perfkit_core.advice.known_packages import KNOWN

Owner = Enum("Owner", ["USER", "LIBRARY", "RUNTIME"])
"""``RUNTIME``: the framework of the recording, code that its compiler made, Python, and perfkit."""
_PACKAGES: Final = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*[/\\]|^<", re.IGNORECASE)
_MADE: Final = re.compile(r"[/\\]\w*inductor\w*[/\\]|[/\\]\.triton[/\\]|_compile_debug[/\\]")
"""Folders in which compilers write the code that they make."""
_SEPARATOR: Final = re.compile(r"[/\\]")
_OWN: Final = "perfkit"
_ANYBODYS: Final = frozenset(
    {"benchmark", "benchmarks", "docs", "examples", "models", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Names that careless distributions install, too."""


def owner_of(file: str, framework: str | None) -> Owner:
    """``framework`` is the package of the framework that was recorded."""
    installed = list(_PACKAGES.finditer(file))
    if not installed and (_PYTHON.search(file) or _MADE.search(file)):
        return Owner.RUNTIME
    inside = file[installed[-1].end() :] if installed else file
    package = _SEPARATOR.split(inside)[0].removesuffix(".py")
    if package == framework or package.startswith(_OWN) or (not installed and package in sys.stdlib_module_names):
        return Owner.RUNTIME
    return Owner.LIBRARY if installed or package in KNOWN or _is_installed(package) else Owner.USER


@functools.cache
def _is_installed(package: str) -> bool:
    """Whether it is among the packages that are installed here; nothing is imported."""
    if not package.isidentifier() or package in _ANYBODYS:
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    return any(_PACKAGES.search(f"{place}/") for place in places)
