"""Records the scripts of examples/compare, each framework in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from perfkit_core.model.trace import Trace
from perfkit_core.readers.load import load
from perfkit_core.views.steps.step_rows import step_rows
from tests.support.paths import EXAMPLES

FRAMEWORKS = ("torch", "paddle")
MODELS = ("mlp", "conv_net", "transformer")
PLANTS = ("copy", "activation", "layer", "loader")
BASE, PLAIN = "base", "plain"
_EXAMPLES = EXAMPLES / "compare"
_RECORDER = Path(__file__).with_name("record_example.py")
_NO_MAPPING = str(1 << 30)
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # freed memory stays with the process: what new pages cost differs most between machines, and from step to step
    "MALLOC_MMAP_THRESHOLD_": _NO_MAPPING,
    "MALLOC_TRIM_THRESHOLD_": _NO_MAPPING,
}
_ATTEMPTS = 6


@dataclass
class Example:
    """A script of a framework, and what was recorded of it: ``variants`` (PLANTS, BASE or PLAIN), in rounds.

    ``losses``: of the steps, a list a recording.
    """

    framework: str
    model: str
    folder: Path
    variants: tuple[str, ...]
    steps: int = 6
    rounds: int = 0
    losses: list[list[float]] = field(default_factory=list)

    def record(self) -> None:
        """Two more rounds."""
        if importlib.util.find_spec(self.framework) is None:
            pytest.skip(f"{self.framework} is not installed")
        script, folder = _EXAMPLES / self.framework / f"{self.model}.py", self.folder / str(self.rounds)
        command = [sys.executable, str(_RECORDER), str(script), str(folder), "2", str(self.steps), *self.variants]
        environment = {**os.environ, **_ENVIRONMENT}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        lines = re.findall(r"^loss: (.*)$", done.stdout, re.MULTILINE)
        self.losses += [[float(loss) for loss in line.split()] for line in lines]
        self.rounds += 2

    def fastest(self, variant: str) -> Trace:
        """The recording that other programs disturbed least."""
        return min(map(load, sorted(self.folder.glob(f"*/{variant}-*"))), key=_step_ns)


def _step_ns(trace: Trace) -> float:
    return float(np.median(trace.ints("dur_ns")[step_rows(trace)]))


def holds(check: Callable[[], None], *examples: Example) -> None:
    """``check`` passes, if need be once there are more rounds to take the fastest of."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return check()
        except AssertionError:
            for example in examples:
                example.record()
    return check()
