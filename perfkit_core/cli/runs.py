"""``perfkit runs``: list the runs in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from perfkit_core.base.language.messages import say
from perfkit_core.base.system.paths import as_path, readable
from perfkit_core.base.system.processes import shell_path
from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, echo, emit, refuse_overwriting_below, renderer, say_written, working
from perfkit_core.cli.report import write_page
from perfkit_core.errors import PerfkitError, UsageError

if TYPE_CHECKING:
    import pandas as pd


@click.command(epilog="Example: perfkit runs runs/")
@click.argument("folder", metavar="DIR", type=options.LOCATION)
@click.option("--read-files", is_flag=True, help="Read all trace files completely, to show their steps and "
              "data-quality warnings.")  # fmt: skip
@click.option("--pages", is_flag=True, help="Also write the page of each run next to the list (-o NAME.html), which "
              "links to the pages.")  # fmt: skip
@options.limit_option("all rows")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html")
@options.output
@options.language
def runs(
    folder: Path, read_files: bool, pages: bool, limit: int | None, format_name: str | None, output: Path | None
) -> None:
    """List the runs below a folder, newest first.

    The list shows the main figures of each run folder, Parquet file and trace file. If one cannot be read, the list
    shows the reason."""
    from perfkit_core.output.report import run_list
    from perfkit_core.trace.model.report_data import Report, Section

    chosen = renderer(format_name, output)
    refuse_overwriting_below(output, folder)
    if pages and (chosen.name != "html" or output is None):
        raise UsageError("--pages requires an HTML file", "use -o runs.html")
    with working(f"searching {folder}"):
        table = run_list.list_runs(folder, read_files=read_files)
    note = []
    intact = table[table["error"].isna()]
    if chosen.name in FOR_PEOPLE and len(intact):
        note.append(say("To look at one run: {command}.", command=f"perfkit view {shell_path(intact['path'].iloc[0])}"))
        if len(intact) > 1:
            older_and_newer = " ".join(map(shell_path, intact["path"].iloc[[1, 0]]))
            note.append(say("To compare two runs: {command}.", command=f"perfkit compare {older_and_newer}"))
        if not read_files and bool(intact["events"].isna().any()):
            note.append(say("Trace files were not read. Use --read-files to read them and show their figures."))
    if pages and output is not None:
        table["page"] = list(written_pages(table, output))
    if chosen.name in FOR_PEOPLE:
        table["path"] = [str(as_path(path).relative_to(as_path(readable(folder)))) for path in table["path"]]
        table["recorded_at"] = table["recorded_at"].dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
        # The date is the start of the recording. For an unread file, it is the modification time; the heading says so.
        read = table["events"].notna()[table["recorded_at"].notna()]
        date = "recorded_utc" if read.all() else "recorded_or_written_utc" if read.any() else "written_utc"
        table = table.rename(columns={"recorded_at": date, "error": "why_not_read"})
        table = table.dropna(axis="columns", how="all") if len(table) else table
    elif limit:
        table = table.head(limit)
    source = readable(folder)
    empty = say("no runs or trace files below {folder}", folder=source)
    section = Section("runs", say("Runs"), table, " ".join(note), empty, limit or None, columns=run_list.COLUMNS)
    emit(Report(say("Runs in {folder}", folder=source), (), (section,), data={"source": source}), chosen, output)
    say_written(output)


def written_pages(table: pd.DataFrame, output: Path) -> Iterator[str | None]:
    """Write the page of each run of a list into a folder next to ``output``. Yield their addresses relative to
    ``output``; None for a run that cannot be read."""
    folder = output.with_name(f"{output.stem}-pages")
    for number, (path, error) in enumerate(zip(table["path"], table["error"].notna(), strict=True), 1):
        source = as_path(path)
        page = folder / f"{number}-{readable(source.name)}.html"
        try:
            if not error:
                write_page([source], page)
        except PerfkitError as problem:
            echo(f"{path}: {problem}", err=True)
            error = True
        yield None if error else f"{quote(folder.name)}/{quote(page.name)}"
