"""Verify the advice for the pairs: record "before", get the advice, and measure whether its prediction is correct.

python run.py                                    verify all pairs, append outcomes to ledger.jsonl
python run.py --framework torch --pair loader    verify one pair
perfkit advise --ledger ledger.jsonl             show the outcomes of predictions
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pairs import FRAMEWORKS, RULES, Pair, pairs

HERE = Path(__file__).resolve().parent
METRIC = "step_ms: ([0-9.]+)"
STEPS, ATTEMPTS = 60, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--pair", choices=RULES, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ledger", type=Path, default=HERE / "ledger.jsonl")
    options = parser.parse_args()
    ledger = options.ledger.resolve()
    for pair in pairs(tuple(options.framework or FRAMEWORKS), tuple(options.pair or ())):
        print(f"\n== {pair.framework}, {pair.name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            verify(pair, advised(pair, Path(folder)), options.rounds, ledger)


def advised(pair: Pair, folder: Path) -> str | None:
    """Record "before" and return the FILE:ID of the rule's advice. Return None if there is no advice with a prediction.
    If the saving is smaller than the noise of the recording, record again, at most twice."""
    for attempt in range(ATTEMPTS):
        file = folder / f"advice-{attempt}.json"
        found = asked(pair, folder / f"run-{attempt}", file)
        for advice in found["advice"]:
            print(said(advice), flush=True)
            return f"{file}:{advice['id']}" if advice["prediction"]["p50_ns"] is not None else None
        for one in found["not_evaluable"]:
            print(f"{one['rule']}: {one['why']}", flush=True)
        for advice in found["without_saving"]:
            print(f"the saving is smaller than the noise of the recording: {said(advice)}", flush=True)
    return None


def asked(pair: Pair, run: Path, file: Path) -> dict[str, Any]:
    """Record "before" and return the result of ``perfkit advise`` for the pair's rule."""
    call(f"{pair.command('before', STEPS)} --record {shlex.quote(str(run))}")
    call(f"perfkit advise {shlex.quote(str(run))} --rule {pair.rule} --format json -o {shlex.quote(str(file))}")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def said(advice: dict[str, Any]) -> str:
    """Return the prediction of an advice as one line."""
    numbers = advice["prediction"]
    if numbers["p50_ns"] is None:
        return f"{advice['id']}: no prediction"
    base, low, mid, high = (numbers[name] / 1e6 for name in ("base_ns", "p10_ns", "p50_ns", "p90_ns"))
    return f"{advice['id']}: a step of {base:.1f} ms becomes {mid:.1f} ms ({low:.1f} to {high:.1f})"


def verify(pair: Pair, advice: str | None, rounds: int, ledger: Path) -> None:
    """Measure the pair with ``perfkit verify``. Its exit codes 0, 1 and 3 are verdicts, not errors."""
    words = ["perfkit", "verify", "--base", pair.command("before", STEPS), "--change", pair.command("after", STEPS)]
    words += ["--metric", METRIC, "--rounds", str(rounds), "--ledger", str(ledger)]
    call(shlex.join(words + (["--advice", advice] if advice else [])), verdicts=(0, 1, 3))


def call(command: str, verdicts: tuple[int, ...] = (0,)) -> None:
    """Run a command in this folder, with the folder of this Python first on the PATH. Exit if the command's exit code
    is not in ``verdicts``."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(command, shell=True, cwd=HERE, env={**os.environ, "PATH": path}, check=False)
    if done.returncode not in verdicts:
        sys.exit(f"{command}: exit code {done.returncode}")


if __name__ == "__main__":
    main()
