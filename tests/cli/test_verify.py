"""``perfkit verify`` with real processes. Effects are large and noise is constructed, so that no verdict depends on
chance."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.experience import own_ledger
from perfkit_core.measure.verify.ledger import read

Perfkit = Callable[..., Any]

SLEEPS = (
    "import sys, time; s = time.perf_counter(); time.sleep(float(sys.argv[1])); print('s:', time.perf_counter() - s)"
)
NOISY = """
import sys
from pathlib import Path
log = Path(sys.argv[0]).with_suffix(".log")
calls = len(log.read_text().split()) if log.exists() else 0
with log.open("a") as file:
    file.write("call ")
print("step_ms:", [100, 130, 80, 120, 90][calls % 5])
"""


def sleeps(seconds: float) -> str:
    return f"'{sys.executable}' -S -c \"{SLEEPS}\" {seconds}"


def prints(text: str) -> str:
    return f"echo '{text}'"


def test_a_planted_sleep_is_found_in_both_directions(perfkit: Perfkit, tmp_path: Path) -> None:
    slow, fast = sleeps(0.5), sleeps(0.01)  # the difference is larger than any delay of a busy machine
    found = perfkit("verify", "--base", slow, "--change", fast, "--metric", "s", "--rounds", 3, "--warmup", 0)
    assert found.code == 0
    assert "\nHelps: " in found.out
    found = perfkit("verify", "--base", fast, "--change", slow, "--metric", "s", "--rounds", 3, "--warmup", 0)
    assert found.code == 1
    assert "\nSlower: " in found.out


def test_equal_commands_cannot_be_told_apart(perfkit: Perfkit, tmp_path: Path) -> None:
    """Both commands print numbers from one list, like equal runs on a noisy machine."""
    (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
    command = f"'{sys.executable}' -S '{tmp_path / 'noisy.py'}'"
    found = perfkit("verify", "--base", command, "--change", command, "--metric", "step_ms", "--format", "json")
    assert found.code == 3
    told = json.loads(found.out)["verify"]
    assert told["verdict"] in ("cannot tell", "no change within noise")
    assert (told["outcome"], told["runs"]) == ("abstained", 20)
    assert told["saving_low_ratio"] <= 0 <= told["saving_high_ratio"]
    assert told["noise_ratio"] > 0.05
    assert len((tmp_path / "noisy.log").read_text(encoding="utf-8").split()) == 22  # 20 runs and two warm-up runs


def test_a_prediction_is_stored_with_its_measurement(perfkit: Perfkit, tmp_path: Path) -> None:
    """A saving of 20 % is predicted and a saving of 25 % is measured. So the predicted saving is a fifth too small."""
    ledger = tmp_path / "new" / "ledger.jsonl"
    numbers = {"base_ns": 1000, "p10_ns": 700, "p50_ns": 800, "p90_ns": 900}
    advice = tmp_path / "advice.json"
    advice.write_text(
        json.dumps({"advice": [{"id": "a:1", "rule": "a", "framework": "fw", "prediction": numbers}]}), encoding="utf-8"
    )
    found = perfkit(
        "verify", "--base", prints("step_ms: 8"), "--change", prints("step_ms: 6"), "--metric", r"step_ms: (\d)",
        "--rounds", 3, "--advice", f"{advice}:a:1", "--ledger", ledger,
    )  # fmt: skip
    assert found.code == 0
    assert "Within the predicted interval: 20% was predicted (p10 to p90: 10% to 30%)" in found.out
    assert "Prediction error: -20% for the saving, " in found.out
    (kept,) = read(ledger)
    assert kept.framework == "fw"
    assert (kept.outcome, kept.advice, kept.rule, kept.base_median, kept.change_median) == (
        "verified",
        "a:1",
        "a",
        8,
        6,
    )
    assert (kept.base_ns, kept.p10_ns, kept.p50_ns, kept.p90_ns) == (1000, 700, 800, 900)
    assert kept.saving_ratio == pytest.approx(0.25)
    assert kept.saving_error == pytest.approx(-0.2)
    assert kept.step_error == pytest.approx(800 / 750 - 1)
    assert kept.cpus


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("t 8 8", 3, "No change within noise: 8 → 8; more --rounds"),
        ("t 8 8 --predicted-ns 1000,700,800,900", 1, "Refuted: 8 → 8, and the predicted saving is larger"),
        ("t 8 9 --predicted-ns 1000,700,800,900", 1, "Slower: 8 → 9."),
        ("t 8 6 --predicted-ns 1000,700,800,900", 0, "Verified: 8 → 6, and the saving lies in the predicted interval."),
        ("t 8 5 --predicted-ns 1000,700,800,900", 0, "Helps, more than predicted: 8 → 5."),
        ("t 80 79 --predicted-ns 1000,700,800,900", 0, "Helps, less than predicted: 80 → 79."),
        ("ips 100 125 --higher-is-better", 0, "Helps: 100 → 125."),
    ],
)
def test_numbers_without_noise(
    perfkit: Perfkit, options: str, code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    metric, base, change, *more = options.split()
    commands = ("--base", prints(f"{metric}: {base}"), "--change", prints(f"{metric}: {change}"))
    found = perfkit("verify", *commands, "--metric", metric, *more)
    assert found.code == code
    assert told in found.out
    assert not own_ledger().exists(), "only predictions of rules are stored"


def test_a_changed_script_has_another_hash(perfkit: Perfkit, tmp_path: Path) -> None:
    """The text of the command is the same, but the script that it runs has changed."""
    ledger, script = tmp_path / "ledger.jsonl", tmp_path / "train.sh"
    for number in (3, 4):
        script.write_text(f"echo step_ms: {number}", encoding="utf-8")
        command = f"sh '{script}'"
        arguments = ("--metric", "step_ms", "--rounds", 3, "--warmup", 0, "--ledger", ledger)
        perfkit("verify", "--base", command, "--change", command, *arguments)
    first, second = read(ledger)
    assert first.base == second.base
    assert first.base_hash == first.change_hash != second.base_hash


def test_formats(perfkit: Perfkit, tmp_path: Path) -> None:
    """The output is a Markdown file, or JSON with every run."""
    arguments = ("verify", "--base", prints("t: 8"), "--change", prints("t: 6"), "--metric", "t", "--rounds", 3)
    assert perfkit(*arguments, "-o", tmp_path / "found.md").out == ""
    assert "| base |" in (tmp_path / "found.md").read_text(encoding="utf-8")
    views = json.loads(perfkit(*arguments, "--format", "json").out)["views"]
    assert [row["value"] for row in views["runs"]] == [8 if row["side"] == "base" else 6 for row in views["runs"]]
    assert [row["side"] for row in views["runs"]].count("base") == 6


def test_mistakes_are_one_line(transcript) -> None:
    base, change = ("echo t: 1; echo broken >&2; exit 3", "echo t: 1", "echo nothing"), ("echo t: 1", "exit 1")
    pairs = [(base[0], change[0]), (base[1], change[1]), (base[2], change[0])]
    lines = [f"verify --base '{one}' --change '{other}' --metric t" for one, other in pairs]
    options = ["--rounds 2", "--predicted-ns 5", "--advice x:1 --predicted-ns 5,1,2,3", "--format html", "--ledger /"]
    lines += [f"verify --base 'echo t: 1' --change 'echo t: 1' --metric t {option}" for option in options]
    lines += ["verify --base 'echo t: 1' --change 'echo t: 1' --metric t --ledger memory://ledger"]
    lines += ["verify --base 'sleep 20' --change 'echo t: 1' --metric t --timeout 0.2"]
    transcript("verify-mistakes", *lines, "verify --base true --change true")


def test_an_unwritable_ledger_fails_before_anything_runs(perfkit: Perfkit, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = f"touch '{tmp_path / 'ran'}'; echo t: 1"
    ledger = tmp_path / "file" / "ledger.jsonl"
    found = perfkit("verify", "--base", command, "--change", command, "--metric", "t", "--ledger", ledger)
    assert found.code == 2
    assert not (tmp_path / "ran").exists()
