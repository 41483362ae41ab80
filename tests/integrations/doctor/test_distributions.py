"""Packages: what is missing, too old or broken, from made-up packages whose metadata the test writes."""

from __future__ import annotations

import sys

import pytest

from perfkit_core.integrations.doctor import distributions
from tests.integrations.doctor.conftest import Packages

pytestmark = pytest.mark.bare

NEEDS = (
    "sound>=1.5",
    "old>=2.0",
    "missing_package>=1",
    "broken>=1",
    "crashing>=1",
    "elsewhere>=1; sys_platform == 'no such platform'",
    "of_extra>=1; extra == 'one'",
    "another>=1; extra == 'two'",
    "of_extra>=1; extra == 'all'",
    "another>=1; extra == 'all'",
    "linter>=1; extra == 'lint'",
)
CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"


def test_each_dependency_is_ok_or_has_its_problem(packages: Packages) -> None:
    versions = {"perfkit": "7.0", "sound": "1.10+local.1", "old": "1.9.9", "broken": "1", "crashing": "3"}
    packages(versions, NEEDS, sound="", old="", broken="raise RuntimeError('no\\nlibrary')", crashing=CRASH)
    checks = {check.name: check for check in distributions.dependencies()}
    assert {name: check.status for name, check in checks.items()} == {
        "dependency.sound": "ok", "dependency.old": "problem", "dependency.missing_package": "problem",
        "dependency.broken": "problem", "dependency.crashing": "problem", "dependency.pages": "ok",
    }  # fmt: skip
    assert checks["dependency.sound"].data == {"version": "1.10+local.1", "requires": ">=1.5"}
    assert checks["dependency.old"].text == "old 1.9.9, but perfkit needs >=2.0"
    assert checks["dependency.old"].fix == 'pip install "old>=2.0"'
    assert checks["dependency.missing_package"].data == {"version": None, "requires": ">=1"}
    assert checks["dependency.broken"].text == "broken 1 cannot be imported: RuntimeError: no library"
    assert "crashing 3 cannot be imported: the process crashed with SIGSEGV" in checks["dependency.crashing"].text


def test_extras_for_users_are_those_of_all(packages: Packages) -> None:
    packages({"perfkit": "7.0", "another": "2"}, NEEDS)
    checks = {check.name: check for check in distributions.extras()}
    assert {name: check.status for name, check in checks.items()} == {"extra.of_extra": "note", "extra.another": "ok"}
    assert checks["extra.of_extra"].fix == 'pip install "perfkit[one]"'
    assert checks["extra.another"].data["extras"] == ["two"]
    assert [check.name for check in distributions.extras(["another"])] == ["extra.of_extra"]


def test_the_supported_range_of_a_framework_is_that_of_its_extra(packages: Packages) -> None:
    packages({"perfkit": "7.0"}, NEEDS)
    assert distributions.supported("0.9", ["unknown", "of_extra"]) == ">=1"
    assert distributions.supported("1.0rc1+cu126", ["of_extra"]) == ">=1"
    assert distributions.supported("1.0", ["of_extra"]) is None
    assert distributions.supported("0.1", ["unknown"]) is None


def test_versions_name_what_runs(packages: Packages) -> None:
    packages({"perfkit": "7.0"})
    perfkit, python, _ = distributions.versions()
    assert perfkit.text == "perfkit 7.0"
    assert python.data["version"] == ".".join(map(str, sys.version_info[:3]))
    assert python.status == "ok"


def test_unreadable_metadata_counts_as_missing(packages: Packages) -> None:
    packages({"hollow": None})
    assert distributions.installed("hollow") is None
