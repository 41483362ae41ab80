"""Measure the size and the structure of the product code: ``python tools/structure.py``.

``--check`` compares the results with the limits in ``tools/structure_limits.toml``. ``--write`` lowers the limits of
packages that have become smaller.

Product code is every file below ``perfkit``, ``perfkit_core``, ``perfkit_torch`` and ``perfkit_paddle`` that is Python
or has a suffix of OTHER. The second table measures Python only.

lines, files of a package
    All lines and all files, including blank lines, comments and ``__init__.py``. The empty line after the last line
    break of a file counts, as in an editor. Packages are the children of ``perfkit_core``; ``perfkit_core`` itself has
    the files at its root. The limit of all product lines is the sum of the limits.
median, longest file
    Numbers of lines.
private functions used once
    Functions at module level and methods whose name begins with one underscore, with exactly one reference.
    References are uses in the same file, including recursive calls, and imports in other files. The share is relative
    to all functions, including nested ones.
import lines
    Lines of ``import`` statements, also inside functions. The share is relative to all lines.
own-line comments
    Comments that have no code before them on their line.
basenames in more than two packages
    File names that occur in more than two folders, except ``__init__`` and ``__main__``. A folder that exists in both
    adapters counts once, because the adapters have the same file names on purpose.
package circles, file circles
    Packages or files that import each other, directly or indirectly. Imports inside functions and under
    ``if TYPE_CHECKING`` are ignored. Packages are the children of ``perfkit_core``, including the files at its root.
file circles, all imports
    File circles with imports inside functions and under ``if TYPE_CHECKING``, as in import-linter.
root files
    Files at the root of ``perfkit_core`` other than ``__init__.py``, ``api.py`` and ``errors.py``.
vague identifiers
    Names of variables, attributes, parameters, functions and classes that say nothing about their value (VAGUE). The
    share is relative to all names that the code binds.
private functions with many parameters, long private functions
    Functions and methods whose name begins with one underscore, with more than eight parameters (without ``self``) or
    more than 60 lines. Compiled loops are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import statistics
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_, CORE, *ADAPTERS = PACKAGES = ("perfkit", "perfkit_core", "perfkit_torch", "perfkit_paddle")
ROOT_FILES = {"__init__", "api", "errors"}
"""Files that belong at the root of the core."""

VAGUE = {
    "one", "known", "own", "made", "given", "wanted", "place", "told", "found", "some", "which", "each", "it", "said",
    "held", "kept", "taken", "seen", "others", "whole", "apart", "asked",
}  # fmt: skip
COMPILED = {"compiled", "inlined"}
"""Decorators of compiled loops."""
MANY_PARAMETERS, LONG_FUNCTION = 8, 60

LIMITS = Path(__file__).with_name("structure_limits.toml")
OTHER = {".css", ".j2", ".js", ".toml"}
"""Suffixes of product code that is not Python."""
ROOM = 0.01
"""Growth of a package that ``--write`` allows, as a share of its lines."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A product file. ``path`` is relative to the root, and ``name`` is the dotted name."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


@dataclass(frozen=True)
class Limits:
    """The maximum values that ``--check`` accepts: lines of Python and of other code by package, and values of
    measures by name. Shares are between 0 and 1. A key may name several packages, separated by `` + ``."""

    python: Mapping[str, int]
    other: Mapping[str, int]
    structure: Mapping[str, float]

    @property
    def lines(self) -> int:
        return sum(self.python.values()) + sum(self.other.values())


@dataclass(frozen=True)
class Size:
    """The lines and files of one limit: of the packages in ``name``, either of Python or of other code."""

    name: str
    lines: int
    files: int
    limit: int

    @property
    def exceeded(self) -> bool:
        return self.lines > self.limit


@dataclass(frozen=True)
class Measure:
    """A row of the second table. ``value`` is shown as a share of ``of``, or as a number if ``of`` is 0."""

    name: str
    value: int
    of: int = 0
    examples: Sequence[str] = ()

    @property
    def amount(self) -> float:
        return self.value / self.of if self.of else self.value

    def exceeds(self, limits: Mapping[str, float]) -> bool:
        return self.amount > limits.get(self.name, math.inf)


def read_limits(path: Path) -> Limits:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Limits(tables["python"], tables["other"], tables["structure"])


def measure_sizes(root: Path, limits: Limits) -> list[Size]:
    """Return the size of each package below ``root``, first of Python, then of other code. A package without a limit
    may have no lines."""
    sizes = []
    for suffixes, accepted in ({".py"}, limits.python), (OTHER, limits.other):
        key_of = {package: key for key in accepted for package in key.split(" + ")}
        lines, files = dict.fromkeys(accepted, 0), Counter[str]()
        for path in sorted(path for top in PACKAGES for path in (root / top).rglob("*") if path.suffix in suffixes):
            top, *folders = path.relative_to(root).parts[:-1]
            package = f"{top}/{folders[0]}" if top == CORE and folders else top
            key = key_of.get(package, package)
            lines[key] = lines.get(key, 0) + path.read_text(encoding="utf-8").count("\n") + 1
            files[key] += 1
        sizes += [Size(key, lines[key], files[key], accepted.get(key, 0)) for key in lines]
    return sizes


