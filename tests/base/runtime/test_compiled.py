"""Compiled functions: their arguments, their build, and results that are the same in Python."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import groupby, nesting, trees
from perfkit_core.base.runtime import build, library
from perfkit_core.base.runtime.compiled import Mode, in_python
from perfkit_core.cli.main import main
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.scanner import state
from tests.support.paths import DATA, ROOT

SMALL = ("torch/h100-vit.json.gz", "torch/cpu-only-rank34.json.gz", "torch/dlrm-8xv100/rank[01].json",
         "paddle/cpu-3.3.1/cnn_small")  # fmt: skip
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("source", SMALL)
@pytest.mark.parametrize(
    "command", [["summary", "--view", ",".join(get_plugins().views())], ["advise"]], ids=["every view", "advise"]
)
def test_files_are_the_same_in_python(
    source: str, command: list[str], traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for name, instead in (("compiled", None), ("python", in_python)):
        monkeypatch.setattr(Mode, "instead", instead)
        out = tmp_path / f"{name}.json"
        paths = sorted(map(str, traces.glob(source)))
        assert main([command[0], *paths, *command[1:], "-o", str(out)]) == 0
        said.append(out.read_bytes())
    assert said[0] == said[1]
    assert len(said[0]) > 1000


def test_indices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mode, "instead", build.checked)
    assert nesting.sum_up(np.array([-1, 0]), np.array([1, 2])).tolist() == [3, 2]
    with pytest.raises(IndexError):
        nesting.sum_up(np.array([-1, 7]), np.array([1, 2]))


@given(INT64, st.integers(-1, 2**40), st.integers(0, 60))
def test_integers_wrap_around(key: int, above: int, bits: int) -> None:
    with np.errstate(over="ignore"):
        assert trees._slot.python(np.int64(above), np.int64(key), 1 << bits) == trees._slot(above, key, 1 << bits)


def test_arrays_are_passed_as_they_are_or_copied() -> None:
    """A column of a table and a repeated value are not adjacent in memory."""
    table = np.array([[0, 5], [1, 6], [0, 7]])
    assert groupby.sums(table[:, 0], 2, table[:, 1]).tolist() == [12, 6]
    start, end, repeated = np.array([0, 1]), np.array([9, 5]), np.broadcast_to(np.int64(3), 2)
    assert nesting.nest_in_order(np.ones(2, np.bool_), repeated, repeated, start, end).tolist() == [-1, 0]


def test_an_array_that_cannot_be_changed_is_refused() -> None:
    parent, total = np.array([-1, 0]), np.array([1, 2])
    total.flags.writeable = False
    for wrong in (total, np.zeros((2, 2), np.int64)[:, 0]):
        with pytest.raises(ValueError, match="_sum_up changes an array that is read only or not contiguous"):
            nesting._sum_up(parent, wrong)


def test_an_array_of_another_type_is_refused() -> None:
    total = np.array([1, 2])
    for wrong in (np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(2, np.uint32), 7):
        with pytest.raises(TypeError, match=r"nesting\._sum_up does not take"):
            nesting._sum_up(np.array([-1, 0]), wrong)  # type: ignore[arg-type]
    for arguments in ((total,), (total, total, total)):
        with pytest.raises(TypeError, match="positional arguments, as many as it has annotated parameters"):
            nesting._sum_up(*arguments)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="float"):
        trees._slot(1.5, 2, 8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="add_number takes a record of another type"):
        state.add_number(np.zeros(1, state.INTERNER)[0], 3)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.load.cache_clear()
    monkeypatch.setattr(library, "library_path", lambda module: tmp_path / "package" / "_compiled" / f"{module}.so")
    with pytest.raises(UsageError, match=r"missing or damaged .*nesting\.so.*reinstall perfkit"):
        library.load("perfkit_core.base.algorithms.nesting")
    library.load.cache_clear()


def test_a_summary_imports_no_numba() -> None:
    code = "import sys; from perfkit_core.cli.main import main; assert main(sys.argv[1:]) == 0; print(*sys.modules)"
    command = [sys.executable, "-c", code, "summary", str(DATA / "torch-mlp.json.gz"), "--view", "all"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "perfkit_core.base.runtime.compiled" in said.split()
    assert not {"numba", "llvmlite"} & set(said.split())


def test_functions_are_handed_to_other_processes_by_name() -> None:
    assert pickle.loads(pickle.dumps(trees._slot)) is trees._slot


HEAD = """
from __future__ import annotations
import numpy as np, numpy.typing as npt
from perfkit_core.base.runtime.compiled import Out, compiled
Ints = npt.NDArray[np.int64]
"""


def run(folder: Path, module: str, code: str) -> subprocess.CompletedProcess[str]:
    """Write a module into a package ``perfkit_made`` of a checkout, and run its function ``made`` with 5."""
    package = folder / "perfkit_made"
    package.mkdir(exist_ok=True)
    (folder / "hatch_build.py").touch()
    (package / "__init__.py").touch()
    (package / f"{module}.py").write_text(HEAD + dedent(code), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PERFKIT_COMPILED": ""}
    script = "import perfkit_made.caller as caller; print(caller.made(5))"
    return subprocess.run(
        [sys.executable, "-B", "-c", script], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_function_is_compiled_again_if_it_or_what_it_uses_has_changed(tmp_path: Path) -> None:
    caller = """
        from perfkit_made.called import NUMBER, called
        @compiled
        def made(x: int) -> int:
            return called(x) + NUMBER
    """
    (tmp_path / "perfkit_made").mkdir()
    (tmp_path / "perfkit_made" / "caller.py").write_text(HEAD + dedent(caller), encoding="utf-8")
    said = []
    for number, factor in ((1, 10), (1, 20), (2, 20), (2, 20)):
        done = run(tmp_path, "called", f"NUMBER = {number}\n@compiled\ndef called(x):\n    return {factor} * x\n")
        said.append((done.stdout, done.stderr))
    built = "perfkit: compiling perfkit_made.caller\n"
    assert said == [("51\n", built), ("101\n", built), ("102\n", built), ("102\n", "")]
    assert [path.name for path in (tmp_path / "perfkit_made" / "_compiled").glob("*.so")] == ["perfkit_made.caller.so"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return int(np.zeros(x).sum())", "Failed in nopython mode pipeline"),
        ("if x > 3:\n        raise ValueError('no')\n    return x", "may raise an error or allocate memory"),
        ("return x // (x - 5)", None),
    ],
)
def test_what_cannot_be_compiled_is_refused(tmp_path: Path, body: str, reason: str | None) -> None:
    done = run(tmp_path, "caller", f"@compiled\ndef made(x: int) -> int:\n    {body}\n")
    if reason is None:  # no check, and no error
        assert (done.returncode, done.stderr) == (0, "perfkit: compiling perfkit_made.caller\n")
    else:
        assert done.returncode == 1
        assert "the compiled code of perfkit_made.caller cannot be built" in done.stderr
        assert reason in done.stderr


def test_a_function_cannot_change_an_array_that_is_not_marked(tmp_path: Path) -> None:
    code = """
        @compiled
        def fill(values: {}) -> None:
            values[0] = 7
        def made(x):
            values = np.zeros(x, np.int64)
            fill(values)
            return values[0]
    """
    assert "cannot be built" in run(tmp_path, "caller", code.format("Ints")).stderr
    assert run(tmp_path, "caller", code.format("Out[Ints]")).stdout == "7\n"


def test_libraries_need_no_other_library() -> None:
    path = library.library_path("perfkit_core.readers.scanner.events")
    content = path.read_bytes()
    assert content[:4] == b"\x7fELF" or sys.platform != "linux"
    assert not [name for name in (b"libc.so", b"libm.so", b"libpython", b"Py_", b"NRT_") if name in content]
