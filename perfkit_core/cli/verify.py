"""``perfkit verify``: measures whether a change saves what was predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, refuse_overwriting, renderer, working
from perfkit_core.errors import UsageError
from perfkit_core.system.paths import is_remote

VERIFIED: Final = 0
REFUTED: Final = 1
CANNOT_TELL: Final = 3


@click.command(epilog="Example: perfkit verify --base 'python train.py' --change 'python train.py --workers 4'")
@click.option("--base", required=True, metavar="CMD", help="The command without the change; the shell runs it.")
@click.option("--change", required=True, metavar="CMD", help="The command with the change.")
@click.option("--metric", default="step_time", show_default=True, metavar="NAME|REGEX", help="The measured number: "
              "step_time, the time of a step without a profiler; or the last number that is printed after NAME, or "
              "that the group of REGEX matches, as in 'step_ms: ([0-9.]+)'.")  # fmt: skip
@click.option("--higher-is-better", is_flag=True, help="The printed number is a rate, such as samples per second.")
@click.option("--rounds", type=options.Whole(), default=5, show_default=True, metavar="N",
              help="Rounds of two runs of each command; 3 or more.")  # fmt: skip
@click.option("--warmup", type=options.Whole(), default=1, show_default=True, metavar="K",
              help="Warm-up runs of each command, which do not count.")  # fmt: skip
@click.option("--warmup-steps", type=options.Whole(), default=10, show_default=True, metavar="K",
              help="Steps left out at the beginning of each run, at most half of them.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Fail if a run takes longer.")  # fmt: skip
@click.option("--advice", metavar="FILE:ID", help="The advice to verify, from perfkit advise --format json.")
@click.option("--predicted-ns", metavar="BASE,P10,P50,P90", help="The prediction to verify: the step time when it was "
              "made, and the percentiles of the predicted one.")  # fmt: skip
@click.option("--ledger", type=options.LOCATION, metavar="FILE", help="Append the outcome to this file.")
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
    """Measure whether CHANGE is better than BASE, and by how much.

    Both commands run in turns, each time as a new process, in an order that balances drift of the machine. The change
    counts as better only if the 95 % interval of the saving excludes 0, and the saving exceeds the difference between
    equal runs of the base.

    Exit codes: 0 verified, 1 refuted, 3 cannot tell, 2 a command or an option is invalid.
    """
    from perfkit_core.system import failures
    from perfkit_core.verify import ledger as ledgers
    from perfkit_core.verify import outcome, prediction, runs
    from perfkit_core.verify.metric import Metric

    chosen = renderer(format_name, output, without=("html", "csv"))
    plan = runs.Plan(base, change, Metric(metric, higher_is_better, warmup_steps), rounds, warmup, timeout)
    predicted = None
    if advice is not None and predicted_ns is not None:
        raise UsageError("--advice and --predicted-ns exclude each other", "give one of them")
    if predicted_ns is not None:
        predicted = prediction.from_numbers(predicted_ns)
    elif advice is not None:
        predicted = prediction.from_file(advice)
    if ledger is not None:  # fail before the runs, not after them
        if is_remote(ledger):
            raise UsageError(f"{ledger}: a remote store cannot append to a file", "give a --ledger on this machine")
        reason = "it is a folder" if ledger.is_dir() else failures.why_unwritable(ledger.parent)
        if reason is not None:
            raise UsageError(f"{ledger}: cannot be written ({reason})", "choose another --ledger")
    refuse_overwriting(output, () if ledger is None else (ledger,))
    with working("verifying") as say:
        result = outcome.verify(plan, predicted, say)
    if ledger is not None:
        ledgers.append(ledger, outcome.record(result))
    emit(outcome.report(result), chosen, output)
    return {"verified": VERIFIED, "refuted": REFUTED}.get(result.verdict.value, CANNOT_TELL)
