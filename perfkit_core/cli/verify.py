"""``perfkit verify``: measure whether a change saves as much time as predicted."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.base.system.paths import is_remote
from perfkit_core.cli import options
from perfkit_core.cli.output import emit, refuse_overwriting, renderer, working
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.measure.calibration.equal_runs import EqualRuns


@click.command(epilog="Example: perfkit verify --base 'python train.py' --change 'python train.py --workers 4'")
@click.option("--base", required=True, metavar="CMD", help="Shell command that runs the program without the change.")
@click.option("--change", required=True, metavar="CMD", help="Shell command that runs the program with the change.")
@click.option("--metric", default="step_time", show_default=True, metavar="NAME|REGEX", help="The number to compare. "
              "step_time is the duration of a step, measured without a profiler. Any other NAME stands for the last "
              "number that the command prints after this name. A REGEX such as 'step_ms: ([0-9.]+)' stands for the "
              "last match of its group in the output.")  # fmt: skip
@click.option("--higher-is-better", is_flag=True, help="A higher number is better, as for samples per second.")
@click.option("--rounds", type=options.WholeNumber(), default=5, show_default=True, metavar="N",
              help="Number of rounds, at least 3. A round runs each command twice.")  # fmt: skip
@click.option("--warmup", type=options.WholeNumber(), default=1, show_default=True, metavar="K",
              help="Number of warm-up runs of each command. They are not measured.")  # fmt: skip
@click.option("--warmup-steps", type=options.WholeNumber(), default=10, show_default=True, metavar="K",
              help="Skip the first K steps of each run, but at most half of its steps.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Fail if a run takes longer than this.")  # fmt: skip
@click.option("--advice", metavar="FILE:ID", help="Verify the prediction of this advice. FILE is the output of perfkit "
              "advise --format json.")  # fmt: skip
@click.option("--predicted-ns", metavar="BASE,P10,P50,P90", help="Verify this prediction: the step time in ns without "
              "the change (BASE), and the 10th, 50th and 90th percentile of the predicted step time.")  # fmt: skip
@click.option("--ledger", type=options.LOCATION, metavar="FILE", help="Append the outcome to FILE. perfkit advise "
              "--ledger FILE shows the outcomes.")  # fmt: skip
@options.format_option("text, json or markdown")
@options.output
def verify(
    base: str,
    change: str,
    metric: str,
    higher_is_better: bool,
    rounds: int,
    warmup: int,
    warmup_steps: int,
    timeout: float | None,
    advice: str | None,
    predicted_ns: str | None,
    ledger: Path | None,
    format_name: str | None,
    output: Path | None,
) -> int:
    """Measure how much a change improves a program.

    The two commands run alternately, each time in a new process. Their order compensates for slow drift of the
    machine's speed. The change counts as an improvement only if the 95% interval of the saving excludes 0, and if the
    saving exceeds the difference between equal runs of the base. How much equal runs differ is stored for perfkit
    compare.

    "Verified" is said only if the saving lies in the predicted interval, else "helps".

    Exit codes: 0 if the change helps, 1 for "slower" and "refuted", 3 for "no change within noise" and "cannot tell", 2
    for an invalid command or option.
    """
    from perfkit_core.advice import experience
    from perfkit_core.base.system import failures
    from perfkit_core.measure.verify import ledger as ledgers
    from perfkit_core.measure.verify import noise, outcome, prediction, runs
    from perfkit_core.measure.verify.runs import Metric

    chosen = renderer(format_name, output, without=("html", "csv"))
    plan = runs.Plan(base, change, Metric(metric, higher_is_better, warmup_steps), rounds, warmup, timeout)
    predicted = None
    if advice is not None and predicted_ns is not None:
        raise UsageError("--advice and --predicted-ns cannot be combined", "use only one of them")
    if predicted_ns is not None:
        predicted = prediction.from_numbers(predicted_ns)
    elif advice is not None:
        predicted = prediction.from_file(advice)
    if ledger is not None:  # checked here, so that an unwritable ledger is reported before the runs
        if is_remote(ledger):
            raise UsageError(f"{ledger}: cannot append to a file in a remote store", "use a local file for --ledger")
        reason = "it is a folder" if ledger.is_dir() else failures.why_unwritable(ledger.parent)
        if reason is not None:
            raise UsageError(f"{ledger}: cannot be written ({reason})", "choose another file for --ledger")
    refuse_overwriting(output, () if ledger is None else (ledger,))
    with working("verifying") as say:
        result = outcome.verify(plan, predicted, say)
    if ledger is not None:
        ledgers.append(ledger, outcome.record(result))
    if result.predicted is not None and result.predicted.rule is not None:
        with contextlib.suppress(UsageError):  # the user asked for a verdict, not for this file
            ledgers.append(experience.own_ledger(), outcome.record(result))
    stored: Mapping[str, EqualRuns] = {}
    with contextlib.suppress(UsageError):
        stored = noise.of_verification(result)
    emit(outcome.report(result, stored), chosen, output)
    return {"verified": 0, "helps": 0, "refuted": 1}.get(result.verdict.outcome, 3)
