"""``perfkit capture``: record some steps of a training that runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from perfkit_core.base.system.paths import printable
from perfkit_core.base.system.processes import shell_path
from perfkit_core.cli import options
from perfkit_core.cli.output import echo, working
from perfkit_core.errors import CaptureError, UsageError

_MOST_NAMED: Final = 4
"""Maximum number of ranks that an error names."""


@click.command(epilog="Example: perfkit capture 12345 --steps 20")
@click.argument("target", metavar="PID|RUN_DIR")
@click.option("--steps", type=options.WholeNumber(1), default=10, show_default=True, metavar="N",
              help="Record N steps.")  # fmt: skip
@click.option("--no-wait", is_flag=True, help="End when the training has agreed, before the steps are recorded.")
@click.option("--timeout", type=options.WholeNumber(1), metavar="SECONDS", help="Give up after this time. A window "
              "that the training has agreed to is recorded nevertheless.  [default: 300, counted from the latest step "
              "or file]")  # fmt: skip
def capture(target: str, steps: int, no_wait: bool, timeout: int | None) -> None:
    """Record some steps of a training that runs, on all its ranks.

    The training needs a handler with on_demand=True. PID is the process id of any of its ranks; RUN_DIR is the folder
    of its handler. The training notices the request where its next step begins. All ranks then record the same steps.
    The command ends when the steps are written."""
    from perfkit_core.recording.capture import CaptureClient
    from perfkit_core.recording.on_demand import MOST_STEPS

    if steps > MOST_STEPS:
        raise UsageError(f"--steps {steps} is too large, the maximum is {MOST_STEPS}", "example: --steps 20")
    with working(f"waiting for the next step of {target}") as say, CaptureClient(target, timeout) as client:
        accepted = client.ask(steps)
        many = len(accepted.processes)
        ranks = f" of {many} processes" if many > 1 else ""
        folder = printable(str(accepted.run_dir))
        window = f"steps {accepted.first} to {accepted.last}{ranks}"
        echo(f"perfkit: {window} will be recorded into {folder}", err=True)
        if no_wait:
            return
        recorded = client.wait(accepted, say)
    files = [result for result in recorded if result.path is not None]
    step_ranges = [result.steps for result in files if result.steps is not None]
    if step_ranges:
        first, last = min(first for first, _ in step_ranges), max(last for _, last in step_ranges)
        chosen = f"{first}-{last}" if last > first else f"{first}"
        count = f"{len(files)} files" if files[1:] else "1 file"
        command = f"perfkit summary {shell_path(accepted.run_dir)} --step {chosen}"
        echo(f"perfkit: recorded {folder} ({count}); next: {command}", err=True)
    problems: dict[str, list[str]] = {}
    for result in recorded:
        if result.error is not None:
            problems.setdefault(result.error, []).append(result.name)
    if problems:
        texts = [f"{_listed(names)}: {error}" for error, names in problems.items()]
        hint = "capture again, or look into the log of the training"
        raise CaptureError("; ".join(texts), hint)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} others" if more > 0 else "")
