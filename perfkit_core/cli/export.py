"""``perfkit export``: write a file for another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import echo, loaded, refuse_overwriting, working
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions


@click.command(epilog="Example: perfkit export runs/baseline -o trace.json.gz, then open it at ui.perfetto.dev")
@options.sources
@click.option("--to", metavar="FORMAT", help="Output format: chrome, folded, speedscope, pprof, csv or parquet. "
              "'perfkit plugins' also lists the formats of plugins.  [default: by the suffix of FILE]")  # fmt: skip
@click.option("-o", "--output", type=options.writable, metavar="FILE",
              help="Write to FILE. Missing folders are created. The file is compressed if its name ends in .gz.  "
              "[default: standard output, if it is not a terminal]")  # fmt: skip
@click.option("--weight", metavar="WEIGHT", help="Weight of folded stacks: cpu (self time on the host), device (time "
              "of the launched device work), calls (number of calls), or bytes (allocated memory).  "
              "[default: cpu]")  # fmt: skip
@click.option("--align", is_flag=True, help="Align the clocks of the ranks, using their common collectives. If these "
              "do not link all ranks, only the largest group of linked ranks is aligned.")  # fmt: skip
@click.option("--stream", is_flag=True, help="Convert one trace file to Parquet while reading it. This needs little "
              "memory even for very large files. Derived columns are computed when the Parquet file is "
              "loaded.")  # fmt: skip
@click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Export only these steps, and the device work "
              "that runs during them.")  # fmt: skip
@click.option("--keep-host", is_flag=True, help="Also write the name of the host, folders, and all keys of the header "
              "of a trace file, which may contain names of users and tokens.")  # fmt: skip
@options.reads
def export(
    sources: tuple[Path, ...],
    to: str | None,
    output: Path | None,
    weight: str | None,
    align: bool,
    stream: bool,
    steps: tuple[str, ...],
    keep_host: bool,
    read_options: ReadOptions,
) -> None:
    """Write a file for another tool: a timeline, stacks or events.

    \b
    chrome      timeline for Perfetto, chrome://tracing, perfkit  .json .json.gz
    folded      stacks for flamegraph.pl, inferno, speedscope     .folded
    speedscope  timeline for speedscope.app                       .speedscope.json
    pprof       stacks for go tool pprof                          .pb.gz
    csv         all events with all columns                       .csv
    parquet     all events in perfkit's own format                .parquet

    The format pprof needs an extra: pip install "perfkit[pprof]". A SOURCE is a run folder or a trace file. Several
    sources (one per rank) are read as one profile."""
    from perfkit_core.exporters import export
    from perfkit_core.plugins.contracts import ExportOptions
    from perfkit_core.readers.read_options import DEFAULT

    refuse_overwriting(output, sources)
    if output is None and sys.stdout.isatty():
        raise UsageError("refusing to write a file to a terminal", "use -o FILE, as in -o trace.json.gz")
    if output is None and to is None:
        raise UsageError("no output format given", "choose one with --to, or use -o FILE, as in -o trace.json.gz")
    chosen, export_options, step_numbers = export.choose(to, output), ExportOptions(weight), options.steps(steps)
    export.check(chosen, export_options)
    if stream:
        changes = align or step_numbers is not None or read_options.without_partial != DEFAULT
        if chosen.name != "parquet" or output is None or len(sources) != 1 or changes:
            hint = "example: perfkit export trace.json -o trace.perfkit.parquet --stream"
            raise UsageError(
                "--stream needs one trace file, Parquet output to a file, and no option that changes what is read", hint
            )
        from perfkit_core.readers.load import stream as stream_events

        with working(f"streaming {sources[0].name}"):
            count = stream_events(sources[0], output, partial=read_options.partial, keep_host=keep_host)
        echo(f"wrote {output} with {count} events", err=True)
        return
    trace = loaded(sources, read_options)
    if align:
        from perfkit_core.views.communication.clocks import aligned

        findings = len(trace.quality)
        with working("aligning clocks"):
            trace = aligned(trace)
        for finding in trace.quality[findings:]:
            echo(f"note: {finding.message}", err=True)
    with working(f"writing {chosen.name}"):
        if output is None:
            chosen_steps, out = export.only_steps(trace, step_numbers), sys.stdout.buffer
            missing = export.write(chosen_steps, chosen, out, export_options, keep_host)
        else:
            missing = export.export(trace, output, chosen.name, weight=weight, steps=step_numbers, keep_host=keep_host)
    if missing:
        echo(f"note: {missing}", err=True)
    if output is not None:
        echo(f"wrote {output} ({chosen.description})", err=True)
