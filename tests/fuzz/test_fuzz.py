"""A short, seeded part of the attack, and tests of the attack itself."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.support.paths import ROOT

INPUTS = {
    "events-torch": 600, "events-paddle": 600, "chrome-torch": 25, "chrome-paddle": 25,
    "protobuf": 30, "nsight": 50, "gzip": 60, "stored-cells": 8, "recorded-cells": 10, "timeline-cells": 10,
    "gate": 3000,
}  # fmt: skip


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, targets.Target]:
    return targets.all_targets(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", targets.NAMES)
def test_generated_input_is_taken_or_refused(every: dict[str, targets.Target], name: str) -> None:
    target, chance = every[name], random.Random(f"tests of {name}")
    accepted = [target.run(target.make(chance)) for _ in range(INPUTS.get(name, 120))]
    target.end()
    assert not all(accepted)
    assert any(accepted) or name.startswith("stored-bits")


@pytest.mark.parametrize("name", targets.NAMES)
def test_seeds_are_accepted(every: dict[str, targets.Target], name: str) -> None:
    """Otherwise all inputs would be refused for the same reason."""
    assert any(every[name].run(seed) for seed in every[name].seeds[:5])


def test_the_guard_guards() -> None:
    code = "from tests.fuzz.guarded import Guarded; held = Guarded(); print(held.put(b'x').sum()); held.touch_guard()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode < 0
    assert done.stdout == "" or done.stdout == f"{ord('x')}\n"


@pytest.mark.parametrize("how", ["error", "crash"])
def test_findings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv(targets.PLANTED, how)
    attack = [sys.executable, "-m", "tests.fuzz", "--target", "planted", "--findings", str(tmp_path)]
    done = subprocess.run([*attack, "--inputs", "3"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stderr
    kept = sorted(tmp_path.iterdir())
    assert [file.read_bytes() for file in kept] == [b"2"]
    repeated = subprocess.run([*attack, "--repeat", str(kept[0])], capture_output=True, cwd=ROOT, check=False)
    assert repeated.returncode
