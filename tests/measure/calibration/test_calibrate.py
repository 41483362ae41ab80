"""Tests of the calibration: exact numbers on a simulated machine, the stored file, and the real frameworks."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.base.operators.names import is_canonical
from perfkit_core.base.system.machine import cpu_model
from perfkit_core.errors import CaptureError
from perfkit_core.measure.calibration import calibrate
from perfkit_core.measure.calibration import calibrate as cache
from perfkit_core.measure.calibration.bench import (
    KERNEL,
    LARGE,
    LAUNCH,
    SMALL,
    SYNCHRONIZE,
    Calibration,
    Direction,
    Measurement,
    copy_name,
)
from perfkit_core.measure.calibration.calibrate import measured, newest
from perfkit_core.plugins.frameworks import Bench, Calibrator, Framework


class Machine:
    """A simulated host and device. A launch takes the host 3 µs, a kernel takes 2 µs, and a copy takes 10 µs plus 1 µs
    for each 64 KiB."""

    name = "stand-in"

    def __init__(self) -> None:
        self.now = 0
        self.device_free = 0
        self.clock = self
        self.occupied = 0

    def __call__(self) -> int:
        return self.now

    def takes(self, dur_ns: int) -> Callable[[], None]:
        def call() -> None:
            self.now += dur_ns

        return call

    def launch(self) -> None:
        self.now += 3_000
        self.device_free = max(self.device_free, self.now) + 2_000

    def occupy(self) -> None:
        self.occupied += 1
        self.device_free = max(self.device_free, self.now) + 10_000_000

    def synchronize(self) -> None:
        self.now = max(self.now, self.device_free) + 5_000

    def copy(self, direction: Direction, size: int, pinned: bool) -> Callable[[], None] | None:
        if pinned and direction == "dtoh":
            return None
        return self.takes(10_000 + size // 65_536 * 1_000)

    def mark(self) -> int:
        return max(self.device_free, self.now)

    def passed(self, mark: int) -> bool:
        return mark <= self.now

    def elapsed_ns(self, start: int, end: int) -> int:
        return end - start

    def wait(self, mark: int) -> None:
        self.now = max(self.now, mark)


def on(machine: Machine) -> dict[str, Measurement]:
    operators = {("add", 1): machine.takes(1_500), ("add", 64): machine.takes(2_500), ("sum", 1): machine.takes(4_000)}
    return {one.name: one for one in measured(Bench(operators, machine), clock=machine)}


def test_every_number_worked_out_by_hand() -> None:
    """Queued kernels start every 2 µs, although a launch takes 3 µs. A copy of 64 MiB takes 10 + 1024 µs."""
    found = on(Machine())
    medians = {name: one.p50_ns for name, one in found.items()}
    assert medians == {
        "host_add_1": 1_500, "host_add_64": 2_500, "host_sum_1": 4_000,
        LAUNCH: 3_000, KERNEL: 2_000, SYNCHRONIZE: 5_000,
        "htod_pageable_4_bytes": 10_000, "htod_pageable_67108864_bytes": 1_034_000,
        "htod_pinned_4_bytes": 10_000, "htod_pinned_67108864_bytes": 1_034_000,
        "dtoh_pageable_4_bytes": 10_000, "dtoh_pageable_67108864_bytes": 1_034_000,
    }  # fmt: skip
    assert all(one.p10_ns == one.p50_ns == one.p90_ns and one.samples >= 20 for one in found.values())


def test_percentiles_by_hand() -> None:
    """Every tenth call of an operator takes 11 µs, and all others take 1 µs, so the 90th percentile is 1 µs."""
    machine = Machine()
    turns = iter(range(10_000))

    def call() -> None:
        machine.now += 11_000 if next(turns) % 10 == 9 else 1_000

    (found,) = measured(Bench({("add", 1): call}), clock=machine)
    assert (found.p10_ns, found.p50_ns) == (1_000, 1_000)
    assert 1_000 <= found.p90_ns <= 11_000
    assert found.samples == 1000


def calibration(**changed: Any) -> Calibration:
    parts = {"framework": "one", "version": "1.0", "cpu": cpu_model(), "cpus": 2, "device": "stand-in", "threads": 2,
             "date": "2024-01-01", "measurements": tuple(on(Machine()).values())}  # fmt: skip
    return Calibration(**(parts | changed))


def test_numbers_for_rules() -> None:
    """The cost of an operator lies between the cheapest and the most expensive one, with a median of 1.5, 2.5 and 4 µs.
    A copy of half the size takes half the time, apart from the latency."""
    found = calibration()
    add, anything = found.host_ns("add"), found.host_ns("unknown")
    assert add is not None
    assert anything is not None
    assert (add.low, add.mid, add.high) == (1_500, 2_000, 2_500)
    assert (anything.low, anything.mid, anything.high, anything.source) == (
        1_500, 2_500, 4_000, "calibrated on this machine"
    )  # fmt: skip
    half = found.copy_ns("htod", SMALL + (LARGE - SMALL) // 2)
    assert half is not None
    assert half.mid == pytest.approx(10_000 + 512_000)
    assert found.copy_ns("dtoh", 4, pinned=True) is None
    launch = found.quantity(LAUNCH)
    assert launch is not None
    assert launch.mid == 3_000
    assert calibration(measurements=()).host_ns() is None
    assert copy_name("htod", 4, True) in {one.name for one in found.measurements}


class Plugins:
    """One framework of version 1.0, whose measurements take no time."""

    version: str | None = "1.0"

    def framework(self, name: str) -> Framework:
        return self.frameworks().get(name, Framework(name))

    def frameworks(self) -> dict[str, Framework]:
        machine = Machine()
        bench = Bench({("add", 1): machine.takes(0)}, machine)
        return {"one": Framework("one", calibrator=lambda: Calibrator(lambda: self.version, lambda: bench))}


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plugins:
    made = Plugins()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "get_plugins", lambda: made)
    return made


def test_measurements_are_stored_and_found(plugins: Plugins, tmp_path: Path) -> None:
    assert newest("one") is None
    assert newest("no framework") is None
    made = calibrate.calibrate("one", plugins.framework("one").calibrator())
    assert newest("one") == made
    assert newest("one", "stand-in") == made
    assert newest("one", "another device") is None
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "perfkit" / "calibrations"]


def test_another_version_or_processor_is_not_this_one(plugins: Plugins) -> None:
    cache.save(calibration(version="0.9"))
    cache.save(calibration(cpu="another processor"))
    assert newest("one") is None
    plugins.version = "0.9"
    assert newest("one") == calibration(version="0.9")
    plugins.version = None
    assert newest("one") is None


def test_the_newest_is_taken_and_broken_files_are_passed_over(plugins: Plugins) -> None:
    cache.save(calibration(date="2024-01-02", device=None))
    cache.save(calibration(date="2024-01-01"))
    (cache.folder() / "one-broken.json").write_text("{", encoding="utf-8")
    found = newest("one")
    assert found is not None
    assert found.date == "2024-01-02"


def test_a_framework_that_is_not_installed(plugins: Plugins) -> None:
    plugins.version = None
    with pytest.raises(CaptureError, match="one is not installed"):
        calibrate.calibrate("one", plugins.framework("one").calibrator())


def machine_bench(name: str) -> Bench:
    pytest.importorskip(name, reason=f"needs {name}: pip install 'perfkit[{name}]'")
    return importlib.import_module(f"perfkit_{name}.calibration").machine_bench()


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_real_frameworks(name: str) -> None:
    """Both frameworks measure the same canonical operators, and each takes some host time."""
    bench = machine_bench(name)
    assert {operator for operator, _ in bench.operators} == {
        "add", "multiply", "compare", "logical", "where", "gather", "slice", "sum", "cast", "fill"
    }  # fmt: skip
    assert all(is_canonical(operator) for operator, _ in bench.operators)
    assert {count for _, count in bench.operators} == {1, 64}
    found = {one.name: one for one in measured(Bench(bench.operators))}
    assert len(found) == len(bench.operators)
    assert all(0 < one.p10_ns <= one.p50_ns <= one.p90_ns for one in found.values())


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_recording_for_the_calibration_leaves_no_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording = machine_bench(name).recording
    assert recording is not None
    for option in recording.options:
        assert recording.profiled(option, recording.work) > 3
    assert list(tmp_path.iterdir()) == []


VERSION = """
import sys
from perfkit_core.plugins.manager import get_plugins
print({name: one.calibrator().version() for name, one in get_plugins().frameworks().items()})
print(sorted(set(sys.modules) & {"torch", "paddle"}))
"""


def test_versions_are_told_without_importing_anything() -> None:
    done = subprocess.run([sys.executable, "-c", VERSION], capture_output=True, encoding="utf-8", check=True)
    versions, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert "'torch'" in versions
    assert "'paddle'" in versions


def test_the_command_shows_what_is_known(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from perfkit_core.cli import calibrate as command
    from perfkit_core.cli.main import main

    monkeypatch.setattr(command, "get_plugins", lambda: plugins)
    assert main(["calibrate", "--show"]) == 0
    assert "Not measured yet; run perfkit calibrate --framework one" in capsys.readouterr().out
    assert main(["calibrate"]) == 0
    first = capsys.readouterr().out
    assert "stand-in" in first
    assert main(["calibrate", "--show", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["calibrations"][0]["device"] == "stand-in"
    assert {row["name"]: row["p50_ns"] for row in shown["views"]["one"]}[KERNEL] == 2_000
    assert main(["calibrate", "--framework", "two"]) == 2
    assert main(["calibrate", "--show", "--refresh"]) == 2
    assert "no plugin calibrates 'two'; known: one" in capsys.readouterr().err


def test_refresh_measures_again(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfkit_core.cli import calibrate as command
    from perfkit_core.cli.main import main

    monkeypatch.setattr(command, "get_plugins", lambda: plugins)
    cache.save(calibration())
    assert main(["calibrate"]) == 0
    assert newest("one") == calibration()
    assert main(["calibrate", "--refresh"]) == 0
    found = newest("one")
    assert found is not None
    assert found.date > calibration().date
