"""Runs of pytest with budgets and with the fixture, on real torch and real Paddle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.pytest_runs import MODELS, file_of_tests, forked_run, plain_environment

pytestmark = [pytest.mark.live, pytest.mark.slow]

ITEM = {"torch": "aten::item", "paddle": "sum dygraph"}

LIMITS = """
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

@pytest.mark.perf_budget(forbid=[ITEM, "nothing"])
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

@pytest.mark.perf_budget(operators=3)
def test_error_of_the_test():
    raise ZeroDivisionError

@pytest.mark.perf_budget(operators=3)
def test_skipped():
    pytest.skip("not today")
"""

WRONG = """
@pytest.mark.perf_budget(kernles=3)
def test_misspelt():
    model(x)

@pytest.mark.perf_budget(3)
def test_unnamed():
    model(x)

@pytest.mark.perf_budget(step_time="1 s", rounds=0)
def test_no_rounds():
    model(x)

@pytest.mark.perf_budget(forbid="(")
def test_pattern():
    model(x)

@pytest.mark.perf_budget
def test_no_baseline():
    model(x)

@pytest.mark.perf_budget(operators=3)
def test_nothing_recorded(perf):
    model(x)

def test_inside(perf):
    with perf.record("outer"):
        with perf.record("inner"):
            model(x)

def test_same_label(perf):
    with perf.record():
        model(x)
    with perf.record():
        model(x)

def test_memory_is_not_recorded(perf):
    with perf.record() as section:
        model(x)
    section.check(peak_bytes=3)

def test_profiler_in_the_test(perf):
    with perf.record():
        other_profiler()
        model(x)
"""

FIXTURE = """
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
    assert section.operators == native_calls()
    assert section.counts["kernels"] is None
    assert section.counts["peak_bytes"] == 256  # two tensors of 4 * 8 float32
    assert section.trace.meta.framework == FRAMEWORK
    section.check(operators=sum(native_calls().values()), peak_bytes="256 B")
    section.check(operators=3)

def test_repeated(perf):
    calls = []
    section = perf.repeat(lambda: calls.append(model(x)), rounds=5, warmup=2)
    assert len(calls) == 2 + 5 + 1
    assert len(section.times_ns) == 5
    section.check(operators=100, step_time="1000 s")

def test_other_threads(perf):
    import threading
    with perf.record() as section:
        model[1](x)
        thread = threading.Thread(target=lambda: [model[1](x) for _ in range(3)])
        thread.start()
        thread.join()
    assert max(section.operators.values()) == CALLS_OF_ALL_THREADS
"""

NATIVE = {
    "torch": """
        FRAMEWORK, ITEM, CALLS_OF_ALL_THREADS = "torch", "aten::item", 1

        def native_calls():
            with torch.profiler.profile() as profiler:
                model(x)
            return {row.key: row.count for row in profiler.key_averages()}

        def other_profiler():
            with torch.profiler.profile():
                pass
    """,
    "paddle": """
        FRAMEWORK, ITEM, CALLS_OF_ALL_THREADS = "paddle", "sum dygraph", 4

        def native_calls():
            return {"matmul dygraph": 2, "add dygraph": 2, "relu dygraph": 1}  # each layer, written out by hand

        def other_profiler():
            with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None):
                pass
    """,
}


@dataclass(frozen=True)
class Run:
    framework: str
    folder: Path
    text: str

    def names(self, outcome: str, file: str) -> set[str]:
        """Return the tests of a file with an outcome, such as PASSED."""
        return set(re.findall(rf"^{outcome} {file}.py::(\S+)", self.text, re.MULTILINE))

    def failure(self, test: str) -> str:
        """Return what is printed for a failed test."""
        (text,) = re.findall(rf"^_+ {test} _+\n(.*?)(?=^_{{5}}|^={{5}})", self.text, re.MULTILINE | re.DOTALL)
        return str(text)


@pytest.fixture(scope="module", params=list(MODELS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run of all tests above."""
    folder = tmp_path_factory.mktemp("budgets")
    for name, tests in {"test_limits": LIMITS, "test_wrong": WRONG, "test_fixture": FIXTURE}.items():
        (folder / f"{name}.py").write_text(file_of_tests(request.param, NATIVE[request.param]) + tests)
    with pytest.MonkeyPatch.context() as monkeypatch:
        plain_environment(monkeypatch)
        result = forked_run(folder, "-W", "ignore", "--strict-markers", "-rA", framework=request.param)
    return Run(request.param, folder, str(result.stdout) + "\n")


