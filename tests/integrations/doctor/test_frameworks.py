"""Plugins and frameworks: adapters provide their checks through the hook ``perfkit_checks``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from perfkit_core.integrations.doctor import frameworks
from perfkit_core.plugins.contracts import Check, FrameworkChecks
from perfkit_paddle import wheels
from tests.integrations.doctor.conftest import Packages

pytestmark = pytest.mark.bare

NEEDS = ("sail>=2.0; extra == 'sail'",)
PLUGIN = """
from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import Check, FrameworkChecks
from perfkit_core.plugins.frameworks import Framework

def running():
    import sail
    yield Check("framework.sail.devices", "ok", "sail sees 2 devices", data={"devices": 2})

@hookimpl
def perfkit_frameworks():
    return [Framework("sail", checks=lambda: FrameworkChecks(("sail", "sail-gpu"), tuple, running))]
"""


def of_sail(**installed: object) -> list[Check]:
    checks = FrameworkChecks(("sail", "sail-gpu"), installed.get("installed", tuple), tuple)  # type: ignore[arg-type]
    return list(frameworks.framework("sail", checks))


def make(packages: Packages, version: str | None, code: str) -> None:
    """Install a made-up framework and its plugin."""
    versions = {"perfkit": "7.0"} | ({} if version is None else {"sail-gpu": version})
    site = packages(versions, NEEDS, sail=code, sail_plugin=PLUGIN)
    folder = site / "perfkit_sail-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: perfkit-sail\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[perfkit]\nsail = sail_plugin\n", encoding="utf-8")


def test_a_framework_that_works(packages: Packages) -> None:
    make(packages, "2.1", "")
    package, devices = of_sail()
    assert (package.status, package.text) == ("ok", "sail-gpu 2.1")
    assert devices.data == {"devices": 2}


def test_a_framework_that_is_not_installed(packages: Packages) -> None:
    make(packages, None, "")
    (check,) = of_sail()
    assert (check.status, check.fix) == ("note", 'pip install "perfkit[sail]"')


def test_a_version_out_of_the_range_of_the_extra(packages: Packages) -> None:
    make(packages, "1.9", "")
    check = next(check for check in of_sail() if check.name == "framework.sail.version")
    assert (check.status, check.text) == ("problem", "sail-gpu 1.9, but perfkit supports >=2.0")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise OSError('libcudart.so.12: cannot open')", "sail cannot be imported: libcudart.so.12: cannot open"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", "the process crashed with SIGABRT in "),
    ],
)
def test_a_broken_import_is_reported_with_its_reason(packages: Packages, code: str, text: str) -> None:
    make(packages, "2.1", code)
    check = of_sail()[-1]
    assert check.status == "problem"
    assert text.replace("cannot be imported: lib", "cannot be imported: OSError: lib") in check.text


def test_a_framework_that_hides_the_installed_one(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(packages, "2.1", "")
    (tmp_path / "sail.py").write_text("raise RuntimeError('a bug')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = f"sail cannot be imported: RuntimeError: a bug; Python finds it in {tmp_path}, not in the installed package"
    assert found in of_sail()[-1].text


def test_a_check_of_an_adapter_that_fails(packages: Packages) -> None:
    make(packages, "2.1", "")

    def fails() -> None:
        raise ValueError("a bug")

    assert "framework.sail.installed" in [check.name for check in of_sail(installed=fails) if check.status == "problem"]


def test_plugins_are_listed_with_their_errors(packages: Packages) -> None:
    site = packages({}, bad_plugin="raise RuntimeError('no plugin today')")
    folder = site / "bad-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[perfkit]\nbad = bad_plugin\n", encoding="utf-8")
    checks = {check.name: check for check in frameworks.plugins()}
    assert checks["plugin.core"].status == "ok"
    bad = checks["plugin.bad"]
    assert (bad.status, bad.fix) == ("problem", "update or uninstall bad")
    assert bad.data["error"] == "RuntimeError: no plugin today"


@pytest.mark.parametrize(
    ("versions", "names"),
    [
        ({"paddlepaddle": "3.3.1", "numpy": "2.4"}, []),
        ({"paddlepaddle": "2.6.2", "numpy": "1.26.4"}, []),
        ({"paddlepaddle": "2.6.2", "numpy": "2.0"}, ["framework.paddle.numpy"]),
        ({"paddlepaddle": "3.3.1", "paddlepaddle-gpu": "3.3.0", "numpy": "2.4"}, ["framework.paddle.packages"]),
        (
            {"paddlepaddle-xpu": "2.6.1", "paddlepaddle-gpu": "3.3.0", "numpy": "2.4"},
            ["framework.paddle.packages", "framework.paddle.numpy"],
        ),
    ],
)
def test_mismatches_of_paddle(
    packages: Packages, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str],
    names: list[str],
) -> None:  # fmt: skip
    """Metadata alone shows them, and the adapter logs them once."""
    packages(versions)
    if "paddlepaddle" not in versions:
        monkeypatch.setattr(wheels, "DISTRIBUTIONS", ("paddlepaddle-gpu", "paddlepaddle-xpu"))
    assert [check.name for check in wheels.mismatches()] == names
    wheels.tell_mismatches.cache_clear()
    with caplog.at_level(logging.WARNING, "perfkit"):
        wheels.tell_mismatches()
        wheels.tell_mismatches()
    wheels.tell_mismatches.cache_clear()
    assert len(caplog.messages) == len(names)
    for check, logged in zip(wheels.mismatches(), caplog.messages, strict=True):
        assert logged == f"perfkit: {check.text}; {check.fix}"
