"""Runs of pytest with the plugin, on real torch and real Paddle: budgets, the fixture, baselines, several workers."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Callable

import pytest

from perfkit_core.readers.load import load
from tests.support.paths import ROOT

pytest_plugins = "pytester"
pytestmark = pytest.mark.live

Run = Callable[..., pytest.RunResult]

MODELS = {
    "torch": """
        import pytest, torch
        torch.ones(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        x = torch.ones(4, 8)
    """,
    "paddle": """
        import pytest, paddle
        model = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 4))
        x = paddle.ones([4, 8])
    """,
}
ITEM = {"torch": "aten::item", "paddle": "sum dygraph"}


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs pytest in a new process with the plugin, and with no other plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "120")

    def pytest_run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(
            "-p", "perfkit_core.pytest_plugin.hooks", "-W", "ignore", "--strict-markers", *arguments, timeout=300
        )

    return pytest_run


def write(pytester: pytest.Pytester, framework: str, tests: str, name: str = "test_model") -> None:
    if not importlib.util.find_spec(framework):  # importing it here would import it twice, which torch does not survive
        pytest.skip(f"{framework} is not installed")
    pytester.makepyfile(**{name: "\n".join(map(_dedented, (MODELS[framework], tests)))})


def _dedented(text: str) -> str:
    return re.sub(r"^        ", "", text, flags=re.MULTILINE)


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
        "perfkit_core", "perfkit_core.pytest_plugin", "perfkit_core.pytest_plugin.hooks", "perfkit_core.system",
        "perfkit_core.system.packages",
    }  # fmt: skip
    assert loaded.isdisjoint({"numpy", "pandas", "pyarrow", "numba", "torch", "paddle", "msgspec", "rich", "click"})


@pytest.mark.slow
@pytest.mark.parametrize("framework", MODELS)
def test_budgets(pytester: pytest.Pytester, run: Run, framework: str) -> None:
    """The mark records the call of the test. The counts of the fixture are those of the framework's own profiler."""
    write(
        pytester,
        framework,
        f"""
        @pytest.mark.perf_budget(operators=1000)
        @pytest.mark.parametrize("size", [1, 2])
        def test_kept(size):
            model(x)

        @pytest.mark.perf_budget(operators=4)
        class TestClass:
            def test_too_many(self):
                model(x)

            @pytest.mark.perf_budget(operators=100)
            def test_closest_mark(self):
                model(x)

        @pytest.mark.perf_budget(kernels=0, copies=0)
        def test_no_device():
            model(x)

        @pytest.mark.perf_budget(forbid=["{ITEM[framework]}", "nothing"])
        def test_forbidden():
            helper(model(x))

        def helper(y):
            total = (
                y
                .sum()
            )
            return (total
                .item())

        @pytest.mark.perf_budget(peak_bytes=100, step_time="1000 s", rounds=3)
        def test_memory():
            model(x)

        @pytest.mark.perf_budget(step_time="1000 s")
        def test_time(calls=[]):
            calls.append(model(x))
            assert len(calls) < 10 or TIMES.append(len(calls)) is None

        TIMES = []

        def test_enough_calls():
            assert TIMES[-1] >= 1 + 20 + 1  # one call to warm up, 20 timed calls or more, and one recorded call

        @pytest.mark.perf_budget(kernles=3)
        def test_misspelt():
            model(x)

        @pytest.mark.perf_budget(3)
        def test_unnamed():
            model(x)

        @pytest.mark.perf_budget(operators=3)
        def test_error_of_the_test():
            raise ZeroDivisionError

        @pytest.mark.perf_budget(operators=3)
        def test_skipped():
            pytest.skip("not today")

        @pytest.mark.perf_budget
        def test_no_baseline():
            model(x)

        @pytest.mark.perf_budget(operators=3)
        def test_nothing_recorded(perf):
            model(x)

        @pytest.mark.perf_budget(operators=4)
        def test_fixture_with_mark(perf):
            model(x)
            with perf.record("relu"):
                model[1](x)
            with perf.record("model"):
                model(x)

        def test_section(perf):
            with perf.record(memory=True) as section:
                model(x)
            print(section.counts)
            assert section.operators == native_calls()
            assert section.counts["kernels"] is None
            assert section.counts["peak_bytes"] == 256  # two tensors of 4 * 8 float32
            assert section.trace.meta.framework == "{framework}"
            section.check(operators=sum(native_calls().values()), peak_bytes="256 B")
            section.check(operators=3)

        def test_repeated(perf):
            calls = []
            section = perf.repeat(lambda: calls.append(model(x)), rounds=5, warmup=2)
            assert len(calls) == 2 + 5 + 1
            assert len(section.times_ns) == 5
            section.check(operators=100, step_time="1000 s")

        def test_inside(perf):
            with perf.record("outer"):
                with perf.record("inner"):
                    model(x)

        def test_same_label(perf):
            with perf.record():
                model(x)
            with perf.record():
                model(x)
        """
        + NATIVE[framework],
    )
    result = run("-rA")
    outcomes = {
        name: outcome for outcome, name in re.findall(r"^(\w+) test_model.py::(\S+)", result.stdout.str(), re.MULTILINE)
    }
    passed = {
        "test_kept[1]", "test_kept[2]", "TestClass::test_closest_mark", "test_no_device", "test_time",
        "test_enough_calls", "test_repeated",
    }  # fmt: skip
    assert {name for name, outcome in outcomes.items() if outcome == "PASSED"} == passed
    result.assert_outcomes(passed=len(passed), failed=12, skipped=1)
    expected = [
        "TestClass::test_too_many exceeds its performance budget",
        "test_forbidden exceeds its performance budget",
        "test_memory exceeds its performance budget",
        "  peak_bytes: 256 bytes, limit 100 bytes",
        "perf_budget: unknown argument 'kernles'; did you mean kernels? *",
        "perf_budget: the limits need names; example: @pytest.mark.perf_budget(operators=120)",
        "*ZeroDivisionError",
        "perf_budget: no limit, and no baseline in perf_baselines/test_model.json; give a limit, or run pytest "
        "--perf-update, and commit the file",
        "perf_budget: the test takes the fixture perf, but recorded nothing; *",
        "test_fixture_with_mark / model exceeds its performance budget",
        "test_section exceeds its performance budget",
        "*UsageError: two sections of the test have the label ''; *",
    ]
    result.stdout.fnmatch_lines(expected)
    assert re.search(r"CaptureError: another .*rofiler", result.stdout.str())
    assert re.search(
        rf"::test_no_device +kernels +0 +- +cannot tell +{framework} used no device\n", result.stdout.str()
    )
    assert (
        "::test_kept"
        not in result.stdout.str().split("performance budgets (perfkit)")[1].split("short test summary")[0]
    )
    if framework == "torch":
        lines = (pytester.path / "test_model.py").read_text().splitlines()
        line = lines.index("        .item())") + 1
        result.stdout.fnmatch_lines([f"    aten::item called 1 time, at test_model.py:{line} (helper)"])


