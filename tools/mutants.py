"""Change one expression of the product code at a time, and run the tests that should notice.

``python tools/mutants.py draw STATE --commit COMMIT`` draws mutants of a commit and prints them as a table. STATE is a
JSON file outside of the repository. ``python tools/mutants.py run STATE`` applies each mutant that has no verdict to a
copy of this checkout, runs the tests, and stores the verdict. It can be stopped and started again.

A mutant is found again by the name of its function and the text of its statement, so that it survives moved files and
small edits.
Verdicts: ``killed`` (by a test that passes without the mutant), ``survived``, ``gone`` (there is no such statement any
more), and ``unclear`` (a test fails with and without the mutant).
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("perfkit_core", "perfkit_torch", "perfkit_paddle")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = tuple[ast.stmt | ast.expr, str]
"""A statement without a body, or an expression in the header of one with a body, and the text that replaces it."""

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
_PAIRS: Final = ("min max", "minimum maximum", "any all", "first last", "left right", "argmin argmax", "floor ceil")
OPPOSITES: Final = {a: b for pair in _PAIRS for a, b in (pair.split(), pair.split()[::-1])}
SIMILAR: Final = 0.8  # a share of equal characters: the statement may have been edited since the mutant was drawn
NO_TESTS: Final = 5  # exit code of pytest
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)  # a log line has several blanks
QUICK: Final = ("-m", "not slow and not live and not browser")


@dataclass
class Mutant:
    """A row of the table."""

    file: str
    line: int
    function: str
    operator: str
    original: str
    mutated: str
    verdict: str = ""
    test: str = ""


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods that are not inside another function, with their names."""
    for node in tree.body:
        for child in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(child, Function):
                yield child.name, child


def changes(function: Function) -> dict[str, list[Change]]:
    """Return what each operator can change in a function, by operator."""
    subscripts = [node.slice for node in ast.walk(function) if isinstance(node, ast.Subscript)]
    columns = sorted({str(node.value) for node in subscripts if isinstance(node, ast.Constant)})
    result = defaultdict[str, list[Change]](list)
    for statement in _statements(function):
        original = ast.unparse(statement)
        if isinstance(statement, ast.Expr | ast.AugAssign):
            result["dropped statement"].append((statement, "pass"))
        for node in ast.walk(statement):
            for operator, mutated in _mutations(node, columns):
                text = ast.unparse(copy.deepcopy(statement, {id(node): mutated}))
                if text != original and "\n" not in text:
                    result[operator].append((statement, text))
    return dict(result)


def _statements(function: Function) -> Iterator[ast.stmt | ast.expr]:
    for node in ast.walk(function):
        match node:
            case ast.If(test=header) | ast.While(test=header) | ast.For(iter=header):
                yield header
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case ast.Assign() | ast.AugAssign() | ast.Return() | ast.Expr():
                yield node


