"""GPU drivers, from a made-up root folder with the files that drivers provide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfkit_core.integrations.doctor import machine_checks
from perfkit_core.plugins.contracts import Check

pytestmark = pytest.mark.bare

# The first lines of files of NVIDIA's proprietary and open kernel modules.
VERSIONS = {
    "535.104.05": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
    "550.54.15": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder)\n",
}


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def found(root: Path, seen: int | None = None) -> dict[str, Check]:
    return {check.name: check for check in machine_checks.devices(seen, root)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_of_the_driver(tmp_path: Path, version: str) -> None:
    write(tmp_path, proc__driver__nvidia__version=VERSIONS[version], dev__nvidia0="", dev__nvidiactl="")
    check = found(tmp_path)["device.nvidia"]
    assert (check.status, check.text) == ("ok", f"NVIDIA driver {version}")
    assert check.data == {"vendor": "NVIDIA", "version": version, "nodes": 2, "closed_nodes": []}


@pytest.mark.parametrize(
    ("params", "administrator", "status", "allowed"),
    [
        ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n", False, "note", False),
        ("RmProfilingAdminOnly: 1\n", True, "ok", True),
        ("RmProfilingAdminOnly: 0\n", False, "ok", True),
        ("RmLogonRC: 1\n", False, "note", None),
        (None, False, "note", None),
    ],
)
def test_who_may_read_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: str | None, administrator: bool, status: str,
    allowed: bool | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(machine_checks, "_is_administrator", lambda: administrator)
    if params is not None:
        write(tmp_path, params=params)
    (check,) = machine_checks.counters(tmp_path / "params")
    assert (check.status, check.data["allowed"]) == (status, allowed)
    assert bool("NVreg_RestrictProfilingToAdminUsers=0" in check.fix) == (allowed is False)


def test_root_is_an_administrator() -> None:
    """Docker drops CAP_SYS_ADMIN even for root, so the process's own capabilities count."""
    mask = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)[8:], 16)
    assert machine_checks._is_administrator() == bool(mask & (1 << 21 | 1 << 38))


def test_a_container_without_devices(tmp_path: Path) -> None:
    write(tmp_path, proc__driver__nvidia__version=VERSIONS["550.54.15"])
    check = found(tmp_path)["device.nvidia"]
    assert check.status == "warning"
    assert "--gpus all" in check.fix


def test_device_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sys__module__amdgpu__version="6.10.5\n", dev__kfd="")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "kfd")
    check = found(tmp_path)["device.amd"]
    assert check.text == "AMD driver 6.10.5; you may not use kfd in /dev"
    assert check.data["closed_nodes"] == ["kfd"]


def test_cupti_of_packages_and_toolkits(tmp_path: Path) -> None:
    write(tmp_path, **{"usr__local__cuda-12.4__extras__CUPTI__lib64__libcupti.so.12": ""})
    (check,) = machine_checks.cupti(tmp_path)
    assert check.data["toolkits"] == ["cuda-12.4"]


def test_no_driver_is_no_problem(tmp_path: Path) -> None:
    (check,) = machine_checks.devices(0, tmp_path)
    assert (check.status, check.data) == ("note", {"vendor": None})


def test_a_driver_that_no_framework_uses(tmp_path: Path) -> None:
    write(tmp_path, sys__module__amdgpu__version="6.10.5\n", dev__kfd="")
    assert found(tmp_path, 0)["device.seen"].status == "warning"
    assert "device.seen" not in found(tmp_path, None)
    assert "device.seen" not in found(tmp_path, 2)