def read_modules(root: Path) -> list[Module]:
    """Return the product modules below ``root``, in the order of their paths."""
    modules = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            modules.append(Module(path.relative_to(root), ".".join(parts), text, ast.parse(text)))
    return modules


def measure(modules: Sequence[Module]) -> list[Measure]:
    """Return the rows of the table."""
    sizes = [module.lines for module in modules]
    lines = sum(sizes)
    longest = max(modules, key=lambda module: module.lines)
    functions = sum(isinstance(node, Function) for module in modules for node in ast.walk(module.tree))
    used_once = private_functions_used_once(modules)
    repeated = repeated_basenames(module.path for module in modules)
    imports = import_graph(modules)
    packages = circles(package_graph(imports))
    files = circles(imports)
    all_files = circles(import_graph(modules, top_level=False))
    root_files = [
        str(module.path)
        for module in modules
        if module.path.parts[:-1] == (CORE,) and module.path.stem not in ROOT_FILES
    ]
    names = [f"{module.path}:{line} {name}" for module in modules for line, name in bound_names(module.tree)]
    vague = [name for name in names if name.split()[-1].strip("_").lower() in VAGUE]
    private = [
        (f"{module.path}:{node.lineno} {node.name}", node) for module in modules for node in private_functions(module)
    ]
    many_parameters = [name for name, node in private if number_of_parameters(node) > MANY_PARAMETERS]
    long_functions = [name for name, node in private if (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION]
    return [
        Measure("files", len(modules)),
        Measure("median file", round(statistics.median(sizes))),
        Measure("longest file", longest.lines, examples=[str(longest.path)]),
        Measure("functions", functions),
        Measure("private functions used once", len(used_once), functions),
        Measure("import lines", sum(import_lines(module.tree) for module in modules), lines),
        Measure("own-line comments", sum(own_line_comments(module.text) for module in modules)),
        Measure("basenames in more than two packages", len(repeated), examples=repeated),
        Measure("package circles", len(packages), examples=[" ".join(circle) for circle in packages]),
        Measure("file circles", len(files), examples=[" ".join(circle) for circle in files]),
        Measure("file circles, all imports", len(all_files), examples=[" ".join(circle) for circle in all_files]),
        Measure("root files", len(root_files), examples=root_files),
        Measure("vague identifiers", len(vague), len(names), vague),
        Measure("private functions with many parameters", len(many_parameters), examples=many_parameters),
        Measure("long private functions", len(long_functions), examples=long_functions),
    ]


def private_functions_used_once(modules: Sequence[Module]) -> list[str]:
    """Return the private functions and methods that are referenced exactly once, as ``module:name``."""
    imported = Counter(
        (node.module, alias.name)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    used_once = []
    for module in modules:
        references = Counter(_referenced_names(module.tree))
        used_once += [
            f"{module.name}:{name}"
            for name in _function_names(module.tree.body)
            if name.startswith("_") and not name.startswith("__")
            if references[name] + imported[module.name, name] == 1
        ]
    return used_once


def _function_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, Function):
            yield node.name
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from _function_names(node.body)


def _referenced_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable, attribute, parameter, function and class that the code binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, Function | ast.ClassDef):
            yield node.lineno, node.name


def private_functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the private functions and methods that are no compiled loops."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and node.name.startswith("_") and not node.name.startswith("__"):
            decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
            if not decorators & COMPILED:
                yield node


def number_of_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    parameters = [argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
    return len(parameters) - (parameters[:1] in (["self"], ["cls"]))


def import_lines(tree: ast.Module) -> int:
    """Return the number of lines of all import statements."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def own_line_comments(text: str) -> int:
    """Return the number of comments on lines without code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip() for token in tokens)


def repeated_basenames(paths: Iterable[Path]) -> list[str]:
    """Return the basenames that occur in more than two folders, each with the number of its folders."""
    folders: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for path in paths:
        if path.stem not in {"__init__", "__main__"}:
            first, *rest = path.parts[:-1]
            folders[path.stem].add(("adapter" if first in ADAPTERS else first, *rest))
    counts = {stem: len(places) for stem, places in folders.items() if len(places) > 2}
    return [f"{stem} ({counts[stem]})" for stem in sorted(counts, key=lambda stem: (-counts[stem], stem))]