def _mutations(node: ast.AST, columns: Sequence[str]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the operators that apply to a node, each with the node that replaces it."""
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr()):
            yield "missing mask", left
        case ast.BoolOp(op=op, values=[*values, _]):
            yield "missing mask", ast.BoolOp(op, values) if len(values) > 1 else values[0]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield "wrong sign or factor", ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield "wrong sign or factor", operand
        case ast.Compare(left=left, ops=[op, *ops], comparators=comparators):
            yield "comparison", ast.Compare(left, [COMPARISONS[type(op)](), *ops], comparators)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name)), ctx=ast.Load() as context):
            other = columns[(columns.index(name) + 1) % len(columns)]
            yield "wrong column", ast.Subscript(value, ast.Constant(other), context)
        case ast.Constant(value=bool() | int() | float() as value):
            yield "constant", ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)) if name in OPPOSITES:
            mutated = copy.copy(node)
            setattr(mutated, {ast.Name: "id", ast.Attribute: "attr"}.get(type(node), "value"), OPPOSITES[name])
            yield "opposite", mutated
        case ast.Call(func=func, args=[first, second, *args], keywords=keywords):
            starred = any(isinstance(argument, ast.Starred | ast.GeneratorExp) for argument in (first, second))
            if not starred and ast.unparse(func).rpartition(".")[2] not in OPPOSITES:
                yield "swapped arguments", ast.Call(func, [second, first, *args], keywords)


def draw(commit: str, count: int, seed: int) -> list[Mutant]:
    """Return mutants of a commit, spread over packages and files by their lines, and over the operators evenly."""
    files = _git("ls-tree", "-r", "--name-only", commit, *PACKAGES).split()
    sources = {file: _git("show", f"{commit}:{file}") for file in files if file.endswith(".py")}
    generator, mutants = random.Random(seed), list[Mutant]()
    for package in PACKAGES:
        lines = {file: text.count("\n") for file, text in sources.items() if file.startswith(package)}
        share = round(count * sum(lines.values()) / sum(text.count("\n") for text in sources.values()))
        while sum(mutant.file.startswith(package) for mutant in mutants) < share:
            (file,) = generator.choices(list(lines), list(lines.values()))
            candidates = [(name, changes(function)) for name, function in functions(ast.parse(sources[file]))]
            if operators := sorted({operator for _, options in candidates for operator in options}):
                operator = generator.choice(operators)
                name, options = generator.choice([(name, by[operator]) for name, by in candidates if operator in by])
                change = generator.choice(options)
                mutants.append(Mutant(file, change[0].lineno, name, operator, ast.unparse(change[0]), change[1]))
    return mutants


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def apply(mutant: Mutant, root: Path) -> Path | None:
    """Change the function in the checkout at ``root``, and return the file. Return None if no function of this name has
    a statement that is similar enough. Of equal statements, the one that is nearest to where it was drawn is chosen."""
    best: tuple[tuple[float, bool, int], Path, Change] = ((0.0, False, 0), Path(), (ast.Pass(), ""))
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    for path in [path for path in paths if f"def {mutant.function}(" in path.read_text()]:
        for name, function in functions(ast.parse(path.read_text())):
            for change in changes(function).get(mutant.operator, []) if name == mutant.function else ():
                texts = f"{ast.unparse(change[0])} {change[1]}"
                ratio = difflib.SequenceMatcher(None, f"{mutant.original} {mutant.mutated}", texts, False).ratio()
                rank = (ratio, path == root / mutant.file, -abs(change[0].lineno - mutant.line))
                best = max(best, (rank, path, change), key=lambda row: row[0])
    (ratio, *_), path, change = best
    if ratio < SIMILAR:
        return None
    path.write_text(_replaced(path.read_text("utf-8"), change), "utf-8")
    return path


def _replaced(text: str, change: Change) -> str:
    (node, mutated), lines = change, text.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    inserted = mutated if isinstance(node, ast.stmt) else f"({mutated})"
    return (before + inserted.encode() + after).decode()


def stages(changed: Path) -> Iterator[list[str]]:
    """Yield the tests to run for a changed file (relative): the quick tests of the files that name the module, its own
    file first, and of its mirrored folders, then the other tests of these files, and at last all quick tests."""
    package, stem = ".".join(changed.parts[:-1]), re.escape(changed.stem)
    naming = re.compile(rf"from {re.escape(package)} import .*\b{stem}\b|{re.escape(package)}\.{stem}\b")
    tests = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: (path.stem != f"test_{stem}", path))
    named = [path for path in tests if path.stem == f"test_{stem}" or naming.search(path.read_text())]
    files = [str(path.relative_to(ROOT)) for path in named]
    if files:
        yield [*files, *QUICK]
    framework = changed.parts[0].removeprefix("perfkit_")
    parts = changed.parts[1:-1] if framework == "core" else (framework,)
    for depth in range(len(parts), 0, -1):
        if (ROOT / "tests" / Path(*parts[:depth])).is_dir():
            yield [str(Path("tests", *parts[:depth])), *QUICK]
    if files:
        yield [*files, "-m", "slow or live or browser"]
    yield ["tests", *QUICK]


def verdict(mutant: Mutant, chosen: slice) -> tuple[str, str]:
    """Return the verdict and the test that failed, in the ``chosen`` stages."""
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        root = Path(folder, "copy")
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"), symlinks=True)
        changed = apply(mutant, root)
        if changed is None:
            return "gone", ""
        for tests in list(stages(changed.relative_to(root)))[chosen]:
            if failures := _pytest(root, tests):
                shutil.copy(ROOT / changed.relative_to(root), changed)
                again = _pytest(root, failures[:1] if "::" in failures[0] else tests)
                return "unclear" if again else "killed", failures[0]
        return "survived", ""


def _pytest(root: Path, tests: Sequence[str]) -> list[str]:
    """Return the tests that failed, or a message if pytest could not run them."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n0", *tests]
    traces = os.environ.get("PERFKIT_TRACES", str(ROOT.parent / "shared" / "traces"))
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PERFKIT_TRACES": traces}
    options: dict[str, Any] = {"cwd": root, "env": environment, "timeout": 1800, "check": False}
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    except subprocess.TimeoutExpired as error:
        return [str(error)]
    return [] if run.returncode in (0, NO_TESTS) else FAILED.findall(run.stdout) or ["pytest does not start"]


def main() -> None:
    """Draw mutants, or run the tests on those without a verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["draw", "run"])
    parser.add_argument("state", type=Path, help="JSON file with mutants and verdicts, outside of the repository")
    parser.add_argument("--commit", default="HEAD", help="the commit whose code is changed (draw)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="the most mutants to run now")
    parser.add_argument("--stages", type=int, default=2, help="the most runs of pytest for a mutant")
    parser.add_argument("--skip", type=int, default=0, help="run those that survived so many runs, from the next one")
    options = parser.parse_args()
    if options.action == "draw":
        mutants = draw(options.commit, 60, options.seed)
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line} {mutant.function}: {mutant.operator}")
            print(f"    - {mutant.original}\n    + {mutant.mutated}")
        options.state.write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=1), "utf-8")
    else:
        mutants = [Mutant(**row) for row in json.loads(options.state.read_text())]
        chosen, wanted = slice(options.skip, options.stages), "survived" if options.skip else ""
        for mutant in [mutant for mutant in mutants if mutant.verdict == wanted][: options.limit]:
            mutant.verdict, mutant.test = verdict(mutant, chosen)
            options.state.write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=1), "utf-8")
            print(f"{mutant.verdict:9}{mutant.file}:{mutant.line} {mutant.function} {mutant.test}", flush=True)


if __name__ == "__main__":
    main()
