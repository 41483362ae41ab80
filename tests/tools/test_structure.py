"""The structure script counts as its docstring defines. The test uses a small tree with one fault of each kind."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", ROOT / "tools" / "structure.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look up their module in sys.modules
    spec.loader.exec_module(module)
    return module


def rows(structure: ModuleType, root: Path, files: dict[str, str]) -> dict[str, tuple[int, int, list[str]]]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    measures = structure.measure(structure.read_modules(root))
    return {row.name: (row.value, row.of, list(row.examples)) for row in measures}


def test_private_functions_used_once(structure: ModuleType, tmp_path: Path) -> None:
    text = """
def _once(): ...
def _twice(): ...
def _never(): ...
def _imported(): ...
def public(): return _once(), _twice(), _twice()
class C:
    def _method(self): ...
    def __repr__(self): return self._method()
"""
    other = "from perfkit_core.a.m import _imported\n"
    counts = rows(structure, tmp_path, {"perfkit_core/a/m.py": text, "perfkit_core/a/n.py": other})
    assert counts["private functions used once"][:2] == (3, 7)  # _once, _method, _imported


def test_lines_of_imports_and_comments(structure: ModuleType, tmp_path: Path) -> None:
    text = (
        'import os\nfrom sys import (\n    path,\n)\n# why\nx = "# text"  # beside\ndef f():\n    import re\n    # in\n'
    )
    counts = rows(structure, tmp_path, {"perfkit_core/m.py": text + "    return re\n"})
    assert counts["import lines"][:2] == (5, 11)
    assert counts["own-line comments"][0] == 2


def test_circles_of_packages_and_files(structure: ModuleType, tmp_path: Path) -> None:
    counts = rows(
        structure,
        tmp_path,
        {
            "perfkit_core/a/one.py": "from perfkit_core.b import two\n",
            "perfkit_core/b/two.py": "def f():\n    from perfkit_core.a import one\n",
            "perfkit_core/b/three.py": "import perfkit_core.a.one\n",
            "perfkit_core/c/four.py": "from . import five\n",
            "perfkit_core/c/five.py": "from .four import x\n",
        },
    )
    assert counts["package circles"][2] == ["a b"]
    assert counts["file circles"][2] == ["perfkit_core.c.five perfkit_core.c.four"]
    assert counts["file circles, all imports"][0] == 2


def test_basenames_and_root_files(structure: ModuleType, tmp_path: Path) -> None:
    names = ["perfkit_core/a/m.py", "perfkit_core/b/m.py", "perfkit_core/c/m.py", "perfkit_core/api.py"]
    names += ["perfkit_core/a/n.py", "perfkit_torch/n.py", "perfkit_paddle/n.py", "perfkit_core/stray.py"]
    counts = rows(structure, tmp_path, dict.fromkeys(names, ""))
    assert counts["basenames in more than two packages"][2] == ["m (3)"]
    assert counts["root files"][2] == ["perfkit_core/stray.py"]


def test_vague_names(structure: ModuleType, tmp_path: Path) -> None:
    text = """
def found(row, *, given=None):
    self.kept = known_rows = [one for one in row]
class _Whole: ...
"""
    counts = rows(structure, tmp_path, {"perfkit_core/a/m.py": text})["vague identifiers"]
    assert counts[:2] == (5, 7)
    assert sorted(example.split()[1] for example in counts[2]) == ["_Whole", "found", "given", "kept", "one"]


def test_long_private_functions_and_many_parameters(structure: ModuleType, tmp_path: Path) -> None:
    names, body = ", ".join("abcdefgh"), "    x = 1\n" * 59
    text = f"def _long(): \n{body}    return x\ndef _short(): \n{body}def public({names}, i): \n{body}    x = 2\n"
    text += f"@compiled\ndef _loop({names}, i): ...\n@inlined\ndef _part({names}, *, i): ...\n"
    text += f"class C:\n    def _eight(self, {names}): ...\n    def _nine(self, {names}, *i): ...\n"
    counts = rows(structure, tmp_path, {"perfkit_core/a/m.py": text})
    assert [example.split()[1] for example in counts["long private functions"][2]] == ["_long"]
    assert [example.split()[1] for example in counts["private functions with many parameters"][2]] == ["_nine"]


@pytest.fixture
def tree(structure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small tree with limits, which the script measures instead of the product."""
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    monkeypatch.setattr(structure, "LIMITS", tmp_path / "limits.toml")
    (tmp_path / "limits.toml").write_text(LIMITS)
    (tmp_path / "perfkit_core" / "a" / "inner").mkdir(parents=True)
    (tmp_path / "perfkit_core" / "api.py").write_text("x = 1\n" * 10)
    (tmp_path / "perfkit_core" / "a" / "inner" / "m.py").write_text("x = 1\n" * 199)
    (tmp_path / "perfkit_core" / "a" / "page.js").write_text("//\n" * 4)
    return tmp_path


LIMITS = """# first
[python]
"perfkit_core" = 20
"perfkit_core/a + perfkit_core/b" = 300
"perfkit_core/c" = 7  # planned

[other]
"perfkit_core/a" = 300

[structure]
"root files" = 0
"""


@pytest.mark.parametrize(
    ("file", "lines", "row"),
    [
        ("perfkit_core/b/m.py", 99, "perfkit_core/a + perfkit_core/b 300 300 2"),
        ("perfkit_core/b/m.py", 100, "perfkit_core/a + perfkit_core/b 301 300 2 exceeded"),
        ("perfkit_core/a/style.css", 295, "perfkit_core/a 301 300 2 exceeded"),
        ("perfkit_core/unknown/m.py", 0, "perfkit_core/unknown 1 0 1 exceeded"),
        ("perfkit_core/stray.py", 0, "root files 1 0 exceeded"),
    ],
)
def test_check_fails_where_a_limit_is_exceeded(
    structure: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str], file: str, lines: int, row: str
) -> None:
    assert structure.main(["--check"]) == 0
    assert "product lines 216 627 3" in table_rows(capsys.readouterr().out)
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text("\n" * lines)
    assert structure.main([]) == 0
    assert structure.main(["--check"]) == row.endswith("exceeded")
    assert row in table_rows(capsys.readouterr().out)


def table_rows(output: str) -> list[str]:
    return [" ".join(line.split()) for line in output.splitlines()]


def test_write_lowers_limits_without_comments(structure: ModuleType, tree: Path) -> None:
    (tree / "perfkit_core" / "api.py").write_text("x = 1\n" * 99)
    structure.main(["--write"])
    lower = LIMITS.replace('b" = 300', 'b" = 202').replace('a" = 300', 'a" = 6')
    assert (tree / "limits.toml").read_text() == lower
