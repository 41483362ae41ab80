"""``perfkit report``: one HTML page to send to a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import renderer, told, write
from perfkit_core.errors import UsageError

_PAGE: Final = ("", ".html", ".htm")
_TOGETHER_BYTES: Final = 64 << 20
"""Ranks that are not larger are read at once: a page on one trace has a timeline and advice as well."""


@click.command(epilog="Example: perfkit report runs/baseline -o baseline.html")
@options.sources
@click.option("-o", "--output", type=options.writable, default=Path("report.html"), show_default=True,
              metavar="FILE", help="The page to write, its folder too.")  # fmt: skip
@options.language
@options.partial
@options.many_ranks
def report(
    sources: tuple[Path, ...], output: Path, partial: bool, workers: int, scheduler: str | None, shard: str | None
) -> None:
    """Write one self-contained HTML page that works offline.

    A SOURCE is a run folder, a trace file or a folder of them; several files (one a rank, or more) are read as one
    profile. Ranks of more than 64 MiB in all are read one by one, and so they are with --workers, --scheduler and
    --shard: the page has no timeline, memory over time and advice then. Partials (--shard) are merged.
    """
    from perfkit_core.cli import output as overwriting
    from perfkit_core.cli import ranks
    from perfkit_core.pages.profile import REQUEST, page_views, run_report
    from perfkit_core.report.summary import read_from

    overwriting.check(output, sources)
    if shard is not None:
        done = ranks.write_share(sources, shard, output, page_views(), REQUEST, False, partial)
        click.echo(done, err=True)
        return
    if output.suffix.lower() not in _PAGE:
        raise UsageError(
            f"{output}: a report is a page of HTML", "name it .html; perfkit summary -o writes other formats"
        )
    with ranks.profile(sources, partial, workers, scheduler, _TOGETHER_BYTES) as profile:
        ranks.check_page(profile, page_views())
        write(renderer("html").render(read_from(run_report(profile), ranks.named(profile, sources))), output)
    told(output)
