"""``perfkit log``: log a profile with an experiment tracker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import echo, working
from perfkit_core.errors import PerfkitError, UsageError

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions

TRACKERS = ("mlflow", "tensorboard", "wandb")


@click.command(epilog="Example: perfkit log runs/baseline --to mlflow")
@options.sources
@click.option("--to", "tracker", type=click.Choice(TRACKERS), required=True, help="The tracker that gets the profile.")
@click.option("-o", "--output", type=options.LOCATION, metavar="DIR", help="Folder of the event files of TensorBoard.  "
              "[default: the run folder]")  # fmt: skip
@click.option("--samples-per-step", type=options.WholeNumber(1), metavar="N", help="Also log the samples per second of "
              "steps with N samples.")  # fmt: skip
@options.reads
def log(
    sources: tuple[Path, ...],
    tracker: str,
    output: Path | None,
    samples_per_step: int | None,
    read_options: ReadOptions,
) -> None:
    """Log the head figures, tables and the page of a profile with MLflow, TensorBoard or Weights & Biases.

    The profile is logged into a new run of the tracker, or into the one that its environment variables name
    (MLFLOW_RUN_ID, WANDB_RUN_ID). Weights & Biases works offline unless WANDB_MODE is set. A SOURCE is a run folder or
    a trace file. Several sources (one per rank) are read as one profile."""
    from perfkit_core.api import TOGETHER_BYTES
    from perfkit_core.base.system.failures import one_line
    from perfkit_core.base.system.paths import is_folder
    from perfkit_core.integrations.trackers import logged_run, to_mlflow, to_tensorboard, to_wandb

    if output is not None and tracker != "tensorboard":
        raise UsageError(f"--output does not apply to {tracker}", "its settings say where runs are stored")
    if tracker == "tensorboard":
        folder = output or (sources[0] if len(sources) == 1 and is_folder(sources[0]) else None)
        if folder is None:
            raise UsageError("TensorBoard needs a folder for its event files", "use -o DIR")
        chosen = to_tensorboard(folder, samples_per_step)
    else:
        chosen = (to_mlflow if tracker == "mlflow" else to_wandb)(samples_per_step)
    with options.profile(sources, read_options, 1, None, TOGETHER_BYTES) as profile:
        run = logged_run(profile, sources[0].name, samples_per_step)
    try:
        with working(f"logging with {tracker}"):
            destination = chosen.log(run, None)
            chosen.close()
    except PerfkitError:
        raise
    except Exception as error:  # each tracker has its own
        raise UsageError(f"{tracker} failed ({one_line(error)})", "check the settings of the tracker") from error
    counts = f"{len(run.figures)} figures, {len(run.tables)} tables and the page"
    echo(f"logged {counts} with {destination}", err=True)
