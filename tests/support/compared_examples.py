"""Recordings of the scripts in examples/compare: stored recordings in tests/data/examples, and new recordings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA, EXAMPLES

FRAMEWORKS: Final = ("torch", "paddle")
MODELS: Final = ("mlp", "conv_net", "transformer")
PLANTS: Final = ("copy", "activation", "layer", "loader")
BASE, PLAIN = "base", "plain"
VARIANTS: Final = tuple(
    [(model, variant) for model in MODELS for variant in (PLAIN, BASE)] + [("mlp", plant) for plant in PLANTS]
)
"""The model and the variant of each recording. ``plain`` has no layer labels, and ``base`` has them. Any other variant
is the name of the planted regression."""

_STORED: Final = DATA / "examples"
_RECORDER: Final = Path(__file__).with_name("record_example.py")
_NO_MAPPING: Final = str(1 << 30)
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    # The allocator keeps freed memory, because the cost of new pages differs most between machines and between steps.
    "MALLOC_MMAP_THRESHOLD_": _NO_MAPPING,
    "MALLOC_TRIM_THRESHOLD_": _NO_MAPPING,
}


def stored_path(framework: str, model: str, variant: str) -> Path:
    return _STORED / f"{framework}-{model}-{variant}.perfkit.parquet"


def stored(framework: str, model: str, variant: str) -> Trace:
    """Load a recording from tests/data."""
    return load(stored_path(framework, model, variant))


def record(
    framework: str, folder: Path, variants: Sequence[tuple[str, str]] = VARIANTS, rounds: int = 1, steps: int = 6
) -> list[list[float]]:
    """Record the variants in one new process. Return the losses of the steps of each recording."""
    pairs = [f"{model}:{variant}" for model, variant in variants]
    scripts = EXAMPLES / "compare" / framework
    command = [sys.executable, str(_RECORDER), str(scripts), str(folder), str(rounds), str(steps), *pairs]
    done = subprocess.run(command, env={**os.environ, **_ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^loss: (.*)$", done.stdout, re.MULTILINE)
    return [[float(loss) for loss in line.split()] for line in lines]


def recorded(folder: Path, model: str, variant: str) -> list[Path]:
    """Return the run folders of a variant, one per round."""
    return sorted(folder.glob(f"{model}-{variant}-*"))
