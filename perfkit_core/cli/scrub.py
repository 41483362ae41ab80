"""``perfkit scrub``: write a profile without texts that identify people, machines and projects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import echo, loaded, refuse_overwriting, working
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions


@click.command(epilog="Example: perfkit scrub trace.json.gz -o shared.perfkit.parquet --paths --remove aurora")
@options.sources
@click.option("-o", "--output", type=options.writable, required=True, metavar="OUT", help="File to write. Its suffix "
              "chooses the format, as in perfkit export. Without a suffix, OUT is a run folder.")  # fmt: skip
@click.option("--paths", is_flag=True, help="Also shorten paths of files to their names. Files of installed packages "
              "keep their path in the package.")  # fmt: skip
@click.option("--remove", multiple=True, metavar="TEXT", help="Also replace TEXT by 'removed', such as the name of a "
              "project, also inside words. Upper and lower case must match. Can be repeated.")  # fmt: skip
@options.reads
def scrub(
    sources: tuple[Path, ...], output: Path, paths: bool, remove: tuple[str, ...], read_options: ReadOptions
) -> None:
    """Write a copy of a profile for other people.

    Names of hosts and users, keys of a file's header, texts among the recorded arguments, and known forms of tokens
    are removed. Names of operators, kernels, layers and functions are kept, and so are the numbers of all events:
    every view shows the same numbers as before. A SOURCE is a run folder or a trace file. Several sources (one per
    rank) are read as one profile.

    perfkit cannot know every secret. Look at the result before you share it."""
    from perfkit_core.exporters import export
    from perfkit_core.exporters.scrub import scrub as scrubbed
    from perfkit_core.trace.storage.store import SUFFIX

    refuse_overwriting(output, sources)
    if not all(text.strip() for text in remove):
        raise UsageError("--remove has an empty text", "give the text to remove, such as --remove aurora")
    target = output if output.suffix else output / f"scrubbed{SUFFIX}"
    chosen = export.choose(None, target)
    trace = loaded(sources, read_options)
    with working(f"writing {chosen.name}"):
        missing = export.export(scrubbed(trace, paths=paths, remove=remove), target, chosen.name)
    if missing:
        echo(f"note: {missing}", err=True)
    echo(f"wrote {output} ({chosen.description}); look at it before you share it", err=True)
