"""perfkit demo finds the planted faults of a training, measures their fix, and prints what the README shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit_core.base.system.packages import installed
from perfkit_core.cli import demo
from perfkit_core.measure.verify import ledger
from perfkit_core.plugins.frameworks import Demo
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from tests.support.side_facts import with_clock
from tests.support.small_trace import small_trace

README = Path(__file__).parents[2] / "README.md"
MS = 1_000_000
MEASURED = re.compile(
    r"(?:(?<= with paddle )|(?<= with torch ))[\w.+]+\n.*?(?=The fix, in)"
    r"|(?<=Verdict\n).*?(?=Medians of)"
    r"|Other processes took .*?exclude\s+it\."
    r"|(?:\S+ and )?\S+: the difference may be noise\.\s+Repeat the demo on a quieter\s+machine\."
    r"|(?<=: )(?:\w+\s+is\s+faster|noise\s+may\s+explain\s+the\s+difference)(?=\.)",
    re.DOTALL,
)
"""Advice, verdicts and remarks on noise. All depend on how fast the machine is and what else it does."""
NUMBER = re.compile(r"(?<!\w)[-−<]?\d[\d.,]*(?:\+\w+)?(?: [nµm]?s\b|%)?")


def recorders(monkeypatch: pytest.MonkeyPatch, *names: str, script: str = "") -> None:
    training = Demo(Path(script), {"slow": "quick"}, ("save-each-step",))
    found = SimpleNamespace(recorders=lambda: {name: SimpleNamespace(demo=training) for name in names})
    monkeypatch.setattr(demo, "get_plugins", lambda: found)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces recording. It gives the step times of both programs in ms, run by run."""

    def record(**times: tuple[float, ...]) -> None:
        def load(training: demo._Training, side: str, show: object) -> None:
            ms = times[side][len(training.traces[side])]
            steps = TimedSteps(tuple(TimedStep(number, False, round(ms * MS)) for number in range(10)))
            training.traces[side].append(with_clock(small_trace(), {"-": steps}))

        monkeypatch.setattr(demo._Training, "record", load)

    script = tmp_path / "script.py"
    script.write_text("slow\n", encoding="utf-8")
    recorders(monkeypatch, "email", "no_such_framework", script=str(script))  # the name of any installed module
    monkeypatch.chdir(tmp_path)
    return record


def test_a_fix_that_saves_time(perfkit, recorded: Callable[..., None]) -> None:
    recorded(base=(20, 21, 20.5), change=(10, 10.5, 10.2))
    code, out, err = perfkit("demo")
    assert (code, err) == (0, "")
    assert re.search(r"^email +20\.5 ms → 10\.2 ms +– +50\.2% \(.*\) +helps$", out, re.MULTILINE)
    assert "   - slow\n   + quick\n" in out
    assert Path("demo/email/after.py").read_text(encoding="utf-8") == "quick\n"
    assert 'no_such_framework is not installed. To compare with it: pip install "perfkit[no_such_framework]"' in out
    assert out.endswith(f"Open {Path('demo/email.html')} in a browser: the slow training, and the advice on it.\n")
    assert all(Path("demo", name).is_file() for name in ("email.html", "email-fix.html"))
    assert [record.outcome for record in ledger.read(Path("demo/ledger.jsonl"))] == ["helps"]


def test_programs_that_differ_less_than_equal_runs(perfkit, recorded: Callable[..., None]) -> None:
    """On a busy machine, the verdict is that the demo cannot tell."""
    recorded(base=(20, 200, 90), change=(400, 15, 180))
    code, out, _ = perfkit("demo")
    assert code == 0
    assert " ".join(out.split("Medians of")[0].split()).endswith("no change within noise")
    assert "email: the difference may be noise. Repeat the demo on a quieter machine." in out


def test_nothing_installed(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, "no_such_framework")
    code, _, err = perfkit("demo", "-o", tmp_path)
    assert code == 2
    assert err == 'perfkit: error: no framework is installed; pip install "perfkit[no_such_framework]"\n'


def test_a_failing_program_is_one_line(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('no slow device')", encoding="utf-8")
    recorders(monkeypatch, "email", script=str(script))
    code, _, err = perfkit("demo", "-o", tmp_path / "demo")
    assert (code, err.count("\n")) == (2, 1)
    assert sys.executable in err
    assert "failed with exit code 1: no slow device" in err


@pytest.mark.slow
def test_the_readme_shows_what_the_demo_prints(perfkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output has the same lines as the log in the README, apart from what was measured. The log is one screen.

    On a busy machine the output is longer: more advice has a saving, and a sentence on other processes is added.
    """
    if not (installed("torch") and installed("paddle")):
        pytest.skip("not all frameworks are installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "ROUNDS", 2)
    code, out, err = perfkit("demo")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    log = re.search(r"<!-- demo -->\n+```\n\$ perfkit demo\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert log is not None
    assert len(log[1].splitlines()) <= 45
    assert shape(out) == shape(log[1])
    pages = "torch.html", "torch-fix.html", "paddle.html", "paddle-fix.html", "compare.html"
    assert all((tmp_path / "demo" / page).is_file() for page in pages)


def shape(log: str) -> list[str]:
    """Return the words of a log without what was predicted and measured."""
    return NUMBER.sub("#", MEASURED.sub("", log)).split()
