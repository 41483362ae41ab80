"""The recordings for a GPU can be tried on a CPU. A part that fails or hangs does not end the others."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.gpu.record import Part, Results, run_part
from benchmarks.rounds import ROOT


def test_a_part_leaves_its_files_and_its_line(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "benchmarks.gpu.record", str(tmp_path), "--device", "cpu", "--quick")
    done = subprocess.run((*command, "--only", "programs/mlp"), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 parts in" in done.stdout
    assert "0 failed" in done.stdout
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    result = json.loads(line)
    assert (result["part"], result["steps"]) == ("programs/mlp", 4)
    with tarfile.open(tmp_path / "parts-1.tar") as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"native.json.gz", "averages.json", "output.txt"} <= names
    assert any(name.endswith(".perfkit.parquet") for name in names)


def fail(*_: Any) -> dict[str, Any]:
    raise ValueError("no such device")


def hang(*_: Any) -> dict[str, Any]:
    time.sleep(600)
    return {}


def test_failed_and_late_parts_are_results(tmp_path: Path) -> None:
    results = Results(tmp_path / "out")
    for run, seconds in ((fail, 60.0), (hang, 1.0)):
        folder = tmp_path / run.__name__
        folder.mkdir()
        part = Part(f"programs/{run.__name__}", run)
        results.add(run_part(multiprocessing.get_context("spawn"), part, "cpu", True, folder, seconds), folder)
    assert [row["error"] for row in results.rows] == ["ValueError: no such device", "ended after 1 s"]
    assert "Traceback" in (tmp_path / "fail" / "output.txt").read_text()
