"""Runs of pytest with the plugin, on real torch and real Paddle: budgets, the fixture, baselines, several workers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

import pytest

from perfkit_core.readers.load import load
from tests.support.paths import ROOT
from tests.support.pytest_runs import MODELS, PLUGIN, file_of_tests, forked_run, plain_environment

pytest_plugins = "pytester"
pytestmark = pytest.mark.live

Run = Callable[..., pytest.RunResult]


def write(pytester: pytest.Pytester, framework: str, tests: str, name: str = "test_model") -> None:
    pytester.makepyfile(**{name: file_of_tests(framework, tests)})


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs pytest in a new process with the plugin, and with no other plugin. A fork of a
    process that has imported a framework runs it, unless ``framework`` is None."""
    plain_environment(monkeypatch)

    def pytest_run(*arguments: str, framework: str | None = "torch") -> pytest.RunResult:
        options = ("-W", "ignore", "--strict-markers", *arguments)
        if framework is None:
            return pytester.runpytest_subprocess(*PLUGIN, *options, timeout=300)
        return forked_run(pytester.path, *options, framework=framework)

    return pytest_run


@pytest.mark.bare
def test_an_ordinary_run_imports_nothing_heavy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest loads the plugin by the entry point of pyproject.toml."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = pytester.mkdir("installed-1.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", f"{pytester.path}:{ROOT}")
    pytester.makeconftest(
        """
                import sys

        def pytest_unconfigure(config):
            print("modules:", *sorted(name for name in sys.modules if "." not in name or name.startswith("perfkit")))
        """
    )
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("-p", "perfkit", "-s", "--markers", "--perf-strict")
    result.stdout.fnmatch_lines(["@pytest.mark.perf_budget(operators=*"])
    result = pytester.runpytest_subprocess("-p", "perfkit", "-s")
    assert "performance budgets" not in result.stdout.str()
    (line,) = (line for line in result.outlines if line.startswith("modules:"))
    loaded = set(line.split())
    assert {name for name in loaded if name.startswith("perfkit")} == {
        "perfkit_core", "perfkit_core.base", "perfkit_core.base.system", "perfkit_core.base.system.packages",
        "perfkit_core.integrations", "perfkit_core.integrations.pytest_plugin",
        "perfkit_core.integrations.pytest_plugin.hooks",
    }  # fmt: skip
    assert loaded.isdisjoint({"numpy", "pandas", "pyarrow", "numba", "torch", "paddle", "msgspec", "rich", "click"})


TESTS = """
@pytest.mark.perf_budget
def test_same():
    model[0](x)

@pytest.mark.perf_budget(memory=True)
@pytest.mark.parametrize("times", [1, 2])
def test_forward(times):
    for _ in range(times):
        model(x)

def test_parts(perf):
    with perf.record("relu") as section:
        model[1](x)
    section.check()
"""


CHANGED = TESTS.replace("model(x)", "model(x) * 2").replace("model[1](x)", "pass")


@pytest.mark.slow
@pytest.mark.parametrize("framework", MODELS)
def test_baselines(pytester: pytest.Pytester, run: Run, framework: str) -> None:
    """Parametrized tests have their own baselines, in a file for each file of tests."""
    write(pytester, framework, TESTS)
    result = run("--perf-update", framework=framework)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["stored 4 baselines in perf_baselines/test_model.json"])
    stored = json.loads((pytester.path / "perf_baselines" / "test_model.json").read_text())["tests"]
    assert list(stored) == ["test_forward[1]", "test_forward[2]", "test_parts / relu", "test_same"]
    twice = stored["test_forward[2]"]["cpu"]
    if framework == "paddle":
        assert twice["operators"] == {"add dygraph": 4, "matmul dygraph": 4, "relu dygraph": 2}
        assert twice["counts"] == {
            "copies": None, "kernels": None, "operators": 10, "peak_bytes": 256, "syncs": None,
        }  # fmt: skip

    write(pytester, framework, CHANGED)
    result = run("--perf-runs", "runs", framework=framework)
    result.assert_outcomes(failed=2, passed=2)
    lines = {
        "torch": ["aten::mul                     0            2           2"],
        "paddle": [
            "  operators: 12, limit 10",
            "Name           Base calls  Other calls  Difference",
            "scale dygraph           0            2           2",
            "test_model.py::test_parts / relu  operators  1      0         below the baseline",
        ],
    }[framework]
    result.stdout.fnmatch_lines_random(
        [
            "test_forward[[]2[]] exceeds its performance budget",
            f"Calls that differ from the baseline ({framework} *, cpu)",
            *lines,
        ]
    )
    assert "test_same" not in result.stdout.str()
    (file,) = pytester.path.glob("runs/test_model.py-test_forward-2-*")
    added = {"torch": 10, "paddle": 2}[framework]  # torch also converts the 2, which takes four operators
    assert load(file).operators.sum() == twice["counts"]["operators"] + added


