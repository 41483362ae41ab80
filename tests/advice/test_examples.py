"""The pairs of scripts in examples/advice: they differ only in the change, and the rule detects its pattern in
"before"."""

from __future__ import annotations

import difflib
import gc
import re
import runpy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfkit_core import load
from perfkit_core.advice.advice import Advice
from perfkit_core.advice.engine import advise
from perfkit_core.measure.verify import ledger
from perfkit_core.recording.environment import cores
from perfkit_core.trace.model.meta import CORES, HOST, THREADS
from tests.support.paths import EXAMPLES

FOLDER = EXAMPLES / "advice"
PAIRS = runpy.run_path(str(FOLDER / "pairs.py"))
RULES: dict[str, str] = PAIRS["RULES"]
SCRIPTS = [(framework, name) for framework in PAIRS["FRAMEWORKS"] for name in RULES]
_SLOWER = 5  # samples of the loader pair take 20 ms instead of 4
STEPS = 32  # step 30 is the last recorded step
Ran = Callable[..., str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Ran]:
    """Return a function that runs a script of a framework in this process and returns what the script prints."""

    def run(framework: str, script: str, *options: str) -> str:
        module = pytest.importorskip(framework)
        threads = module.get_num_threads() if framework == "torch" else None
        path = FOLDER / framework / f"{script}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *options])
        monkeypatch.syspath_prepend(str(path.parent))
        sys.modules.pop("measured", None)  # both frameworks have a module of this name
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            if threads:
                module.set_num_threads(threads)
            gc.collect()  # workers end when their loader is collected
        return capfd.readouterr().out

    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # restored after the test, because scripts set the variable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the frameworks
        yield run
    sys.modules.pop("measured", None)


@pytest.mark.parametrize(("framework", "name"), SCRIPTS)
def test_before_and_after_differ_only_in_the_change(framework: str, name: str) -> None:
    before, after = (
        (FOLDER / framework / f"{name}_{which}.py").read_text().splitlines() for which in ("before", "after")
    )
    changed = [line for line in difflib.ndiff(before, after) if line.startswith(("- ", "+ "))]
    assert 2 < len(changed) <= 8
    assert all("seed" not in line and "randn" not in line for line in changed)
    assert max(len(before), len(after)) < 60


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "name"), SCRIPTS)
def test_the_rule_asks_for_the_change(
    framework: str, name: str, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "loader":  # Paddle loads in a thread: on a busy machine, training would be slower than loading
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(_SLOWER * seconds))
    printed = ran(framework, f"{name}_before", "--steps", str(STEPS), "--record", str(tmp_path / "run"))
    assert float(re.search(r"step_ms: ([0-9.]+)", printed)[1]) > 0
    trace = load(tmp_path / "run")
    found = advise(trace, rules=[RULES[name]])
    if name == "loader" and cores() < 2:
        pytest.skip("workers need a second core")
    if name == "threads" and trace.meta.extra[HOST][THREADS] <= cores():
        assert not found.advice  # the machine has enough cores
        return
    advised = [*found.advice, *found.without_saving]
    assert {one.rule for one in advised} == {RULES[name]}
    assert found.identity.error < 0.01
    _predicts(advised[0], name)


def _predicts(advice: Advice, name: str) -> None:
    assert advice.remedy is not None
    if name == "threads":
        assert advice.candidate.evidence[CORES] == cores()
        assert advice.prediction.saving_ns is not None
    else:
        assert advice.prediction.saving_ns > 0


@pytest.mark.parametrize(("framework", "name"), SCRIPTS)
def test_after_also_trains(framework: str, name: str, ran: Ran) -> None:
    assert re.search(r"^step_ms: [0-9.]+$", ran(framework, f"{name}_after", "--steps", "12"), re.MULTILINE)


def test_the_ledger_has_the_outcome_of_every_pair() -> None:
    records = ledger.read(FOLDER / "ledger.jsonl")
    measured = {(record.base.split()[1], record.change.split()[1]) for record in records}
    assert measured == {(f"{one}/{name}_before.py", f"{one}/{name}_after.py") for one, name in SCRIPTS}
    for record in records:
        assert record.outcome in ("verified", "helps", "refuted", "abstained")
        assert record.rule in (None, RULES[re.search(r"/(\w+)_before", record.base)[1]])
        assert "/tmp" not in record.base + record.change
