"""A handler records the numbers of threads, cores and processes, which the rule about threads needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.base.system.machine import usable_cpus
from perfkit_core.recording import environment


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("max 100000", 16),
        ("10000000 100000", 16),
        ("", 16),
    ],
)
def test_a_container_may_use_less_than_the_machine_has(
    limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "usable_cpus", lambda: tuple(range(16)))
    quota = tmp_path / "cpu.max"
    quota.write_text(limit)
    assert environment.cores(quota) == expected


def test_without_a_quota_all_usable_processors_count(tmp_path: Path) -> None:
    assert environment.cores(tmp_path / "none") == len(usable_cpus())


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE"])
def test_the_launcher_sets_the_number_of_processes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    monkeypatch.setattr(environment, "processor_flags", lambda: "fpu amx_bf16 avx2 avx512_fp16")
    assert environment.host(8)["host"] == {
        "cores": environment.cores(), "threads": 8, "processes": 4, "instructions": ["amx_bf16", "avx512_fp16"],
    }  # fmt: skip


def test_unknown_numbers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.delenv("PADDLE_LOCAL_SIZE", raising=False)
    monkeypatch.setattr(environment, "processor_flags", lambda: "")
    assert environment.host(None) == {"host": {"cores": environment.cores()}}


def test_the_default_type_has_no_prefix() -> None:
    assert environment.host(None, "torch.float64")["default_dtype"] == "float64"
    assert environment.host(None, "float32")["default_dtype"] == "float32"
