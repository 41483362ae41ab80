"""``perfkit capture``: record some steps of a training that runs."""

from __future__ import annotations

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import working
from perfkit_core.errors import CaptureError


@click.command(epilog="Example: perfkit capture 12345 --steps 20")
@click.argument("target", metavar="PID|RUN_DIR")
@click.option("--steps", type=options.Whole(1), default=10, show_default=True, metavar="N",
              help="Record N steps.")  # fmt: skip
@click.option("--no-wait", is_flag=True, help="End when the training has agreed, before the steps are recorded.")
@click.option("--timeout", type=options.Whole(1), metavar="SECONDS", help="Give up after this time. A window that the "
              "training has agreed to is recorded nevertheless.  [default: wait as long as needed]")  # fmt: skip
def capture(target: str, steps: int, no_wait: bool, timeout: int | None) -> None:
    """Record some steps of a training that runs, on all its ranks.

    The training needs a handler with on_demand=True. PID is the process id of any of its ranks; RUN_DIR is the folder
    of its handler. The training notices the request where its next step begins. All ranks then record the same steps.
    The command ends when the steps are written.
    """
    from perfkit_core.recording.capture import Capture

    with working(f"waiting for the next step of {target}") as say, Capture(target, timeout) as asked:
        accepted = asked.ask(steps)
        many = len(accepted.processes)
        ranks = f" of {many} processes" if many > 1 else ""
        window = f"steps {accepted.first} to {accepted.last}"
        click.echo(f"perfkit: {window}{ranks} will be recorded into {accepted.run_dir}", err=True)
        if no_wait:
            return
        recorded = asked.wait(accepted, say)
    files = [one for one in recorded if one.path is not None]
    seen = [one.steps for one in files if one.steps is not None]
    if seen:
        first, last = min(first for first, _ in seen), max(last for _, last in seen)
        chosen = f"{first}-{last}" if last > first else f"{first}"
        count = f"{len(files)} files" if files[1:] else "1 file"
        command = f"perfkit summary {accepted.run_dir} --step {chosen}"
        click.echo(f"perfkit: recorded {accepted.run_dir} ({count}); next: {command}", err=True)
    problems = [f"{one.name}: {one.error}" for one in recorded if one.error]
    silent = set(accepted.processes) - {one.process for one in recorded if one.done}
    if silent:
        text = f"{len(silent)} of {many} processes" if many > 1 else "the process"
        problems.append(f"{text} ended before all of {window} were recorded")
    if problems:
        raise CaptureError("; ".join(problems), "perfkit logs the reason in the training")
