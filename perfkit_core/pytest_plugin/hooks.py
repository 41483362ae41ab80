"""The hooks of the pytest plugin. pytest imports this module in every run. The rest of perfkit is imported when a test
has the mark or takes the fixture."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from perfkit_core.system.packages import later

MARK = "perf_budget"
PERF = pytest.StashKey[Any]()
"""Key of the :class:`perfkit_core.pytest_plugin.perf.Perf` of a test."""
_HOME = "perfkit_core.pytest_plugin.perf"
RESULTS = "perfkit"
"""Attribute of a report with the results of the test. pytest-xdist sends it to the main process."""
_HELP = (
    "{}(operators=…, kernels=…, copies=…, syncs=…, peak_bytes=…, forbid=…, step_time=…): limits of what the test runs"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perfkit", "performance budgets (perfkit)")
    group.addoption(
        "--perf-update", action="store_true", help="Store the counts of this run as baselines, in perf_baselines/."
    )
    group.addoption("--perf-strict", action="store_true", help="Fail tests whose budgets cannot be checked here.")
    group.addoption("--perf-runs", metavar="DIR", help="Store each recording as a file in DIR, for perfkit compare.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP.format(MARK))


@pytest.fixture
def perf(request: pytest.FixtureRequest) -> Any:
    """Record a section of the test: ``with perf.record() as section`` or ``perf.repeat(function)``."""
    return request.node.stash.setdefault(PERF, later(_HOME, "Perf")(request.node))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if PERF in item.stash:  # plugins that repeat failed tests use the same item
        del item.stash[PERF]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if PERF not in item.stash and item.get_closest_marker(MARK) is None:
        return (yield)
    return (yield from later(_HOME, "run")(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and PERF in item.stash:
        setattr(report, RESULTS, item.stash[PERF].results(report.passed))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    results = [(report.nodeid, each) for report in reports if (each := getattr(report, RESULTS, None))]
    if results:
        from perfkit_core.pytest_plugin import terminal

        terminal.show(terminalreporter, results, config.get_verbosity() > 0)