@pytest.mark.slow
def test_baselines_of_several_workers(pytester: pytest.Pytester, run: Run) -> None:
    """The main process stores what the workers count, whichever process runs a test."""
    pytest.importorskip("xdist")
    write(pytester, "torch", TESTS, "test_first")
    write(pytester, "torch", TESTS, "test_second")
    workers = ("-p", "xdist", "-n", "2", "--dist", "load")
    result = run(*workers, "--perf-update")
    result.assert_outcomes(passed=8)
    stored = [f"stored 4 baselines in perf_baselines/test_{name}.json" for name in ("first", "second")]
    result.stdout.fnmatch_lines_random(stored)
    write(pytester, "torch", CHANGED, "test_second")
    result = run(*workers)
    result.assert_outcomes(failed=2, passed=6)
    result.stdout.fnmatch_lines(["Calls that differ from the baseline (torch *, cpu)"])


@pytest.mark.slow
def test_which_framework(pytester: pytest.Pytester, run: Run) -> None:
    """The test file says which framework it uses, if several are imported."""
    for framework in MODELS:
        write(pytester, framework, "", f"{framework}_models")
    pytester.makepyfile(
        test_used="""
            import pytest, torch, paddle_models
            torch.ones(1)

            @pytest.mark.perf_budget(operators=0)
            def test_of_this_file():
                torch.ones(1)
        """,
        test_unknown="""
            import pytest, torch_models, paddle_models

            @pytest.mark.perf_budget(operators=100)
            def test_which():
                pass

            @pytest.mark.perf_budget(operators=0, framework="paddle")
            def test_given():
                paddle_models.model(paddle_models.x)

            @pytest.mark.perf_budget(operators=0, framework="jax")
            def test_other():
                pass
        """,
    )
    result = run()
    result.stdout.fnmatch_lines_random(
        [
            "perf_budget: paddle and torch are imported; import the right one at the top *",
            "add dygraph         2",
            "aten::ones       1",
            "perf_budget: unknown framework 'jax'; known: *",
        ]
    )


def test_without_a_framework(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.perf_budget(operators=100)
        def test_none():
            pass
    """)  # fmt: skip
    result = run(framework=None)
    result.stdout.fnmatch_lines(["perf_budget: no framework is imported; import the right one at the top *"])


def test_a_repeated_test_is_recorded_anew(pytester: pytest.Pytester, run: Run) -> None:
    """Plugins for flaky tests run the protocol of the same item again."""
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, nextitem=nextitem, log=False)
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    write(pytester, "torch", """
        @pytest.mark.perf_budget(operators=200)
        def test_forward():
            model(x)
        """)  # fmt: skip
    run().assert_outcomes(passed=1)


BASELINE = """
    @pytest.mark.perf_budget
    def test_forward():
        model(x)
"""


def test_baselines_are_stored_without_the_terminal(pytester: pytest.Pytester, run: Run) -> None:
    """A file that is not one of baselines is not replaced: the run fails with one line."""
    write(pytester, "torch", BASELINE)
    without = ("-p", "no:terminal", "--perf-update")
    assert run(*without).ret == pytest.ExitCode.OK
    (path,) = pytester.path.glob("perf_baselines/*")
    assert list(json.loads(path.read_text())["tests"]) == ["test_forward"]
    path.write_text("{")
    told = "the baselines are not stored: perf_baselines/test_model.json: not a file of baselines (*); delete it, and *"
    result = run("--perf-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([told])
    assert (result.ret, path.read_text()) == (pytest.ExitCode.TESTS_FAILED, "{")
    result = run(*without)
    result.stderr.fnmatch_lines([told])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.bare
def test_a_folder_that_cannot_be_written_ends_the_run_at_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    (pytester.path / "file").touch()
    result = run("--perf-runs", "file", framework=None)
    assert (result.ret, result.outlines[1:]) == (pytest.ExitCode.USAGE_ERROR, [])
    assert result.errlines[0] == "ERROR: --perf-runs file: cannot be written (File exists); give another folder"
