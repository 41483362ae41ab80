"""The limit of memory: it is checked before memory is used, names the remedy, and spares recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import extremes
from perfkit_core import load
from perfkit_core.base.system import machine
from perfkit_core.errors import UsageError
from tests.support.chrome import event, write
from tests.support.paths import ROOT

MEGABYTE = 1 << 20
SIZES: dict[Callable[[Path, int], None], tuple[str, int]] = {
    extremes.long_name: ("trace.json.gz", 50 * MEGABYTE),
    extremes.long_argument: ("trace.json.gz", 12 * MEGABYTE),
    extremes.long_header: ("trace.json.gz", 12 * MEGABYTE),
    extremes.equal_events: ("trace.json.gz", 1_000_000),
    extremes.stored: ("run.perfkit.parquet", 1 << 20),
}
_PEAK = """
import json, re, sys
from pathlib import Path
from perfkit_core.cli.main import main
code = main(sys.argv[1:])
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps([code, int(peak[1]) * 1024]))
"""


def test_a_requirement_above_the_limit_says_what_helps() -> None:
    machine.require(1 << 60, "no limit")
    with machine.limited(machine.resident() + 100 * MEGABYTE):
        machine.require(MEGABYTE, "little")
        with pytest.raises(UsageError, match=r"memory is reached by much .* 5\.0 GiB more needed.*--max-memory"):
            machine.require(5 << 30, "much")
    machine.require(1 << 60, "no limit")


def test_the_default_leaves_half_of_the_free_memory() -> None:
    free = machine.free()
    assert free
    assert abs(machine.default_limit() - machine.resident() - free / 2) < 0.2 * free


UNLIMITED_V1 = 9_223_372_036_854_771_712


@pytest.mark.parametrize(
    ("groups", "version", "limits", "free"),
    [
        ("0::/", 2, {}, []),
        ("0::/", 2, {"": ("1000", "700", 50)}, [350]),  # in a container, its own group is the root
        ("0::/job/step", 2, {"job/step": ("max", "600", 0), "job": ("1000", "700", 50)}, [350]),
        ("0::/job/step", 2, {"job/step": ("400", "300", 9), "job": ("1000", "990", 0)}, [109, 10]),
        ("4:cpu,memory:/job\n0::/", 1, {"job": ("1000", "700", 50)}, [350]),
        ("4:memory:/job/step", 1, {"job/step": (UNLIMITED_V1, 5, 0), "job": (800, 5, 0)}, [UNLIMITED_V1 - 5, 795]),
        ("4:memory:/outside\n3:cpu:/", 1, {"": ("1000", "700", 0)}, [300]),  # a container that sees itself as the root
    ],
)
def test_the_memory_that_control_groups_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    groups: str, version: int, limits: dict[str, tuple[str, str, int]], free: list[int],
) -> None:  # fmt: skip
    """``limits``: group → limit, used, and what is used by files that nobody has used for long, in bytes."""
    files = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for group, (most, used, cached) in limits.items():
        folder = tmp_path / ("" if version == 2 else "memory") / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(files, (most, used), strict=True):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"active_file 7\ninactive_file {cached}\n")
    (tmp_path / "own").write_text(f"{groups}\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_OWN_CGROUPS", tmp_path / "own")
    assert list(dict.fromkeys(machine._free_in_groups())) == free
    if free:
        assert machine.free() == min(free)


def test_addresses_that_are_only_reserved_leave_less_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no such limits")
    limits = {resource.RLIMIT_AS: 5 << 40, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    (reserving,) = machine._free_of_process()
    monkeypatch.setattr(machine, "_RESERVED", 0)
    (free,) = machine._free_of_process()
    assert free - reserving == pytest.approx(1 << 30, rel=0.1)


@pytest.mark.parametrize("make", SIZES, ids=[make.__name__ for make in SIZES])
def test_each_way_to_much_memory_is_limited(make: Callable[[Path, int], None], tmp_path: Path) -> None:
    """Each of these files takes a few hundred KB, and hundreds of MB in memory."""
    name, count = SIZES[make]
    make(tmp_path / name, count)
    with (
        machine.limited(machine.resident() + 40 * MEGABYTE),
        pytest.raises(UsageError, match="memory is reached by"),
    ):
        load(tmp_path / name, partial=True).ints("start_ns")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_command_stays_below_its_limit(tmp_path: Path) -> None:
    extremes.long_name(tmp_path / "trace.json.gz", 120 * MEGABYTE)
    limit = 300 * MEGABYTE
    arguments = ["summary", str(tmp_path / "trace.json.gz"), "--max-memory", "300 MiB"]
    done = subprocess.run([sys.executable, "-c", _PEAK, *arguments], capture_output=True, text=True, cwd=ROOT)
    code, peak = json.loads(done.stdout.splitlines()[-1])
    assert code == 2
    assert done.stderr.startswith("perfkit: error: the limit of 300 MiB of memory is reached by ")
    assert len(done.stderr.splitlines()) == 1
    assert peak < limit + 32 * MEGABYTE


def test_a_comparison_of_one_long_name_with_many_names_needs_little_memory(tmp_path: Path) -> None:
    """Their product is 10 GB. A process of its own: the limit counts what frameworks hold that other tests imported."""
    step = event("ProfilerStep#1", 0, 10_002, cat="user_annotation")
    long = write(tmp_path / "long.json", [step, event("A" * 2_000_000, 1, 4), event("aten::mm", 6, 4)])
    many = write(tmp_path / "many.json", [step, *(event(f"op{at}", 1 + 2 * at, 1) for at in range(5000))])
    for paths in ((long, many), (many, long)):
        arguments = ["compare", *map(str, paths), "--max-memory", "1GB", "--format", "json"]
        done = subprocess.run([sys.executable, "-m", "perfkit", *arguments], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)


def test_the_environment_limits_calls_of_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "trace.json", [event("aten::mm", 0)])
    monkeypatch.setenv(machine.ENVIRONMENT, "1 MiB")
    with pytest.raises(UsageError, match="memory is reached by"):
        load(path)
    monkeypatch.setenv(machine.ENVIRONMENT, "64 GiB")
    assert len(load(path)) == 1
    monkeypatch.setenv(machine.ENVIRONMENT, "much")
    with pytest.raises(UsageError, match="'much' is not a size"):
        load(path)


def test_the_option_is_a_size() -> None:
    from click.testing import CliRunner

    from perfkit_core.cli.main import perfkit

    result = CliRunner().invoke(perfkit, ["summary", os.devnull, "--max-memory", "8 apples"])
    assert isinstance(result.exception, UsageError)
    assert "--max-memory or PERFKIT_MAX_MEMORY: '8 apples' is not a size" in str(result.exception)
