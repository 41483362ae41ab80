"""The hooks of the pytest plugin. pytest imports this module in every run. The rest of perfkit is imported when a test
has the mark or takes the fixture."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.base.system.packages import later

MARK = "perf_budget"
PERF = pytest.StashKey[Any]()
"""Key of the :class:`perfkit_core.integrations.pytest_plugin.perf.Perf` of a test."""
_HOME = "perfkit_core.integrations.pytest_plugin.perf"
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
    if not hasattr(config, "workerinput"):  # the main process of pytest-xdist gets the reports of all processes
        config.pluginmanager.register(_Reports(), "perfkit-reports")


class _Reports:
    """Collects the results of all tests. Stores the baselines at the end of the session."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.stored: list[str] = []
        self.errors: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        folder = session.config.option.perf_runs
        if folder:
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                problem = f"--perf-runs {folder}: cannot be written ({error.strerror or error}); give another folder"
                raise pytest.UsageError(problem) from None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (results := getattr(report, RESULTS, None)) is not None:
            self.results[report.nodeid] = results  # of the last run, if a plugin repeats failed tests

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.results:
            self.stored, self.errors = later("perfkit_core.integrations.pytest_plugin.baselines", "store")(
                self.results.values()
            )
        if self.errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.errors and not session.config.pluginmanager.has_plugin("terminalreporter"):
            print(*self.errors, sep="\n", file=sys.stderr)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if self.results:
            from perfkit_core.integrations.pytest_plugin import terminal

            verbose = config.get_verbosity() > 0
            terminal.show(terminalreporter, self.results, verbose, self.stored, self.errors)


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
