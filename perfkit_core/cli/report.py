"""``perfkit report``: write a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import refuse_overwriting, renderer, say_written, write
from perfkit_core.errors import UsageError
from perfkit_core.readers.read_options import DEFAULT, ReadOptions

_SUFFIXES: Final = ("", ".html", ".htm")


@click.command(epilog="Example: perfkit report runs/baseline -o baseline.html")
@options.sources
@click.option("-o", "--output", type=options.writable, default=Path("report.html"), show_default=True,
              metavar="FILE", help="Write the page to FILE. Missing folders are created.")  # fmt: skip
@options.peaks
@options.language
@options.reads
@options.many_ranks
def report(
    sources: tuple[Path, ...],
    output: Path,
    peaks: str | None,
    read_options: ReadOptions,
    workers: int,
    scheduler: str | None,
    shard: str | None,
) -> None:
    """Write one self-contained HTML page that works offline.

    A SOURCE is a run folder, a trace file or a folder of trace files. Several sources (one or more per rank) are read
    as one profile. If the SOURCEs are partial results that --shard wrote, they are merged.

    Ranks are read one by one if their files together exceed 64 MiB, or if --workers, --scheduler or --shard is used.
    The page then has no timeline, no memory curve and no advice."""
    refuse_overwriting(output, sources)
    if shard is not None:
        from perfkit_core.pages.profile import REQUEST, page_views

        request = replace(REQUEST, peaks=peaks)
        options.write_shard(shard, sources, output, page_views(), request, read_options)
        return
    write_page(sources, output, read_options, workers, scheduler, peaks)
    say_written(output)


def write_page(
    sources: Sequence[Path],
    output: Path,
    read_options: ReadOptions = DEFAULT,
    workers: int = 1,
    scheduler: str | None = None,
    peaks: str | None = None,
) -> None:
    """Write the page of one profile to ``output``. Raises SourceError and UsageError."""
    from perfkit_core.api import TOGETHER_BYTES
    from perfkit_core.output.report.summary import read_from
    from perfkit_core.pages.profile import page_views, run_report

    if output.suffix.lower() not in _SUFFIXES:
        hint = "use a name that ends in .html, or perfkit summary -o for other formats"
        raise UsageError(f"{output}: perfkit report writes only HTML", hint)
    with options.profile(sources, read_options, workers, scheduler, TOGETHER_BYTES) as profile:
        of_partials = options.views_of_partials(profile)
        lacking = [view.name for view in page_views() if of_partials and view.name not in of_partials]
        if lacking:
            shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if lacking[3:] else "")
            hint = "create the partial results with perfkit report --shard"
            raise UsageError(f"the partial results lack these tables of the page: {shown}", hint)
        page = run_report(profile, peaks)
        write(renderer("html").render(page if of_partials else read_from(page, sources)), output)