def import_graph(modules: Sequence[Module], top_level: bool = True) -> dict[str, set[str]]:
    """Return the product modules that each module imports. If ``top_level`` is set, ignore imports inside functions."""
    known = {module.name for module in modules}
    graph = {}
    for module in modules:
        targets: set[str] = set()
        for node in _top_level_imports(module.tree.body) if top_level else ast.walk(module.tree):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = _absolute(node, module)
                members = {f"{source}.{alias.name}" for alias in node.names}
                targets |= members & known
                # not a module, so a name in the package's own file
                targets |= {source} if members - known else set()
        graph[module.name] = targets & known - {module.name}
    return graph


def _top_level_imports(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _top_level_imports(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from _top_level_imports(getattr(node, part, []))
        elif isinstance(node, ast.ExceptHandler):
            yield from _top_level_imports(node.body)


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    """Return the dotted name in a ``from`` import, with relative names resolved."""
    if not node.level:
        return node.module or ""
    package = module.path.parts[: len(module.path.parts) - node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def package_graph(imports: Graph) -> dict[str, set[str]]:
    """Return the packages of the core that each package of the core imports."""

    def child(name: str) -> str:
        return name.split(".")[1] if "." in name else "__init__"

    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports.items():
        if name.partition(".")[0] == CORE:
            graph[child(name)] |= {child(target) for target in targets if target.partition(".")[0] == CORE}
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components with more than one member, largest first."""
    reachable = {name: _reachable(graph, name) for name in graph}
    components = {
        tuple(sorted(other for other in reachable[name] if name in reachable.get(other, ()))) for name in graph
    }
    return sorted((list(names) for names in components if len(names) > 1), key=lambda names: (-len(names), names))


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen


def size_table(sizes: Sequence[Size], limits: Limits) -> str:
    """Return the lines of each package, with their limits, as text."""
    total = Size("product lines", sum(row.lines for row in sizes), sum(row.files for row in sizes), limits.lines)
    lines = [f"{'package':<41}{'lines':>8}{'limit':>8}{'files':>7}"]
    for number, row in enumerate([*sizes, total]):
        if number == len(limits.python):
            lines.append(f"{', '.join(sorted(OTHER))}:")
        text = f"{row.name:<41}{row.lines:>8,}{row.limit:>8,}{row.files:>7}"
        lines.append(text + "  exceeded" * row.exceeded)
    return "\n".join(lines)


def measure_table(measures: Sequence[Measure], limits: Mapping[str, float], details: bool) -> str:
    """Return the measures as text. With ``details``, the counted items follow each row."""
    lines = [f"{'structure of the Python code':<39}{'now':>14}{'limit':>8}"]
    for row in measures:
        now = f"{row.value:,} ({row.amount:.1%})" if row.of else f"{row.value:,}"
        limit = limits.get(row.name)
        allowed = "" if limit is None else f"{limit:.1%}" if row.of else f"{limit:,}"
        lines.append(f"{row.name:<39}{now:>14}{allowed:>8}" + "  exceeded" * row.exceeds(limits))
        if details or limit is None:
            lines += [f"    {example}" for example in row.examples]
    return "\n".join(lines)


def write_limits(path: Path, sizes: Sequence[Size], limits: Limits) -> None:
    """Lower the limits of packages in ``path`` to their size and ROOM, except on lines with a comment: these limits
    include planned growth, and are changed by hand."""
    head, *tables = re.split(r"^(?=\[)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, rows in enumerate((sizes[: len(limits.python)], sizes[len(limits.python) :])):
        for row in rows:
            limit = min(row.limit, math.ceil(row.lines * (1 + ROOM)))
            line = re.compile(rf'^("{re.escape(row.name)}" = )[\d_]+$', re.MULTILINE)
            tables[number] = line.sub(rf"\g<1>{limit:_}", tables[number])
    path.write_text(head + "".join(tables), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables. With ``--check``, return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description="Measure the size and the structure of the product code.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    parser.add_argument("--details", action="store_true", help="list the circles, basenames and root files")
    parser.add_argument("--write", action="store_true", help="lower the limits of packages that have become smaller")
    options = parser.parse_args(arguments)
    limits = read_limits(LIMITS)
    sizes = measure_sizes(ROOT, limits)
    if options.write:
        write_limits(LIMITS, sizes, limits)
        limits = read_limits(LIMITS)
        sizes = measure_sizes(ROOT, limits)
    measures = measure(read_modules(ROOT))
    print(size_table(sizes, limits), measure_table(measures, limits.structure, options.details), sep="\n\n")
    exceeded = any(row.exceeded for row in sizes) or any(row.exceeds(limits.structure) for row in measures)
    return int(options.check and exceeded)


if __name__ == "__main__":
    sys.exit(main())
