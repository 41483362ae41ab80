"""Tests that results are the same with and without numba, and when a process begins to use numba."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.algorithms import addresses, trees
from perfkit_core.cli.main import main
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.scanner import scanner
from perfkit_core.runtime import compile
from perfkit_core.runtime.compile import ENOUGH_CELLS, Interpreted, compiled
from perfkit_paddle import pb_source
from tests.support.paths import DATA

LOAD_NUMBA = (scanner, pb_source, addresses)
"""These modules load numba. Imported during a test, they would end the counting of cells."""
SMALL = ("torch/h100-vit.json.gz", "torch/cpu-only-rank34.json.gz", "torch/dlrm-8xv100", "paddle/cpu-3.3.1/cnn_small")
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("source", SMALL)
@pytest.mark.parametrize(
    "command", [["summary", "--view", ",".join(get_plugins().views())], ["advise"]], ids=["every view", "advise"]
)
def test_files_are_the_same_with_and_without_numba(
    source: str, command: list[str], traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for cells, enough in ((0, 2**62), (ENOUGH_CELLS, ENOUGH_CELLS)):
        monkeypatch.setattr(Interpreted, "cells", cells)
        monkeypatch.setattr(compile, "ENOUGH_CELLS", enough)
        out = tmp_path / f"{cells}.json"
        assert main([command[0], str(traces / source), *command[1:], "-o", str(out)]) == 0
        said.append(out.read_bytes())
        assert cells <= Interpreted.cells <= max(cells, 2**61)  # numba was not loaded in the meantime
    assert said[0] == said[1]
    assert len(said[0]) > 1000


@given(INT64, st.integers(-1, 2**40), st.integers(0, 60))
def test_integers_wrap_around_with_and_without_numba(key: int, above: int, bits: int) -> None:
    given_ = np.int64(above), np.int64(key), 1 << bits
    with np.errstate(over="ignore"):
        assert trees._slot._interpreted(*given_) == trees._slot._compiled(*given_)


def test_a_function_is_compiled_after_enough_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interpreted, "cells", 0)
    monkeypatch.setattr(compile, "ENOUGH_CELLS", 50)
    seen = []

    @compiled
    def total(values: np.ndarray) -> int:
        found = 0
        for value in values:
            found += value
        return found

    whole = total._interpreted
    total.__dict__["_interpreted"] = lambda values: seen.append(len(values)) or whole(values)
    assert [total(np.arange(20)), total(np.arange(20)), total(np.arange(20)), total(np.arange(2))] == [190, 190, 190, 1]
    assert seen == [20, 20]


def test_calls_from_an_interpreted_function_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interpreted, "cells", 0)
    parent, key = np.array([-1, 0, 0, 1]), np.array([5, 6, 6, 7])
    assert trees.merge(parent, key, np.ones(4, np.bool_)).parent.tolist() == [-1, 0, 1]
    assert Interpreted.cells < 200  # four look-ups in a hash table of 1,024 cells are not counted


def test_a_small_recording_needs_no_numba_unless_it_is_loaded() -> None:
    recording = str(DATA / "torch-mlp.json.gz")
    code = f"""
import sys
from perfkit_core.runtime import compile as compiling
from perfkit_core.cli.main import main
assert main(["summary", {recording!r}]) == 0
print("numba" in sys.modules, compiling.Interpreted.cells < compiling.ENOUGH_CELLS)
import perfkit_core.algorithms.addresses
print("numba" in sys.modules, compiling.Interpreted.cells < compiling.ENOUGH_CELLS)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-2:] == ["False True", "True False"]


def test_functions_are_handed_to_other_processes_by_name() -> None:
    assert pickle.loads(pickle.dumps(trees._slot)) is trees._slot


def test_loops_that_search_count_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    for steps in (1, 5):
        monkeypatch.setattr(Interpreted, "cells", 0)
        compiled(steps=steps)(_first)(np.zeros(7))
        counted.append(Interpreted.cells)
    assert counted == [7, 35]


def _first(values: np.ndarray) -> float:
    return float(values[0])


def test_a_cached_function_is_compiled_again_if_its_callee_changes(tmp_path: Path) -> None:
    """The called function and a constant are in another module, whose text numba does not check."""
    (tmp_path / "caller.py").write_text(
        "from perfkit_core.runtime.compile import compiled_at_once\nfrom called import NUMBER, called\n"
        "@compiled_at_once\ndef caller(x):\n    return called(x) + NUMBER\n"
    )
    said = []
    for number, factor in ((1, 10), (1, 20), (2, 20), (2, 20)):
        (tmp_path / "called.py").write_text(
            f"from perfkit_core.runtime.compile import compiled_at_once\nNUMBER = {number}\n"
            f"@compiled_at_once\ndef called(x):\n    return {factor} * x\n"
        )
        script = "from caller import caller; print(caller(1), sum(caller.stats.cache_hits.values()))"
        said.append(
            subprocess.run([sys.executable, "-B", "-c", script], cwd=tmp_path, capture_output=True, text=True).stdout
        )
    assert said == ["11 0\n", "21 0\n", "22 0\n", "22 1\n"]