NATIVE = {
    "torch": """
        def native_calls():
            with torch.profiler.profile() as profiler:
                model(x)
            return {row.key: row.count for row in profiler.key_averages()}
    """,
    "paddle": """
        def native_calls():
            return {"matmul dygraph": 2, "add dygraph": 2, "relu dygraph": 1}  # each layer, written out by hand
    """,
}


@pytest.mark.slow
def test_baselines_with_several_workers(pytester: pytest.Pytester, run: Run) -> None:
    """Parametrized tests of both frameworks have their own baselines, whichever process runs them."""
    pytest.importorskip("xdist")
    tests = """
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
    for framework in MODELS:
        write(pytester, framework, tests, f"test_{framework}")
    result = run("-p", "xdist", "-n", "2", "--perf-update")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines_random([f"stored 4 baselines in perf_baselines/test_{name}.json" for name in MODELS])
    (path,) = pytester.path.glob("perf_baselines/test_paddle.json")
    stored = json.loads(path.read_text())["tests"]
    assert list(stored) == ["test_forward[1]", "test_forward[2]", "test_parts / relu", "test_same"]
    assert stored["test_forward[2]"]["cpu"]["operators"] == {"add dygraph": 4, "matmul dygraph": 4, "relu dygraph": 2}
    assert stored["test_forward[2]"]["cpu"]["counts"] == {
        "copies": None, "kernels": None, "operators": 10, "peak_bytes": 256, "syncs": None,
    }  # fmt: skip

    changed = tests.replace("model(x)", "model(x) * 2").replace("model[1](x)", "pass")
    for framework in MODELS:
        write(pytester, framework, changed, f"test_{framework}")
    result = run("-p", "xdist", "-n", "2", "--perf-runs", "runs")
    result.assert_outcomes(failed=4, passed=4)
    result.stdout.fnmatch_lines_random(
        [
            "test_forward[[]2[]] exceeds its performance budget",
            "  operators: 12, limit 10",
            "Calls that differ from the baseline (paddle *, cpu)",
            "Name           Base calls  Other calls  Difference",
            "scale dygraph           0            2           2",
            "aten::mul                     0            2           2",
            "test_paddle.py::test_parts / relu  operators   1          0          below the baseline",
        ]
    )
    assert "test_same" not in result.stdout.str()
    (file,) = pytester.path.glob("runs/test_paddle.py-test_forward-2-*")
    assert load(file).operators.sum() == 12


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
    pytester.makepyfile(test_used="", test_unknown="""
        import pytest

        @pytest.mark.perf_budget(operators=100)
        def test_none():
            pass
    """)  # fmt: skip
    result = run()
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


def test_a_profiler_in_the_test_fails_it(pytester: pytest.Pytester, run: Run) -> None:
    """It ends the recording, so the calls after it would not count."""
    write(pytester, "torch", """
        @pytest.mark.perf_budget(operators=1)
        def test_forward():
            with torch.profiler.profile():
                pass
            model(x)
        """)  # fmt: skip
    outcome = run()
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*the section started a profiler of its own, which ended the recording; *"])
