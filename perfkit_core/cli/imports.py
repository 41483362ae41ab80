"""Which of some modules does a script import? Told by its text, or noticed while it runs."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterator
from pathlib import Path

from perfkit_core.first_import import FirstImport

__all__ = ["FirstImport", "imported_by", "installed", "profiles_itself"]


def imported_by(script: Path, wanted: Collection[str]) -> list[str]:
    """Those of ``wanted`` that the script's own text imports anywhere, in its order. None for a script with errors."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):  # running it tells the user better
        return []
    nodes = sorted((node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))), key=_line)
    found = dict.fromkeys(name for node in nodes for name in _top_level(node))
    return [name for name in found if name in wanted]


def profiles_itself(script: Path, frameworks: Collection[str]) -> bool:
    """Whether the script surely makes a profiler of one of the frameworks (``torch.profiler.profile()``, …): in a line
    that runs whatever comes, neither in a function nor in a branch."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return False
    modules: set[str] = set()
    classes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.asname and "profiler" in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in frameworks:
            inside = "profiler" in (node.module or "").split(".")
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "profiler"}
            classes |= {alias.asname or alias.name for alias in node.names if inside and alias.name in _PROFILERS}
    return any(_is_profiler(node.func, modules, classes) for node in _certain(tree) if isinstance(node, ast.Call))


_PROFILERS = ("profile", "Profiler")
_UNCERTAIN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.For,
    ast.While, ast.comprehension,
)  # fmt: skip
"""What is in them may run or not."""


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node and runs with it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _UNCERTAIN):
            yield child
            yield from _certain(child)


def _is_profiler(node: ast.expr, modules: Collection[str], classes: Collection[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in classes
    if not isinstance(node, ast.Attribute) or node.attr not in _PROFILERS:
        return False
    base = node.value
    return (isinstance(base, ast.Attribute) and base.attr == "profiler") or (
        isinstance(base, ast.Name) and base.id in modules
    )


def installed(name: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _top_level(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif node.module and not node.level:
        yield node.module.split(".")[0]