def test_limits(run: Run) -> None:
    """The mark records the call of the test, and applies the limits of the closest mark."""
    assert run.names("PASSED", "test_limits") == {
        "test_kept[1]", "test_kept[2]", "TestClass::test_closest_mark", "test_no_device", "test_time",
        "test_enough_calls",
    }  # fmt: skip
    assert run.names("FAILED", "test_limits") == {
        "TestClass::test_too_many", "test_forbidden", "test_memory", "test_error_of_the_test",
    }  # fmt: skip
    assert run.failure("TestClass.test_too_many").startswith("TestClass::test_too_many exceeds its performance budget")
    assert "  peak_bytes: 256 bytes, limit 100 bytes" in run.failure("test_memory")
    assert "ZeroDivisionError" in run.failure("test_error_of_the_test")


def test_the_table_lists_what_did_not_pass(run: Run) -> None:
    table = run.text.split("performance budgets (perfkit)")[1].split("short test summary")[0]
    assert re.search(rf"::test_no_device +kernels +0 +- +cannot tell +{run.framework} used no device\n", table)
    assert re.search(r"::test_no_baseline +baseline +- +- +failed +no baseline is stored\n", table)
    assert "::test_kept" not in table


def test_the_line_of_a_forbidden_operator(run: Run) -> None:
    text = run.failure("test_forbidden")
    assert f"  forbid {ITEM[run.framework]}: 1, limit 0" in text
    if run.framework == "torch":
        lines = (run.folder / "test_limits.py").read_text().splitlines()
        line = lines.index("        .item())") + 1
        assert f"    aten::item called 1 time, at test_limits.py:{line} (helper)" in text


def test_the_fixture(run: Run) -> None:
    """The counts are those of the framework's own profiler. Only Paddle's profiler records other Python threads."""
    assert run.names("PASSED", "test_fixture") == {"test_repeated", "test_other_threads"}
    exceeded = "exceeds its performance budget\n  operators: "
    assert run.failure("test_fixture_with_mark").startswith(f"test_fixture_with_mark / model {exceeded}")
    assert run.failure("test_section").startswith(f"test_section {exceeded}")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("test_misspelt", "perf_budget: unknown argument 'kernles'; did you mean kernels? "),
        ("test_unnamed", "perf_budget: the limits need names; example: @pytest.mark.perf_budget(operators=120)\n"),
        ("test_no_rounds", "perf_budget: rounds=0 times no calls, but step_time limits their time; leave "),
        ("test_pattern", "perf_budget: not a regular expression: '(' ("),
        (
            "test_no_baseline",
            "perf_budget: no limit, and no baseline in perf_baselines/test_wrong.json; give a limit, or run pytest "
            "--perf-update, and commit the file\n",
        ),
        ("test_nothing_recorded", "perf_budget: the test takes the fixture perf, but recorded nothing; "),
    ],
)
def test_wrong_marks(run: Run, test: str, message: str) -> None:
    assert run.failure(test).startswith(message)


@pytest.mark.parametrize(
    ("test", "line", "message"),
    [
        ("test_inside", 'with perf.record("inner"):', r"CaptureError: another .*rofiler"),
        ("test_same_label", "with perf.record():", "UsageError: two sections of the test have the label ''; "),
        ("test_memory_is_not_recorded", "section.check(peak_bytes=3)", "UsageError: the memory was not recorded; "),
        (
            "test_profiler_in_the_test", "model(x)",
            "CaptureError: the section started a profiler of its own, which ended the recording; ",
        ),
    ],
)  # fmt: skip
def test_errors_show_the_line_of_the_test(run: Run, test: str, line: str, message: str) -> None:
    text = run.failure(test)
    assert re.search(f"^E +perfkit_core.errors.{message}", text, re.MULTILINE)
    assert re.findall(r"^> +(.*)$", text, re.MULTILINE)[-1:] == [line] or test == "test_profiler_in_the_test"
    assert set(re.findall(r"^(\S+\.py):\d+: ", text, re.MULTILINE)) == {"test_wrong.py"}
