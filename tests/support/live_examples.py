"""Records the scripts of examples/compare, each framework in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.loading import load
from perfkit_core.trace import Trace

FRAMEWORKS = ("torch", "paddle")
MODELS = ("mlp", "conv_net", "transformer")
PLANTS = ("copy", "activation", "layer", "loader")
BASE = "base"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "compare"
RECORDER = Path(__file__).with_name("record_example.py")


def record(framework: str, model: str, folder: Path, plants: tuple[str, ...] = (BASE,)) -> list[list[float]]:
    """Run folders ``folder``/PLANT; returns the losses of the steps, a list for each."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    script = EXAMPLES / framework / f"{model}.py"
    command = [sys.executable, str(RECORDER), str(script), str(folder), *plants]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [[float(loss) for loss in line.split()] for line in re.findall(r"^loss: (.*)$", done.stdout, re.MULTILINE)]


def recorded(folder: Path, plant: str = BASE) -> Trace:
    """What :func:`record` left."""
    return load(folder / plant)
