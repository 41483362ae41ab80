"""``perfkit export``: a file for another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import loaded, working
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.model.trace import Trace


@click.command(epilog="Example: perfkit export runs/baseline -o trace.json.gz, then open it at ui.perfetto.dev")
@options.sources
@click.option("--to", metavar="FORMAT", help="chrome, folded, speedscope, pprof, csv or parquet; 'perfkit plugins' "
              "lists them all.  [default: as FILE is named]")  # fmt: skip
@click.option("-o", "--output", type=options.writable, metavar="FILE",
              help="The file to write, its folder too; compressed if its name ends in .gz. Left out, it goes to a "
              "pipe.")  # fmt: skip
@click.option("--weight", metavar="WEIGHT", help="What folded stacks weigh: cpu (self time on the host), device (time "
              "of the work they launched), calls, or bytes (allocated).  [default: cpu]")  # fmt: skip
@click.option("--align", is_flag=True, help="Set the clocks of all ranks to that of the first one, by the collectives "
              "they share; of ranks that share none, those of most.")  # fmt: skip
@click.option("--stream", is_flag=True, help="Write the events of one trace file to Parquet as they are read, in "
              "little memory however large it is; what follows from all of them is worked out on loading.")  # fmt: skip
@click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Only these steps, and what runs on "
              "the devices meanwhile.")  # fmt: skip
@options.partial
def export(
    sources: tuple[Path, ...],
    to: str | None,
    output: Path | None,
    weight: str | None,
    align: bool,
    stream: bool,
    steps: tuple[str, ...],
    partial: bool,
) -> None:
    """Write a file that another tool opens: a timeline, stacks, or the table of events.

    \b
    chrome      timeline: Perfetto (ui.perfetto.dev), chrome://tracing, perfkit itself   .json .json.gz
    folded      stacks: flamegraph.pl, inferno, speedscope                               .folded
    speedscope  timeline: speedscope.app                                                 .speedscope.json
    pprof       stacks: go tool pprof; needs pip install "perfkit[pprof]"                .pb.gz
    csv         every event, every column                                                .csv
    parquet     the same, exact, as perfkit stores it                                    .parquet

    A SOURCE is a run folder or a trace file; several (one a rank) are read as one profile.
    """
    from perfkit_core.cli import output as overwriting
    from perfkit_core.exporters import export
    from perfkit_core.exporters.restrict import only_steps
    from perfkit_core.plugins.contracts import ExportOptions

    overwriting.check(output, sources)
    if output is None and sys.stdout.isatty():
        raise UsageError("a terminal is no place for this", "name a file with -o, as in -o trace.json.gz")
    if output is None and to is None:
        raise UsageError("a format is missing", "choose one with --to, or name a file with -o, as in -o trace.json.gz")
    chosen, asked, wanted = export.choose(to, output), ExportOptions(weight), options.steps(steps)
    export.check(chosen, asked)
    if stream:
        if chosen.name != "parquet" or output is None or len(sources) != 1 or align or wanted is not None:
            hint = "as in perfkit export trace.json -o trace.perfkit.parquet --stream"
            raise UsageError("--stream writes one trace file, all of it, to a Parquet file", hint)
        _streamed(sources[0], output, partial)
        return
    trace = loaded(sources, partial)
    if align:
        trace = _aligned(trace)
    with working(f"writing {chosen.name}"):
        if output is None:
            missing = chosen.write(only_steps(trace, wanted), sys.stdout.buffer, asked)
        else:
            missing = export.export(trace, output, chosen.name, weight=weight, steps=wanted)
    if missing:
        click.echo(f"note: {missing}", err=True)
    if output is not None:
        click.echo(f"wrote {output}, {chosen.description}", err=True)


def _streamed(source: Path, output: Path, partial: bool) -> None:
    from perfkit_core.readers import load

    with working(f"streaming {source.name}"):
        count = load.stream(source, output, partial=partial)
    click.echo(f"wrote {output}, {count} recorded events", err=True)


def _aligned(trace: Trace) -> Trace:
    from perfkit_core.views.communication.clocks import aligned

    with working("aligning clocks"):
        moved = aligned(trace)
    for finding in moved.quality[len(trace.quality) :]:
        click.echo(f"note: {finding.message}", err=True)
    return moved
