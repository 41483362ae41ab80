"""``perfkit verify``: measures whether a change does what was said of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.options import Whole
from perfkit_core.cli.output import emit, renderer, working
from perfkit_core.errors import UsageError
from perfkit_core.system.paths import is_remote

if TYPE_CHECKING:
    from perfkit_core.verify.prediction import Predicted

VERIFIED: Final = 0
REFUTED: Final = 1
CANNOT_TELL: Final = 3


@click.command(epilog="Example: perfkit verify --base 'python train.py' --change 'python train.py --workers 4'")
@click.option("--base", required=True, metavar="CMD", help="The command as it is; the shell runs it.")
@click.option("--change", required=True, metavar="CMD", help="The command with the change.")
@click.option("--metric", default="step_time", show_default=True, metavar="NAME|REGEX", help="What counts: the time of "
              "a step, timed without a profiler; or the last number that is printed after NAME, or that the group of "
              "REGEX finds, as in 'step_ms: ([0-9.]+)'.")  # fmt: skip
@click.option("--higher-is-better", is_flag=True, help="The printed number is a rate, such as samples a second.")
@click.option("--rounds", type=Whole(), default=5, show_default=True, metavar="N",
              help="Rounds of two runs of each command; 3 or more.")  # fmt: skip
@click.option("--warmup", type=Whole(), default=1, show_default=True, metavar="K",
              help="Runs of each command before those that count.")  # fmt: skip
@click.option("--warmup-steps", type=Whole(), default=10, show_default=True, metavar="K",
              help="Steps left out at the beginning of each run, at most half of them.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Give up when a run takes longer.")  # fmt: skip
@click.option("--advice", metavar="FILE:ID", help="The advice that is verified, from perfkit advise --format json.")
@click.option("--predicted-ns", metavar="BASE,P10,P50,P90", help="Or its numbers: the step when it was predicted, and "
              "what it should become.")  # fmt: skip
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
    counts as better only where the 95 % interval of the saving excludes 0 and the saving is above what equal runs of
    the base differ by.

    Exit codes: 0 verified, 1 refuted, 3 cannot tell, 2 a command or an option is wrong.
    """
    chosen = renderer(format_name, output, without=("html", "csv"))
    from perfkit_core.cli import output as overwriting
    from perfkit_core.verify import ledger as ledgers
    from perfkit_core.verify import outcome as outcomes
    from perfkit_core.verify.metric import Metric
    from perfkit_core.verify.report import report
    from perfkit_core.verify.runs import Plan

    plan = Plan(base, change, Metric(metric, higher_is_better, warmup_steps), rounds, warmup, timeout)
    predicted = _predicted(advice, predicted_ns)
    _check(ledger)
    overwriting.check(output, () if ledger is None else (ledger,))
    with working("verifying") as say:
        found = outcomes.verify(plan, predicted, say)
    if ledger is not None:
        ledgers.append(ledger, outcomes.record(found))
    emit(report(found), chosen, output)
    return {"verified": VERIFIED, "refuted": REFUTED}.get(found.verdict.value, CANNOT_TELL)


def _predicted(advice: str | None, numbers: str | None) -> Predicted | None:
    from perfkit_core.verify import prediction

    if advice is not None and numbers is not None:
        raise UsageError("--advice and --predicted-ns say the same", "give one of them")
    if numbers is not None:
        return prediction.from_numbers(numbers)
    return None if advice is None else prediction.from_file(advice)


def _check(ledger: Path | None) -> None:
    """What would fail only after all runs fails before them."""
    from perfkit_core.system import failures

    if ledger is None:
        return
    if is_remote(ledger):
        raise UsageError(f"{ledger}: a store cannot append to a file", "give a --ledger on this machine")
    reason = "it is a folder" if ledger.is_dir() else failures.why_unwritable(ledger.parent)
    if reason is not None:
        raise UsageError(f"{ledger}: cannot be written ({reason})", "choose another --ledger")
